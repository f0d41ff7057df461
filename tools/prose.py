"""List what is hard to read: paragraphs with many numbers, and long sentences.

    python -m tools.prose [FILE …]    default: the notebooks, the README, the guides, the site's pages

A report for whoever edits the text, not a check: nothing fails. Code, formulas, tables, headings and
links' addresses do not count.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from helpers.paths import NOTEBOOKS, REPOSITORY

NUMBERS, WORDS = 4, 35  # more than these are listed
_LEFT_OUT = re.compile(r"^(```|:::|\$\$).*?^\1[^\n]*$|<!--.*?-->", re.M | re.S)
_INLINE = re.compile(r"`[^`]*`|\$[^$]*\$|\]\([^)]*\)|<[^>]+>")
_NUMBER = re.compile(r"(?<![\w.])[-+−]?\d[\d,]*(?:\.\d+)?(?!\w)")
_SENTENCE = re.compile(r"(?<=[.!?])[\"”)*_]*\s+(?=[\"“(*_]*[A-Z0-9])")
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s+", re.M)


def hard_places(text: str) -> Iterator[tuple[str, str]]:
    """The hard places of a Markdown text in its order: what is wrong, and the paragraph or sentence."""
    for paragraph in paragraphs(text):
        numbers = _NUMBER.findall(paragraph)
        if len(numbers) > NUMBERS:
            yield f"{len(numbers)} numbers", paragraph
        for sentence in _SENTENCE.split(paragraph):
            words = len(re.findall(r"[^\W\d_][\w'’-]*|\d[\w.,]*", sentence))
            if words > WORDS:
                yield f"{words} words", sentence


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs and list items, each on one line, without what no one reads aloud."""
    prose = _INLINE.sub("x", _LEFT_OUT.sub("", text))
    for block in re.split(r"\n\s*\n", prose):
        for part in _ITEM.split(block):
            line = " ".join(part.split())
            if line and line[0] not in "#|%!>":
                yield line


def texts(path: Path) -> Iterator[tuple[str, str]]:
    """The prose of a file with its place: of a notebook, one text per Markdown cell."""
    if path.suffix != ".ipynb":
        yield path.name, path.read_text("utf-8")
        return
    for number, cell in enumerate(json.loads(path.read_text("utf-8"))["cells"]):
        if cell["cell_type"] == "markdown":
            yield f"{path.name}[{number}]", "".join(cell["source"])


def everything() -> list[Path]:
    """The files that readers read."""
    folders = (REPOSITORY / "docs", REPOSITORY / "book" / "pages")
    guides = [path for folder in folders for path in sorted(folder.glob("*.md"))]
    return [*sorted(NOTEBOOKS.glob("*.ipynb")), REPOSITORY / "README.md", *guides]


def main(arguments: Sequence[str]) -> None:
    """Print every hard place, and how many there are."""
    paths = [Path(name) for name in arguments] or everything()
    found = [
        f"{place}: {problem}: {hard[:80]}…"
        for path in paths
        for place, text in texts(path)
        for problem, hard in hard_places(text)
    ]
    print(*found, f"{len(found)} hard places in {len(paths)} files", sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
