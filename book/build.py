"""Build the reading site: ``python book/build.py [FOLDER]`` (default ``runs/book``).

Gathers the sources in ``FOLDER/source``, then lets Sphinx write ``FOLDER/html``. Executes no notebook
and needs no network; a warning fails the build.
"""

from __future__ import annotations

import json
import pkgutil
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from sphinx.cmd.build import main as sphinx

import helpers
from helpers import UserError
from helpers.paths import FIGURES, NOTEBOOKS, REPOSITORY, RUNS
from helpers.results.figure import drawing, published_figures
from helpers.results.show import TIED
from helpers.results.style import in_style

BOOK = Path(__file__).resolve().parent
NARROW, MOST_PANELS = 4.0, 6  # of a figure in one column: inches, and panels
_IMAGE = re.compile(r'<img alt="(?P<alt>[^"]*)"[^>]*src="(?P<src>[^"]*)"[^>]*>')
_FILE_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)]+)\)")
_TABLE_LOOK = re.compile(r"<style>\.ke-table.*?</style>")  # the site has its own
# Of a notebook: in a cell's text, or in a table's HTML.
_DOCS_LINK = re.compile(r"(?P<before>\(|href=\\?\")\.\./docs/(?P<name>\w+)\.md")
_COMMENT = re.compile(r"^<!--.*-->\n", re.MULTILINE)
# On the first page the README's own sections are elsewhere.
_TO_NOTEBOOKS = ("](#notebooks)", "](notebooks/01_preliminaries.ipynb)")
sys.path[:0] = [str(BOOK), str(REPOSITORY)]


def gather(source: Path) -> dict[str, str]:
    """Write all of the site's sources into a fresh folder; gives ``narrow_figures``."""
    from examples import with_examples
    from stored_facts import write_facts
    from tables import results_page

    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(BOOK / "pages", source)
    shutil.copytree(BOOK / "static", source / "static")
    shutil.copy(BOOK / "conf.py", source)
    shutil.copytree(FIGURES, source / "figures", ignore=shutil.ignore_patterns("data", "*.svg"))
    offered = write_facts(source / "static" / "records")
    pages = {path.name: path.read_text("utf-8") for path in source.glob("*.md")}
    pages["index.md"] = pages["index.md"].replace("%README%", first_page())
    pages["metrics.md"] = with_examples(pages["metrics.md"])
    pages["explorer.md"] = pages["explorer.md"].replace("%RUNS%", offered)
    _write_each(source, {**pages, "results.md": results_page()})
    _write_each(source / "notebooks", {p.name: folded(p) for p in NOTEBOOKS.glob("*.ipynb")})
    _write_each(source / "guides", guides())
    _write_each(source / "api", api_pages())
    return narrow_figures(source / "static" / "narrow")


def folded(path: Path) -> str:
    """A notebook whose code and long tables are folded away, and whose figures have words."""
    from page_parts import folded_if_long

    stored = _TABLE_LOOK.sub("", path.read_text("utf-8"))
    notebook = json.loads(_DOCS_LINK.sub(_link_to_guide, stored))
    notebook["cells"] = [part for cell in notebook["cells"] for part in _one_figure_each(cell)]
    tables = 0
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                words = described("".join(data["text/plain"]))
                width = output["metadata"]["image/png"]["width"]
                cell["metadata"]["mystnb"] = {"image": {"width": f"{width}px", "alt": words}}
            elif "ke-table" in (text := "".join(data.get("text/html", ""))):
                data["text/html"] = folded_if_long(text) if tables else text
                tables += 1
    return json.dumps(notebook, ensure_ascii=False)


def _link_to_guide(found: re.Match[str]) -> str:
    """A notebook's link to one of ``docs`` as one to its page: to its source, or in HTML to itself."""
    ending = "md" if found["before"] == "(" else "html"
    return f"{found['before']}../guides/{found['name']}.{ending}"


