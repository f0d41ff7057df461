"""ThinkEdit's figure of paired changes: what a variant of an edit does to IFR and CKP."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.editing.editors import method_label
from helpers.results.style import method_mark, told, use_style
from helpers.results.text import INCONCLUSIVE

_BETTER = {"IFR": "← better", "CKP": "better →"}


def paired_changes(changes: pd.DataFrame, *, finding: str, caption: str = "") -> Figure:
    """What a variant changes in IFR and CKP on the same edits; hollow where chance explains it, too.

    Args:
        changes: table of ``technique_tables.changes``.
        finding: what the figure shows.
        caption: what the numbers are of.
    """
    use_style()
    rows = changes[["model", "method"]].drop_duplicates().to_numpy()[::-1]
    several = len({model for model, _ in rows}) > 1
    names = [method_label(method) + f"\n{model}" * several for model, method in rows]
    figure, panels = plt.subplots(
        1, 2, figsize=(7.2, 0.36 * len(rows) + 1.6), sharey=True, squeeze=False
    )
    for axes, (measure, better) in zip(panels[0], _BETTER.items(), strict=True):
        own = changes[changes["measure"] == measure].set_index(["model", "method"])
        for place, (model, method) in enumerate(rows):
            if (model, method) in own.index:
                _change(axes, place, str(method), own.loc[(model, method)])
        axes.axvline(0, color="0.4", linewidth=0.8)
        axes.set_xlabel(f"change of {measure} ({better})")
        axes.locator_params(axis="x", nbins=5)
        axes.grid(axis="y", visible=False)
    panels[0, 0].set_yticks(range(len(rows)), names)
    panels[0, 0].set_ylim(-0.5, len(rows) - 0.3)
    return told(
        figure,
        finding,
        f"{caption}\nPaired on n edits, 95 % intervals; filled: p < 0.05 by flipping signs",
    )


def _change(axes: Axes, place: int, method: str, row: pd.Series) -> None:
    """One method's row: its change with the interval, and the values it leads from and to."""
    look = method_mark(method) | {"label": None}
    look["fillstyle"] = "none" if row["verdict"] == INCONCLUSIVE else "full"
    mean, low, high = (float(row[end]) for end in ("mean", "low", "high"))
    sides = [[max(0.0, mean - low)], [max(0.0, high - mean)]]
    axes.errorbar(mean, place, xerr=sides, elinewidth=0.9, capsize=2, **look)
    words = f"{row['before']:.2f} → {row['after']:.2f}, n = {row['edits']}"
    axes.annotate(words, (mean, place + 0.18), ha="center", fontsize=7)
