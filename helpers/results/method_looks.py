"""How each editing method looks in the figures of notebooks 04 and 06 that set methods side by side."""

from __future__ import annotations

from typing import Any

from helpers.editing.editors import EDITORS, NamedEditor, method_label
from helpers.results.style import PALETTE


def place(method: str) -> int:
    """Where a method's editor stands among all editors, from 0."""
    return list(EDITORS).index(_name(method))


def colour(method: str) -> tuple[float, float, float]:
    """Of the method's editor; editors of one class share theirs, there are only eight."""
    return PALETTE[_editor(method).colour]


def marker(method: str) -> str:
    """Of the method's editor."""
    return _editor(method).marker


def hatch(method: str) -> str:
    """Of the bars of the method's editor."""
    return _editor(method).hatch


def line(method: str) -> dict[str, Any]:
    """Label, colour, marker and line; with APP dashed and hollow."""
    large = method in EDITORS and EDITORS[method].large
    return {
        "label": method_label(method),
        "color": colour(method),
        "marker": marker(method),
        "linestyle": "--" if "+" in method else "-",
        "fillstyle": "none" if "+" in method or large else "full",
        "markersize": 10 if large else 6,
    }


def mark(method: str) -> dict[str, Any]:
    """``line`` without the line, of one size."""
    return {**line(method), "linestyle": "", "markersize": 6}


def _editor(method: str) -> NamedEditor:
    return EDITORS[_name(method)]


def _name(method: str) -> str:
    return method.partition("+")[0]
