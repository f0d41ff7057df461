"""How much there is to hold in the head: lines by room (for orientation), the files that one
addition touches, and the modules between a notebook's cell and its number.

python -m benchmarks.house [--distances]    the latter runs a cell of three notebooks, about a minute
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from textwrap import indent
from types import FrameType

from helpers.paths import NOTEBOOKS, REPOSITORY

PACKAGE = REPOSITORY / "helpers"
OUTSIDE = ("tools", "benchmarks", "book", "tests")
# What an addition is: a word by which code names one that exists, and the files it may touch.
ADDITIONS = {
    "a coefficient of APP": ("gamma", 3),  # the third is icd, which shares this one
    "a table column": ("LS_unfiltered", 1),
    "a figure": ("05_layers", 1),
    "an editor": ("kn", 4),  # the fourth is its look, which it need not have
    "a locator": ("causal-tracing", 2),
    "a data set with its own schema": ("LAYOUTS", 4),
}
# A notebook, and the call in one of its cells that gives a table.
DISTANCES = {"03": "editing_table", "05": "criteria_text", "06": "technique_table"}
# What notebooks do before and after a table, and no part of the way to its number.
LEFT_OUT = ("helpers.models.load", "helpers.results.show.begin", "helpers.results.show.show")


def python_files() -> list[Path]:
    """Those of the package and of the folders next to it."""
    folders = (PACKAGE, *(REPOSITORY / name for name in OUTSIDE))
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


@cache
def lines_by_room() -> dict[str, Counter[str]]:
    """For each room its files and its lines: all, docstrings, and blank or comment."""
    rooms: dict[str, Counter[str]] = {}
    for path in python_files():
        parts = path.relative_to(REPOSITORY).parts
        room = parts[0] if parts[0] in OUTSIDE else parts[1] if len(parts) > 2 else "top-level"
        text = path.read_text("utf-8")
        written = [line.strip() for line in text.splitlines()]
        words = sum(len(_docstring_places(node)) for node in ast.walk(ast.parse(text)))
        blank = sum(not line or line.startswith("#") for line in written)
        rooms.setdefault(room, Counter()).update(
            {"files": 1, "lines": len(written), "docstrings": words, "blank or comment": blank}
        )
    return rooms


def _docstring_places(node: ast.AST) -> range:
    """Numbers of the lines that a node's docstring takes, if it has one."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (
        ast.get_docstring(node, clean=False) is not None
    ):
        text = node.body[0]
        return range(text.lineno, (text.end_lineno or text.lineno) + 1)
    return range(0)


def files_naming(word: str) -> list[str]:
    """Files of the package with code that names this, and the folder of hyperparameters if they do."""
    files = sorted(PACKAGE.rglob("*.py"))
    found = [str(path.relative_to(PACKAGE)) for path in files if word in _names(path)]
    presets = (REPOSITORY / "params" / "models").glob("*.yaml")
    return found + ["params/models"] * any(f"{word}:" in p.read_text("utf-8") for p in presets)


@cache
def _names(path: Path) -> set[str]:
    fields = ("id", "attr", "arg", "name", "value")
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    values = (getattr(node, field, None) for node in nodes for field in fields)
    return {value for value in values if isinstance(value, str)}


@contextmanager
def modules_run() -> Iterator[set[str]]:
    """Modules of the package whose functions run inside; what imports run is omitted."""
    found: set[str] = set()
    importing = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal importing
        code = frame.f_code
        if code.co_name == "_find_and_load":
            importing += {"call": 1, "return": -1}.get(event, 0)
        elif not importing and event == "call" and code.co_filename.startswith(f"{PACKAGE}/"):
            found.add(code.co_filename.removeprefix(f"{PACKAGE}/"))

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


def modules_to_a_number(notebook: str, word: str) -> list[str]:
    """Modules that run in the first cell that calls ``word``; no model is loaded, nothing is shown."""
    (path,) = NOTEBOOKS.glob(f"{notebook}_*.ipynb")
    cells = json.loads(path.read_text("utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    place = next(number for number, source in enumerate(sources) if f"{word}(" in source)
    code = [
        "from unittest.mock import patch",
        "from benchmarks.house import modules_run",
        *(f"patch({name!r}).start()" for name in LEFT_OUT),
        "from contextlib import suppress",
        *(f"with suppress(Exception):\n{indent(s, '    ')}" for s in sources[:place]),  # live ones
        "with modules_run() as found:",
        indent(sources[place], "    "),
        "print(*sorted(found))",
    ]
    command = [sys.executable, "-c", "\n".join(code)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()


def main() -> None:
    """Print what is measured."""
    rooms = lines_by_room()
    total = sum((lines for name, lines in rooms.items() if name not in OUTSIDE), Counter())
    for name, counted in [*rooms.items(), ("helpers", total)]:
        print(f"{name:11s}", "  ".join(f"{what} {counted[what]:,}" for what in total))
    for what, (word, most) in ADDITIONS.items():
        print(f"{what}, such as {word} (at most {most}):", ", ".join(files_naming(word)))
    for notebook, word in DISTANCES.items() if "--distances" in sys.argv else ():
        found = modules_to_a_number(notebook, word)
        print(f"{word} of {notebook}: {len(found)} modules:", ", ".join(found))


if __name__ == "__main__":
    main()
