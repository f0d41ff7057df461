"""Data flows one way: no two folders of the package import each other, directly or in a ring."""

from __future__ import annotations

import ast

import networkx as nx

from helpers.paths import REPOSITORY

PACKAGE = REPOSITORY / "helpers"


def imports() -> set[tuple[str, str]]:
    """(folder, folder it imports from), wherever in a module the import stands."""
    found = set()
    for path in PACKAGE.glob("*/**/*.py"):
        room = path.relative_to(PACKAGE).parts[0]
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("helpers."):
                found.add((room, (node.module or "").split(".")[1]))
    return {pair for pair in found if pair[0] != pair[1]}


def test_folders_import_each_other_in_no_ring():
    assert list(nx.simple_cycles(nx.DiGraph(imports()))) == []


def test_data_flows_from_models_over_editing_and_scoring_to_publishing():
    order = ["data", "models", "locating", "editing", "scoring", "runs", "thinkedit"]
    order += ["reporting", "publishing"]
    place = {room: index for index, room in enumerate(order)}
    known = [(a, b) for a, b in imports() if a in place and b in place]
    assert known
    assert [(a, b) for a, b in known if place[a] < place[b]] == []
