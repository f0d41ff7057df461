"""How editors look in figures: one colour and marker an editor, the same in every figure.

Models and conditions have shades of a hue of their own (``style.py``), which no editor has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from helpers.editing.editors import method_label, split_method

BLUE = "#0173b2"
SKY = "#56b4e9"
NAVY = "#1f2f6b"
ORANGE = "#de8f05"
VERMILION = "#d55e00"
RED = "#9e1b32"
PINK = "#cc78bc"
LIGHT_PINK = "#fbafe4"
GREEN = "#029e73"
OLIVE = "#7d8200"
TAN = "#ca9161"
BROWN = "#7a4a1e"
GREY = "#949494"
BLACK = "#333333"


@dataclass(frozen=True)
class Look:
    """A colour and a marker; ``large`` marks are hollow, to be seen around another editor's."""

    colour: str
    marker: str
    large: bool = False


# A colour that two editors share is of two that meet in no figure.
LOOKS = {
    "alphaedit": Look(BLUE, "o"),
    "nas": Look(BLUE, "s"),
    "memit": Look(ORANGE, "s"),
    "memit-seq": Look(RED, "D"),
    "encore": Look(ORANGE, "^"),
    "emmet": Look(ORANGE, "v"),
    "ultraedit": Look(NAVY, "P"),
    "rect": Look(GREEN, "^"),
    "prune": Look(VERMILION, "D", large=True),
    "prune-added": Look(VERMILION, "d"),
    "simie": Look(GREEN, "D"),
    "rome": Look(PINK, "v"),
    "r-rome": Look(VERMILION, "<"),
    "ft-m": Look(TAN, "P"),
    "ft-l": Look(BROWN, ">"),
    "ft-bf": Look(OLIVE, "o"),
    "lora": Look(LIGHT_PINK, "s"),
    "kn": Look(RED, "X"),
    "mend": Look(GREY, "*"),
    "grace": Look(BLACK, "p"),
    "memoir": Look(VERMILION, "h"),
    "in-context": Look(GREEN, "H"),
    "ike": Look(GREEN, "8"),
    "memory-bm25": Look(SKY, "^"),
    "memory-hidden": Look(BROWN, "v"),
}
OTHER = Look(GREY, "h")  # of an editor that has no look of its own


def method_line(method: str) -> dict[str, Any]:
    """Label, colour, marker and line of a method, as matplotlib takes them; with APP dashed and hollow."""
    editor, suffix = split_method(method)
    look = LOOKS.get(editor.name, OTHER)
    is_large = look.large and not suffix
    face = "none" if is_large else "white" if suffix else look.colour
    return {
        "label": method_label(method),
        "color": look.colour,
        "marker": look.marker,
        "linestyle": "--" if suffix else "-",
        "mfc": face,
        "markersize": 10 if is_large else 6,
    }


def scatter_look(method: str) -> dict[str, Any]:
    """Marker and colours of a method, as a scatter plot takes them."""
    line = method_line(method)
    return {"marker": line["marker"], "facecolor": line["mfc"], "edgecolor": line["color"]}
