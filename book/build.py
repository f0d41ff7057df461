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
from contextlib import suppress
from pathlib import Path

from sphinx.cmd.build import main as sphinx

import helpers
from helpers import UserError
from helpers.paths import FIGURES, NOTEBOOKS, REPOSITORY, RUNS
from helpers.results.figure import drawing
from helpers.results.show import TIED

BOOK = Path(__file__).resolve().parent
_FILE_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)]+)\)")
_TABLE_LOOK = re.compile(r"<style>\.ke-table.*?</style>")  # the site has its own
_COMMENT = re.compile(r"^<!--.*-->\n", re.MULTILINE)
sys.path[:0] = [str(BOOK), str(REPOSITORY)]


def gather(source: Path) -> None:
    """Write all of the site's sources into a fresh folder."""
    from examples import with_examples
    from stored_facts import explorer_page, write_facts
    from tables import results_page

    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(BOOK / "pages", source)
    shutil.copytree(BOOK / "static", source / "static")
    shutil.copy(BOOK / "conf.py", source)
    shutil.copy(FIGURES / "01_one_record.png", source)
    shutil.copytree(FIGURES, source / "figures", ignore=shutil.ignore_patterns("data", "*.svg"))
    offered = write_facts(source / "static" / "records")
    pages = {path.name: path.read_text("utf-8") for path in source.glob("*.md")}
    pages["index.md"] = pages["index.md"].replace("%FINDINGS%", findings())
    pages["metrics.md"] = with_examples(pages["metrics.md"])
    pages["explorer.md"] = explorer_page(pages["explorer.md"], offered)
    _write_each(source, {**pages, "results.md": results_page()})
    _write_each(source / "notebooks", {p.name: folded(p) for p in NOTEBOOKS.glob("*.ipynb")})
    _write_each(source / "guides", guides())
    _write_each(source / "api", api_pages())


def folded(path: Path) -> str:
    """A notebook whose code and long tables are folded away, and whose figures have words."""
    from tables import folded_if_long

    notebook = json.loads(_TABLE_LOOK.sub("", path.read_text("utf-8")))
    tables = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        tags = cell["metadata"].setdefault("tags", [])
        if not any(tag.startswith(("hide-", "remove-")) for tag in tags):
            tags.append("hide-input")
        shown = [output for output in cell["outputs"] if "image/png" in output.get("data", {})]
        if shown:
            words = " ".join(described("".join(o["data"]["text/plain"])) for o in shown)
            width = max(output["metadata"]["image/png"]["width"] for output in shown)
            cell["metadata"]["mystnb"] = {"image": {"width": f"{width}px", "alt": words}}
        for data in (output.get("data", {}) for output in cell["outputs"]):
            if "ke-table" in (text := "".join(data.get("text/html", ""))):
                data["text/html"] = folded_if_long(text) if tables else text
                tables += 1
    return json.dumps(notebook, ensure_ascii=False)


def described(caption: str) -> str:
    """What a figure shows: its title and the first sentence about the function that draws it."""
    parts = caption.removeprefix("figure ").split("_")
    for end in range(len(parts), 1, -1):  # a figure's name may end in that of its run
        with suppress(UserError):
            kind = drawing("_".join(parts[:end]))
            about = (kind.draw.__doc__ or "").partition("\n\n")[0].replace("`", "")
            return f"{kind.title}. {' '.join(about.split())}"
    return caption


def findings() -> str:
    """What the README says was found: the headlines, the paper's results and ours."""
    text = (REPOSITORY / "README.md").read_text("utf-8")
    found = text[text.index("## What we find") : text.index("## Limits")]
    return outdated(text) + TIED.sub("\u00a0", _COMMENT.sub("", found))


def outdated(readme: str) -> str:
    """A note where the published tables give other headlines or no longer support them; else nothing."""
    from tools.headlines import __main__ as headlines
    from tools.headlines.headline import UnsupportedError

    try:
        if headlines.readme(headlines.all_headlines()) == readme:
            return ""
        why = "run `python -m tools.headlines`"
    except UnsupportedError as error:
        why = str(error)
    print(note := f"The headlines are older than the published tables: {why}")
    return f"```{{warning}}\n{note}\n```\n\n"


def guides() -> dict[str, str]:
    """The repository's own guides, as pages; links to files that are no page become their names."""
    docs = {path for path in (REPOSITORY / "docs").glob("*.md") if path.stem != "publishing"}
    paths = [REPOSITORY / "CONTRIBUTING.md", *sorted(docs)]
    return {path.name.lower(): _as_page(path.read_text("utf-8")) for path in paths}


def _as_page(text: str) -> str:
    def linked(found: re.Match[str]) -> str:
        words, target = found.groups()
        if target.startswith("../notebooks/"):
            return f"[{words}]({target})"
        return f"{words} (`{target}`)"

    return _FILE_LINK.sub(linked, text)


def api_pages() -> dict[str, str]:
    """A page for each module of the package, one for each room that lists them, and a list of rooms."""
    rooms: dict[str, list[str]] = {}
    for found in pkgutil.walk_packages(helpers.__path__, "helpers."):
        room = found.name.split(".")[1]
        if not found.ispkg and "._" not in found.name:
            rooms.setdefault(room if found.name.count(".") > 1 else "top", []).append(found.name)
    pages = {
        f"{name}.rst": _api_page(name, members=True) for each in rooms.values() for name in each
    }
    for room, names in rooms.items():
        page = _api_page("helpers" if room == "top" else f"helpers.{room}")
        listed = "".join(f"   {name}\n" for name in names)
        pages[f"{room}.rst"] = f"{page}\n.. toctree::\n   :maxdepth: 1\n\n{listed}"
    entries = "\n".join(rooms)
    listed = f"```{{toctree}}\n:maxdepth: 1\n\n{entries}\n```"
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
    gather(folder / "source")
    shutil.rmtree(folder / "html", ignore_errors=True)  # no page of an earlier build stays
    options = ["--quiet", "--fresh-env", "--fail-on-warning", "-d", str(folder / "doctrees")]
    return sphinx(["-b", "html", *options, str(folder / "source"), str(folder / "html")])


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else RUNS / "book"
    if status := build(target):
        sys.exit(status)
    print(target / "html" / "index.html")