def _one_figure_each(cell: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A cell with its code folded away; further figures in cells of their own, as each has its words."""
    if cell["cell_type"] != "code":
        yield cell
        return
    outputs, tags = cell["outputs"], cell["metadata"].get("tags", [])
    if not any(tag.startswith(("hide-", "remove-")) for tag in tags):
        tags = [*tags, "hide-input"]
    starts = [n for n, output in enumerate(outputs) if "image/png" in output.get("data", {})][1:]
    for start, end in pairwise([0, *starts, len(outputs)]):
        own = ["remove-input", *(t for t in tags if not t.endswith("-input"))] if start else tags
        yield {
            **cell,
            "id": f"{cell['id']}-{start}",
            "outputs": outputs[start:end],
            "metadata": {"tags": own},
        }


def described(caption: str) -> str:
    """What a figure shows: its title."""
    name = caption.removeprefix("figure ")
    known = published_figures(chapter=name[:2])
    while name:  # it may end in that of its run
        with suppress(UserError):
            return (known.get(name) or drawing(name)).title
        name = name.rpartition("_")[0]
    return caption


def narrow_figures(folder: Path) -> dict[str, str]:
    """Draw published figures in one column, for telephones; their names by what images are called."""
    folder.mkdir(parents=True)
    names: dict[str, str] = {}
    for name, entry in published_figures().items():
        fig = entry.draw()
        if in_one_column(fig):
            with in_style():
                fig.savefig(folder / f"{name}.png", dpi=200, bbox_inches="tight")
            names |= {name: name, entry.title: name}
        plt.close(fig)
    return names


def in_one_column(figure: Figure) -> bool:
    """Put a figure's panels below each other and its words into short lines; False where that is no gain."""
    places = [axes.get_subplotspec() for axes in figure.axes]
    if figure.subfigs or not all(places) or len(places) > MOST_PANELS:
        return False  # a colour bar is no panel
    if not all(axes.axison for axes in figure.axes):
        return False  # a drawing without axes, such as a graph, keeps its width
    if any(len(text.get_text()) > 60 for axes in figure.axes for text in axes.texts):
        return False  # a sentence in a panel keeps its width
    rows, columns = places[0].get_gridspec().get_geometry()
    height = figure.get_figheight() * (0.9 * len(places) / rows if columns > 1 else 1)
    for place, axes in zip(GridSpec(len(places), 1, figure=figure), figure.axes, strict=True):
        axes.set_subplotspec(place)
        axes.tick_params(labelleft=True)
    figure.set_size_inches(NARROW, height)
    for text in figure.texts:
        letters = int(130 * NARROW / text.get_fontsize())
        text.set_text(textwrap.fill(text.get_text(), letters))
    figure.draw_without_rendering()
    return not any(_has_touching_labels(axes) for axes in figure.axes)


def _has_touching_labels(axes: Axes) -> bool:
    """Whether labels along a panel's horizontal axis overlap."""
    boxes = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
    in_order = sorted(boxes, key=lambda box: box.x0)
    return any(left.x1 > right.x0 for left, right in pairwise(in_order))


def with_narrow(page: str, names: dict[str, str]) -> str:
    """An HTML page whose figures have their narrow versions on narrow screens."""

    def offered(found: re.Match[str]) -> str:
        words, source = (unescape(found[name]) for name in ("alt", "src"))
        if not (name := names.get(words) or names.get(Path(source).stem)):
            return found[0]
        narrow = f"{source.partition('_images')[0]}_static/narrow/{name}.png"
        media = f'<source media="(max-width: 46em)" srcset="{narrow}" />'
        return f"<picture>{media}{found[0]}</picture>"

    return _IMAGE.sub(offered, page)


def first_page() -> str:
    """The README's first screen, how to install and reproduce, and the findings, with the site's links."""
    text = (REPOSITORY / "README.md").read_text("utf-8")
    sections = (
        ("# ", "## Edit a fact"),
        ("## Reproduce", "## Compare"),
        ("## What we", "## Limits"),
    )
    parts = [text[text.index(begin) : text.index(end)] for begin, end in sections]
    page = _FILE_LINK.sub(_link_from_the_root, _COMMENT.sub("", "".join(parts)))
    return TIED.sub("\u00a0", page.replace(*_TO_NOTEBOOKS))


def guides() -> dict[str, str]:
    """The repository's own guides, as pages; links to files that are no page become their names."""
    return {path.name.lower(): _as_page(path.read_text("utf-8")) for path in _guide_paths()}


def _guide_paths() -> list[Path]:
    docs = {path for path in (REPOSITORY / "docs").glob("*.md") if path.stem != "publishing"}
    return [REPOSITORY / "CONTRIBUTING.md", *sorted(docs)]


def _link_from_the_root(found: re.Match[str]) -> str:
    """A link of the README as one of the site's first page."""
    words, target = found.groups()
    path, hash_sign, anchor = target.partition("#")
    if Path(path).name in {guide.name for guide in _guide_paths()}:
        return f"[{words}](guides/{Path(path).name.lower()}{hash_sign}{anchor})"
    if path.startswith("notebooks/"):
        return f"[{words}]({path})"
    return f"{words} (`{target}`)"


def _as_page(text: str) -> str:
    """A guide with links to notebooks and other guides; other files become their names."""

    def linked(found: re.Match[str]) -> str:
        words, target = found.groups()
        path, hash_sign, anchor = target.partition("#")
        if target.startswith("../notebooks/"):
            return f"[{words}]({target})"
        if Path(path).name in {guide.name for guide in _guide_paths()}:
            return f"[{words}]({Path(path).name.lower()}{hash_sign}{anchor})"
        return f"{words} (`{target}`)"

    return _FILE_LINK.sub(linked, text)


# Cannot be imported without its package, whose documentation has what it implements.
OF_AN_EXTRA = ("helpers.bridges.harness",)


def api_pages() -> dict[str, str]:
    """A page for each module of the package, one for each room that lists them, and a list of rooms."""
    rooms: dict[str, list[str]] = {}
    for found in pkgutil.walk_packages(helpers.__path__, "helpers."):
        room = found.name.split(".")[1]
        if not found.ispkg and "._" not in found.name and found.name not in OF_AN_EXTRA:
            rooms.setdefault(room if found.name.count(".") > 1 else "top", []).append(found.name)
    pages = {
        f"{name}.rst": _api_page(name, members=True) for each in rooms.values() for name in each
    }
    for room, names in rooms.items():
        page = _api_page("helpers" if room == "top" else f"helpers.{room}")
        listed = "".join(f"   {name}\n" for name in names)
        pages[f"{room}.rst"] = f"{page}\n.. toctree::\n   :maxdepth: 1\n\n{listed}"
    listed = "```{toctree}\n:maxdepth: 1\n\n" + "\n".join(rooms) + "\n```"
    return {**pages, "index.md": f"# API reference\n\nFrom the docstrings.\n\n{listed}\n"}


def _api_page(name: str, *, members: bool = False) -> str:
    text = f"{name}\n{'=' * len(name)}\n\n.. automodule:: {name}\n"
    return text + "   :members:\n" if members else text


def _write_each(folder: Path, texts: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")


def build(folder: Path) -> int:
    """Gather the sources and build the site; Sphinx's exit status, not 0 after any warning."""
    names = gather(folder / "source")
    shutil.rmtree(folder / "html", ignore_errors=True)  # no page of an earlier build stays
    options = ["--quiet", "--fresh-env", "--fail-on-warning", "-d", str(folder / "doctrees")]
    status = sphinx(["-b", "html", *options, str(folder / "source"), str(folder / "html")])
    for page in (folder / "html").rglob("*.html"):
        page.write_text(with_narrow(page.read_text("utf-8"), names), "utf-8")
    return status


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else RUNS / "book"
    if status := build(target):
        sys.exit(status)
    print(target / "html" / "index.html")
