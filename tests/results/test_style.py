"""Every editor has a look of its own; text from data is shown as it is, in figures and on the site."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pytest

from book.tables import escaped
from helpers.editing.editors import EDITORS
from helpers.results.style import method_line, plain, told


def test_no_two_methods_look_the_same():
    methods = [*EDITORS, *(f"{editor}+app" for editor, entry in EDITORS.items() if entry.loss)]
    lines = [method_line(method) for method in methods]
    looks = {(line["linestyle"], line["marker"], line["color"]) for line in lines}
    assert len(looks) == len(methods)


@pytest.mark.parametrize("text", ["costs $5 or $6", "$x_1$", r"$\frac{1}$", "no dollars"])
def test_no_text_from_data_is_mathematics(text):
    """Two bare dollar signs would be, and what stands between them might not even parse."""
    assert plain(text).replace(r"\$", "").count("$") == 0
    figure = told(plt.figure(), text, text)
    figure.canvas.draw()
    plt.close(figure)


def test_markdown_and_html_of_a_name_are_shown():
    assert escaped("a_b*c* <b>$x$</b> [l](u)") == r"a\_b\*c\* \<b\>\$x\$\</b\> \[l\](u)"
