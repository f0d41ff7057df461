"""How editors look in figures: one colour and marker an editor, the same in every figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from helpers.editing.editors import method_label, split_method
from helpers.results.style import PALETTE


@dataclass(frozen=True)
class Look:
    """A colour, by its number in the palette, and a marker; ``large`` marks are hollow."""

    colour: int
    marker: str
    large: bool = False


LOOKS = {
    "alphaedit": Look(0, "o"),
    "nas": Look(0, "s"),
    "memit": Look(1, "s"),
    "memit-seq": Look(1, "D"),
    "encore": Look(1, "^"),
    "emmet": Look(1, "v"),
    "ultraedit": Look(6, "P"),
    "rect": Look(2, "^"),
    "prune": Look(3, "D", large=True),
    "prune-added": Look(3, "d"),
    "simie": Look(2, "D"),
    "rome": Look(4, "v"),
    "r-rome": Look(3, "<"),
    "ft-m": Look(5, "P"),
    "ft-l": Look(5, ">"),
    "ft-bf": Look(5, "o"),
    "lora": Look(6, "s"),
    "kn": Look(6, "X"),
    "mend": Look(7, "*"),
    "grace": Look(7, "p"),
    "memoir": Look(7, "h"),
    "in-context": Look(2, "H"),
    "ike": Look(2, "8"),
    "memory-bm25": Look(0, "^"),
    "memory-hidden": Look(0, "v"),
}
OTHER = Look(8, "h")  # of an editor that has no look of its own


def method_line(method: str) -> dict[str, Any]:
    """Label, colour, marker and line of a method, as matplotlib takes them; with APP dashed and hollow."""
    editor, suffix = split_method(method)
    look = LOOKS.get(editor.name, OTHER)
    is_large = look.large and not suffix
    return {
        "label": method_label(method),
        "color": PALETTE[look.colour % len(PALETTE)],
        "marker": look.marker,
        "linestyle": "--" if suffix else "-",
        "fillstyle": "none" if suffix or is_large else "full",
        "markersize": 10 if is_large else 6,
    }
