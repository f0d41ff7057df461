"""How each editing method looks in the figures of notebooks 04 and 06 that set methods side by side."""

from __future__ import annotations

from typing import Any

from helpers.editing.variants import method_label
from helpers.reporting.style import PALETTE

# Colour, marker and hatch. There are eight colours: variants of one editor share theirs.
_LOOKS = {
    "alphaedit": (PALETTE[0], "o", ""),
    "memit": (PALETTE[1], "s", "///"),
    "rect": (PALETTE[2], "^", "..."),
    "prune": (PALETTE[3], "D", "\\\\\\"),
    "rome": (PALETTE[4], "v", "xxx"),
    "r-rome": (PALETTE[4], "<", "x"),
    "ft-m": (PALETTE[5], "P", "++"),
    "ft-l": (PALETTE[5], ">", "+"),
    "kn": (PALETTE[6], "X", "ooo"),
    "mend": (PALETTE[7], "*", "--"),
}


def place(method: str) -> int:
    """Where a method's editor stands in an order of its own, from 0."""
    return list(_LOOKS).index(_editor(method))


def colour(method: str) -> tuple[float, float, float]:
    """Of the method's editor."""
    return _LOOKS[_editor(method)][0]


def marker(method: str) -> str:
    """Of the method's editor."""
    return _LOOKS[_editor(method)][1]


def hatch(method: str) -> str:
    """Of the bars of the method's editor."""
    return _LOOKS[_editor(method)][2]


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


def _editor(method: str) -> str:
    return method.partition("+")[0]
