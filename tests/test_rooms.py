"""A room imports only from the rooms below it, and no paper from another."""

from __future__ import annotations

import ast

import networkx as nx
import pytest

from helpers.paths import REPOSITORY
from helpers.values import BENCHMARKS

PACKAGE = REPOSITORY / "helpers"
PAPERS = ("peak", "klob", "thinkedit", *sorted(set(BENCHMARKS.values())))
# From the ground up. Modules next to the rooms are rooms of their own.
ORDER = [
    *("paths", "processes", "kept", "records", "params", "fetch"),
    *("models", "locating", "editing", "scoring"),
    *("samples", "results", "triples", "values", *PAPERS, "behaviour", "costs"),
    *("facts", "gates", "comparison", "lifelong", "bridges", "explorer", "sweeps"),
]
# (paper, paper it imports from): the reason.
ALLOWED: dict[tuple[str, str], str] = {}


def imports() -> set[tuple[str, str]]:
    """(room, room it imports from), wherever in a module the import stands."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "helpers":
                found |= {(room, alias.name) for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("helpers."):
                found.add((room, (node.module or "").split(".")[1]))
    return {pair for pair in found if pair[0] != pair[1]}


def test_rooms_import_each_other_in_no_ring():
    assert list(nx.simple_cycles(nx.DiGraph(imports()))) == []


def test_modules_of_the_site_import_each_other_in_no_ring():
    """They import each other by their bare names, since the site is built from its own folder."""
    modules = {path.stem: path for path in (REPOSITORY / "book").glob("*.py")}
    graph = nx.DiGraph()
    for name, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module in modules:
                graph.add_edge(name, node.module)
    assert graph.number_of_edges() > 0
    assert list(nx.simple_cycles(graph)) == []


def test_rooms_import_only_from_below():
    place = {room: index for index, room in enumerate(ORDER)}
    known = [(a, b) for a, b in imports() if a in place and b in place]
    assert known
    assert [(a, b) for a, b in known if place[a] < place[b]] == []


@pytest.mark.parametrize("paper", PAPERS)
def test_no_paper_imports_another_without_a_reason(paper):
    others = {(a, b) for a, b in imports() if a == paper and b in PAPERS}
    assert others <= set(ALLOWED)
