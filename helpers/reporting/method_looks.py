"""How each editing method looks: the same colour, mark and line in every figure that tells them apart."""

from __future__ import annotations

from typing import Any

from helpers.editing.variants import method_label
from helpers.reporting.style import HATCHES, MARKERS, PALETTE

# Variants of one editor share its place: they never stand in one figure.
_PLACES = {
    "alphaedit": 0,
    "memit": 1,
    "rect": 2,
    "prune": 3,
    "rome": 4,
    "r-rome": 4,
    "ft-m": 5,
    "ft-l": 5,
    "kn": 6,
    "mend": 7,
}


def place(method: str) -> int:
    """Where a method's editor stands in an order of its own, from 0."""
    return _PLACES[method.partition("+")[0]]


def colour(method: str) -> tuple[float, float, float]:
    """Of the method's editor."""
    return PALETTE[place(method)]


def hatch(method: str) -> str:
    """Of the method's bars."""
    return HATCHES[place(method)]


def line(method: str) -> dict[str, Any]:
    """Label, colour, marker and line; with APP dashed and hollow.

    PRUNE is a large hollow mark, because it often equals the editor it restrains.
    """
    hollow = "+" in method or method == "prune"
    return {
        "label": method_label(method),
        "color": colour(method),
        "marker": MARKERS[place(method)],
        "linestyle": "--" if "+" in method else "-",
        "fillstyle": "none" if hollow else "full",
        "markersize": 10 if method == "prune" else 6,
    }


def mark(method: str) -> dict[str, Any]:
    """``line`` without the line, of one size."""
    return {**line(method), "linestyle": "", "markersize": 6}
