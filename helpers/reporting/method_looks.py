"""How each editing method looks: the same colour, mark and line wherever methods are told apart by them."""

from __future__ import annotations

from typing import Any

from helpers.editing.variants import method_label
from helpers.reporting.style import HATCHES, MARKERS, PALETTE

_EDITORS = ("alphaedit", "memit", "rect", "prune", "rome", "ft-m", "kn", "mend")
# There are eight colours: what is much like another editor shares its colour alone.
_ALIKE = {"r-rome": ("rome", "<", "x"), "ft-l": ("ft-m", ">", "+")}


def place(method: str) -> int:
    """Where a method's editor stands in an order of its own, from 0."""
    editor = method.partition("+")[0]
    return _EDITORS.index(_ALIKE[editor][0] if editor in _ALIKE else editor)


def colour(method: str) -> tuple[float, float, float]:
    """Of the method's editor."""
    return PALETTE[place(method)]


def marker(method: str) -> str:
    """Of the method's editor."""
    editor = method.partition("+")[0]
    return _ALIKE[editor][1] if editor in _ALIKE else MARKERS[place(method)]


def hatch(method: str) -> str:
    """Of the bars of the method's editor."""
    editor = method.partition("+")[0]
    return _ALIKE[editor][2] if editor in _ALIKE else HATCHES[place(method)]


def line(method: str) -> dict[str, Any]:
    """Label, colour, marker and line; with APP dashed and hollow.

    PRUNE is a large hollow mark, because it often equals the editor it restrains.
    """
    hollow = "+" in method or method == "prune"
    return {
        "label": method_label(method),
        "color": colour(method),
        "marker": marker(method),
        "linestyle": "--" if "+" in method else "-",
        "fillstyle": "none" if hollow else "full",
        "markersize": 10 if method == "prune" else 6,
    }


def mark(method: str) -> dict[str, Any]:
    """``line`` without the line, of one size."""
    return {**line(method), "linestyle": "", "markersize": 6}
