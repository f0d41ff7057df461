"""How much there is to hold in the head: lines by room next to their budgets, imports, and the files
that one addition touches.

python -m benchmarks.house
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from helpers.paths import NOTEBOOKS, REPOSITORY

PACKAGE = REPOSITORY / "helpers"
# The drawing of docs/architecture.md, from the ground up; rooms of one row are level.
LEVELS = (
    ("paths", "processes", "kept", "records", "fetch"),
    ("models",),
    ("scoring", "editing", "locating"),
    ("results", "triples", "params"),
    ("peak", "klob", "thinkedit"),
    ("explorer", "sweeps", "values", "doctor", "publish", "execute", "cli"),
)
# Most lines a room may have, docstrings and blanks included; they only go down (tests/test_rooms.py).
# What stands beside the rooms in `helpers` is "top-level"; the last four are folders of their own.
BUDGETS = {
    "models": 2043,
    "editing": 4879,
    "scoring": 549,
    "locating": 848,
    "facts": 325,
    "results": 1485,
    "triples": 1278,
    "peak": 5717,
    "klob": 3184,
    "thinkedit": 6834,
    "explorer": 884,
    "sweeps": 901,
    "top-level": 2086,
    "tools": 2221,
    "benchmarks": 1918,
    "book": 816,
    "tests": 22865,
}
OUTSIDE = ("tools", "benchmarks", "book", "tests")
# A paper's room has these, as the others have.
PARALLEL = (
    *("records", "metrics", "run", "tables", "figures", "gallery", "publish", "stored_scores"),
    "reading",
)
# What an addition stands for: a word that one such thing that is there already is known by, in code.
ADDITIONS = {
    "a coefficient of APP": "gamma",
    "a table column": "LS_unfiltered",
    "an editor": "RectHyperparameters",
    "a published figure": "05_share",
    "a figure of a notebook": "06_chain_samples",
    "a data set with its own schema": "LAYOUTS",
}


def module_name(path: Path) -> str:
    """Such as ``helpers.klob.run``."""
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def room_of(module: str) -> str:
    """The part of the package that a module belongs to."""
    return module.partition(".")[2].partition(".")[0]


def lines_by_room() -> dict[str, Counter[str]]:
    """For each room its files and its lines: all, docstrings, and blank or comment."""
    rooms: dict[str, Counter[str]] = {name: Counter() for name in BUDGETS}
    for path in python_files():
        parts = path.relative_to(REPOSITORY).parts
        room = parts[0] if parts[0] in OUTSIDE else parts[1] if len(parts) > 2 else "top-level"
        text = path.read_text("utf-8")
        written = [line.strip() for line in text.splitlines()]
        words = sum(_docstring_lines(ast.parse(text)))
        blank = sum(not line or line.startswith("#") for line in written)
        rooms.setdefault(room, Counter()).update(
            {"files": 1, "lines": len(written), "docstrings": words, "blank or comment": blank}
        )
    return rooms


def python_files() -> list[Path]:
    """Those of the package and of the folders next to it."""
    folders = (PACKAGE, *(REPOSITORY / name for name in OUTSIDE))
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def density() -> tuple[float, float]:
    """Characters of the package's mean code line, and lines of its 95th percentile function."""
    code, functions = [], []
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text("utf-8")
        tree = ast.parse(text)
        prose = {line for node in ast.walk(tree) for line in _docstring_places(node)}
        for number, line in enumerate(text.splitlines(), start=1):
            if number not in prose and (written := line.strip()) and written[0] != "#":
                code.append(len(written))
        functions += [
            (node.end_lineno or node.lineno) - node.lineno + 1
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef)
        ]
    return sum(code) / len(code), sorted(functions)[int(0.95 * len(functions))]


def _docstring_lines(tree: ast.Module) -> Iterator[int]:
    yield from (len(_docstring_places(node)) for node in ast.walk(tree))


