"""The editors by name: how tables call each, and where its hyperparameters stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from helpers.editing.hyperparameters import (
    AlphaEditHyperparameters,
    FtHyperparameters,
    HyperparameterError,
    Hyperparameters,
    KnHyperparameters,
    MemitHyperparameters,
    MendHyperparameters,
    PruneHyperparameters,
    RectHyperparameters,
    RomeHyperparameters,
)


@dataclass(frozen=True)
class Entry:
    """One editor's entry.

    Attributes:
        label: how tables and figures call it.
        section: of ``params/models/<model>.yaml``; several names may share one.
        kind: the class that its hyperparameters are checked with.
        fixed: values that the name itself stands for.
    """

    label: str
    section: str
    kind: type[Hyperparameters]
    fixed: Mapping[str, Any] = field(default_factory=dict)


CATALOGUE = {
    "rome": Entry("ROME", "rome", RomeHyperparameters),
    "r-rome": Entry("R-ROME", "rome", RomeHyperparameters, {"rome_key": "averaged"}),
    "memit": Entry("MEMIT", "memit", MemitHyperparameters),
    "alphaedit": Entry("AlphaEdit", "alphaedit", AlphaEditHyperparameters),
    "ft-l": Entry("FT-L", "ft", FtHyperparameters, {"objective": "prompt_last"}),
    "ft-m": Entry("FT-M", "ft", FtHyperparameters, {"objective": "target_new"}),
    "kn": Entry("KN", "kn", KnHyperparameters),
    "mend": Entry("MEND", "mend", MendHyperparameters),
    "rect": Entry("RECT", "rect", RectHyperparameters),
    "prune": Entry("PRUNE", "prune", PruneHyperparameters),
}


def entry(editor: str) -> Entry:
    """The entry of an editor.

    Raises:
        HyperparameterError: no editor of that name; the message lists those there are.
    """
    if editor not in CATALOGUE:
        raise HyperparameterError(f"no editor {editor!r}; known: {', '.join(CATALOGUE)}")
    return CATALOGUE[editor]
