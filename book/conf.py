"""Sphinx settings: executed notebooks as they are, mathematics as MathML, nothing from the network."""

import re

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

import helpers

project = "Knowledge editing, reproduced"
author = "the contributors"
version = release = helpers.__version__
language = "en"

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
default_role = "code"

nb_execution_mode = "off"
nb_ipywidgets_js = {}  # a page shows a widget's static figure; its scripts would come from a CDN
nb_code_prompt_show = "Show the code"
nb_code_prompt_hide = "Hide the code"
nb_merge_streams = True
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
myst_update_mathjax = False

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
suppress_warnings = ["ref.python"]  # a class's name in "Raises" may exist in two modules

html_theme = "furo"
html_title = project
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["sort.js", "enlarge.js"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_use_index = False  # the search finds names; pages of all of them are endless
html_domain_indices = False


def _mathml(as_block):
    def write(translator, node):
        text = re.sub(r"\\[Bb]igg?(?![A-Za-z])", "", node.astext())  # a size it does not know
        formula = tex2mathml(text, as_block=as_block)
        translator.body.append(f'<div class="equation">{formula}</div>' if as_block else formula)
        raise nodes.SkipNode

    return write


def _as_written(app, what, name, obj, options, lines):
    """In our docstrings |x| is a size, not a substitution, and a literal may have a plural s."""
    for index, line in enumerate(lines):
        parts = re.split(r"(``.*?``)", line)
        parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
        parts[2::2] = [rf"\ {part}" if part[:1].isalnum() else part for part in parts[2::2]]
        lines[index] = "".join(parts)


def setup(app):
    """Have docutils turn formulas into MathML, which browsers draw without a script."""
    app.connect("autodoc-process-docstring", _as_written)
    inline, block = ((_mathml(as_block), None) for as_block in (False, True))
    app.add_html_math_renderer("mathml", inline_renderers=inline, block_renderers=block)
