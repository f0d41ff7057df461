"""List the words for which there is a plainer one, with their places; the count is to be zero.

python -m tools.prose [FILE …]    default: notebooks, README, guides, the site's pages, docstrings
"""

from __future__ import annotations

import io
import json
import re
import sys
import tokenize
from pathlib import Path

from helpers.paths import NOTEBOOKS, REPOSITORY

_WORDS = re.compile(
    r"\b([Bb]eside|[Ff]oretells?|[Hh]ardly|[Ss]tands?|stood|told apart|said|says?|mend(?:ed|s)?|so many"
    r"|going on|left out|leaves? out)\b|, too\b[.,;:]?"
)
_CODE = re.compile(r"``.*?``|`[^`]*`|%EXAMPLE \w+%|\bsaid by \{\w+\}")  # a table's name


def everything() -> list[Path]:
    """The files that readers read."""
    pages = [
        path for folder in ("docs", "book/pages") for path in (REPOSITORY / folder).glob("*.md")
    ]
    read = [*NOTEBOOKS.glob("*.ipynb"), *REPOSITORY.glob("*.md"), *pages]
    return sorted([*read, *(REPOSITORY / "helpers").rglob("*.py")])


def prose(path: Path) -> str:
    """A file's text without code in backquotes; of modules and cells of code their sentences."""
    text = path.read_text("utf-8")
    if path.suffix == ".ipynb":
        cells = ((c["cell_type"], "".join(c["source"])) for c in json.loads(text)["cells"])
        text = "\n".join(sentences(cell) if kind == "code" else cell for kind, cell in cells)
    elif path.suffix == ".py":
        text = sentences(text)
    return _CODE.sub("", text)


def sentences(code: str) -> str:
    """Comments and strings of more than two words."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    texts = (t.string for t in tokens if t.type in (tokenize.COMMENT, tokenize.STRING))
    return "\n".join(each for each in texts if len(each.split()) > 2)


if __name__ == "__main__":
    found = 0
    for path in map(Path, sys.argv[1:]) if sys.argv[1:] else everything():
        for line in prose(path).splitlines():
            for word in _WORDS.finditer(line):
                found += 1
                print(f"{path}: {word[0]!r} in {line.strip()[:100]!r}")
    print(f"{found} words to replace")
