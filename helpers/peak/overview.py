"""All methods of a run at a glance: plain and +APP side by side, and by length of the list."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from helpers.peak.metrics_table import summarise
from helpers.results.style import BESIDE, PALETTE, captioned, told, use_style

_PANELS = {
    "AFF_hard": "AFF, hard",
    "ANF_hard": "ANF, hard",
    "AFF_random": "AFF, random",
    "ANF_random": "ANF, random",
}
_TITLE = "Perturbation of the neighbours: additivity factor [%], 95 % interval, lower is better"


def additivity_pairs(
    by_record: Mapping[str, pd.DataFrame], *, finding: str = "", caption: str = ""
) -> Figure:
    """AFF and ANF of every editor, plain and with APP joined by a line; lower is better.

    Args:
        by_record: for each method one row of metrics per record (PEAK, Tables 3, 4 and 9).
        finding: stands over the panels, the rest then below them.
    """
    use_style()
    editors = list(dict.fromkeys(method.removesuffix("+APP") for method in by_record))
    rows = np.arange(len(editors))[::-1]
    height = 0.3 * len(editors) + 1.4
    figure, panels = plt.subplots(1, 4, figsize=(7.2, height), sharey=True, sharex=True)
    for axes, (metric, title) in zip(panels, _PANELS.items(), strict=True):
        for row, editor in zip(rows, editors, strict=True):
            _pair(axes, by_record, editor, metric, row)
        axes.set_title(title)
        axes.set_xlim(-3, 103)
        axes.grid(axis="y", visible=False)
    panels[0].set_yticks(rows, editors)
    handles, labels = panels[0].get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    if finding:
        panels[-1].legend(unique.values(), unique.keys(), **BESIDE)
        return told(figure, finding, f"{caption}\n{_TITLE}")
    figure.legend(unique.values(), unique.keys(), loc="outside lower center", ncols=2)
    return captioned(figure, f"{_TITLE}\n{caption}")


def _pair(
    axes: plt.Axes, by_record: Mapping[str, pd.DataFrame], editor: str, metric: str, row: float
) -> None:
    """One editor's row: a circle for the plain method, a square with APP, intervals, a line."""
    means = []
    for place, (suffix, marker, label) in enumerate((("", "o", "plain"), ("+APP", "s", "+APP"))):
        table = by_record.get(editor + suffix)
        if table is None:
            continue
        summary = 100 * summarise(table[[metric]])[["mean", "low", "high"]]
        mean, low, high = (float(value) for value in summary.iloc[0])
        level = row + (0.12, -0.12)[place]
        means.append((mean, level))
        axes.errorbar(
            mean,
            level,
            xerr=[[mean - low], [high - mean]],
            fmt=marker,
            color=PALETTE[place],
            markeredgecolor="black",
            markeredgewidth=0.4,
            markersize=5,
            elinewidth=0.9,
            label=label,
            zorder=3,
        )
    if len(means) == 2:
        axes.plot(*zip(*means, strict=True), color="0.5", linewidth=0.9, zorder=2)


def by_list_length(
    by_record: Mapping[str, pd.DataFrame],
    scores: Mapping[str, pd.DataFrame],
    *,
    metric: str,
    groups: int = 3,
) -> pd.DataFrame:
    """Mean percentage of one metric by the number of correct answers |O| of a record.

    Args:
        by_record: metrics of each method.
        scores: the score tables they come from.
        metric: column of ``by_record``.
        groups: quantile groups; fewer where lengths coincide.

    Returns:
        Index |O| as a range; columns records and one per method.
    """
    table = next(iter(scores.values()))
    asked = table[(table["role"] == "edit") & (table["list"] == "correct")]
    lengths = asked.groupby("case_id").size()
    ranges = pd.qcut(lengths, groups, duplicates="drop")
    low, high = lengths.groupby(ranges, observed=True).agg(["min", "max"]).to_numpy().T
    names = [str(a) if a == b else f"{a}-{b}" for a, b in zip(low, high, strict=True)]
    labels = ranges.cat.rename_categories(names)
    columns = {
        method: (100 * rows[metric]).groupby(labels.reindex(rows.index), observed=True).mean()
        for method, rows in by_record.items()
    }
    counted = pd.concat(
        [labels.value_counts(sort=False).rename("records"), pd.DataFrame(columns)], axis=1
    )
    return counted.round(1).rename_axis("|O|")