def _docstring_places(node: ast.AST) -> range:
    """Numbers of the lines that a node's docstring takes, if it has one."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (
        ast.get_docstring(node, clean=False) is not None
    ):
        text = node.body[0]
        return range(text.lineno, (text.end_lineno or text.lineno) + 1)
    return range(0)


def modules_of_notebook(notebook: Path) -> list[str]:
    """Modules of helpers that the cells' imports and every editor's class load, in a process of its own."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    sources = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    imports = [
        ast.unparse(node)
        for source in sources
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    code = "\n".join(
        [
            *imports,
            "from helpers.editing.editors import EDITORS",
            "[editor.kind for editor in EDITORS.values()]",
            "import sys",
            "print(*sorted(name for name in sys.modules if name.startswith('helpers')))",
        ]
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()


def imports_of(path: Path) -> set[str]:
    """Modules of helpers that one imports, wherever that stands, or names to import later."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("helpers"):
            module = str(node.module)
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and str(node.value).startswith("helpers."):
            found.add(str(node.value))
    return found


def climbs_of_publish() -> set[tuple[str, str]]:
    """(module, module it names in a room above its own), among all that ``publish`` reaches."""
    paths = {module_name(path): path for path in PACKAGE.rglob("*.py")}
    level = {room: number for number, rooms in enumerate(LEVELS) for room in rooms}
    reached, waiting, climbs = set(), ["helpers.publish"], set()
    while waiting:
        module = waiting.pop()
        if module in reached:
            continue
        reached.add(module)
        for other in imports_of(paths[module]) & paths.keys():
            here, there = (level.get(room_of(name), -1) for name in (module, other))
            if there > here >= 0:
                climbs.add((module, other))
            else:
                waiting.append(other)
    return climbs


def files_naming(word: str) -> list[str]:
    """Files of the package with code (not docstrings or comments) that names this."""
    return [
        str(path.relative_to(PACKAGE))
        for path in sorted(PACKAGE.rglob("*.py"))
        if word in set(_names(ast.parse(path.read_text("utf-8"))))
    ]


def _names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "value"):
            if isinstance(name := getattr(node, field, None), str):
                yield name


def twins() -> list[str]:
    """Names of modules that are there more than once, but for those that the papers' rooms share."""
    counted = Counter(path.stem for path in PACKAGE.rglob("[!_]*.py"))
    return sorted(name for name, times in counted.items() if times > 1 and name not in PARALLEL)


def main() -> None:
    """Print what is measured."""
    rooms = lines_by_room()
    total = sum((lines for name, lines in rooms.items() if name not in OUTSIDE), Counter())
    allowed = {**BUDGETS, "helpers": sum(BUDGETS[name] for name in BUDGETS.keys() - set(OUTSIDE))}
    for name, counted in [*rooms.items(), ("helpers", total)]:
        print(f"{name:11s} budget {allowed[name]:6,}  ", end="")
        print("  ".join(f"{what} {counted[what]:,}" for what in total))
    characters, longest = density()
    print(
        f"mean code line: {characters:.1f} characters; 95 % of functions: at most {longest} lines"
    )
    long = [p for p in PACKAGE.rglob("*.py") if len(p.read_text("utf-8").splitlines()) > 500]
    print("modules over 500 lines:", ", ".join(map(module_name, sorted(long))) or "none")
    print("modules of one name:", ", ".join(twins()) or "none")
    (notebook,) = NOTEBOOKS.glob("03_*.ipynb")
    print("modules that notebook 03 imports:", len(modules_of_notebook(notebook)))
    climbs = climbs_of_publish()
    pairs = {(room_of(here), room_of(there)) for here, there in climbs}
    print(f"publish climbs back {len(pairs)} times:", *sorted(climbs))
    for what, word in ADDITIONS.items():
        print(f"{what}, such as {word}:", ", ".join(files_naming(word)))


if __name__ == "__main__":
    main()
