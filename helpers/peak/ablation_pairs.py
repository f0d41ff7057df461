"""The ablations' figures that compare record by record: APP short of an objective, scores and speech."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.editing.editors import Variant, method_label
from helpers.peak.ablation_tables import ByVariant
from helpers.peak.figures import LISTS
from helpers.peak.metrics_table import probabilities_table, summarise
from helpers.peak.said_metrics import rank_correlation
from helpers.results.statistics import Estimate, paired_means
from helpers.results.style import MARKERS, PALETTE, method_colour, told, use_style

FACTORS = {"AFF_hard": "AFF, hard", "ANF_hard": "ANF, hard"}
_LIST_COLOURS = {"correct": PALETTE[2], "hard": PALETTE[3], "random": PALETTE[7]}


def objectives_panels(metrics: ByVariant, scores: ByVariant, *, caption: str = "") -> Figure:
    """What APP loses without one objective, record by record, and answer probabilities (PEAK, Figs. 3, 5).

    Green stands for correct answers and what happens to them (AFF), vermilion for hard false ones (ANF).

    Args:
        metrics: of the variants to show, the plain method first.
        scores: their score tables.
        caption: model, data set, number of records.
    """
    use_style()
    # An unfinished study may lack the full APP: then the plain method is compared with.
    whole = next(
        (v for v in metrics if v.method.endswith("+app") and not v.field), next(iter(metrics))
    )
    rows = ["before", *map(_short, metrics)][::-1]
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.3), sharey=True)
    worse: dict[str, list[str]] = {}
    pairs: list[Estimate] = []
    for place, (metric, title) in enumerate(FACTORS.items()):
        changes = {
            _short(variant): paired_means(
                *metrics[whole][metric].align(table[metric], join="inner")
            )
            for variant, table in metrics.items()
            if variant != whole
        }
        found = {name: change.difference for name, change in changes.items()}
        pairs += found.values()
        color = (_LIST_COLOURS["correct"], _LIST_COLOURS["hard"])[place]
        look: dict[str, Any] = {"color": color, "marker": MARKERS[place], "label": title}
        _differences(left, found, rows, aside=0.12 - 0.24 * place, **look)
        for name in (name for name, e in found.items() if e.low > 0 and name != "plain"):
            worse.setdefault(name, []).append(title.partition(",")[0])
    n = ", ".join(map(str, sorted({e.n for e in pairs})))
    left.axvline(0, color="0.4", linewidth=0.8)
    left.set_xlabel(
        f"change against {_short(whole)} [points]\n→ worse; n = {n} pairs, 95 % intervals"
    )
    left.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    for place, (name, label) in enumerate(LISTS.items()):
        color = _LIST_COLOURS[name]
        look = {"color": color, "marker": MARKERS[place], "label": label}
        found = _probabilities(metrics, scores, name)
        _differences(right, found, rows, aside=0.2 - 0.2 * place, scale=1, **look)
    right.set_xscale("log")
    right.set_xlabel("mean probability (log scale)")
    right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, columnspacing=0.8)
    left.set_yticks(range(len(rows)), rows)
    editor = method_label(next(iter(metrics)).editor)
    shown = ", ".join(f"{name} ({', '.join(factors)})" for name, factors in worse.items())
    verdict = f"is worse {shown}" if shown else "is not shown to need any one objective"
    own = [
        f"{title.partition(',')[0]} {100 * metrics[whole][m].mean():.1f}"
        for m, title in FACTORS.items()
    ]
    return told(
        figure, f"{editor}+APP {verdict}", f"{caption}\n{_short(whole)} has {', '.join(own)} %"
    )


def said_scatter(beside: pd.DataFrame, *, caption: str = "") -> Figure:
    """AFF and ANF of each record against forgetting and noise in what is said, with Spearman's ρ.

    A column a method, since methods edit the same records. Records at one place are one larger mark.
    """
    use_style()
    pairs = {"AFF_hard": "share_forgetting", "ANF_hard": "share_noise"}
    methods = list(dict.fromkeys(map(str, beside["method"])))
    size = (1.5 * len(methods) + 1.2, 4.2)
    figure, panels = plt.subplots(
        2, len(methods), figsize=size, sharex=True, sharey=True, squeeze=False
    )
    spans = []
    for row, (factor, measure) in zip(panels, pairs.items(), strict=True):
        known = []
        for axes, method in zip(row, methods, strict=True):
            table = beside.loc[beside["method"] == method, [factor, measure]].dropna()
            places = (100 * table).round().value_counts().reset_index()
            look = {"color": method_colour(method), "alpha": 0.8, "linewidth": 0.6}
            axes.scatter(
                places[factor], places[measure], s=16 * places["count"], edgecolor="black", **look
            )
            found = rank_correlation(table[factor], table[measure])
            known += [] if np.isnan(found.rho) else [found.rho]
            words = "undefined" if np.isnan(found.rho) else f"{found.rho:.2f}"
            axes.set_title(f"{method_label(method)}\nρ = {words}, n = {found.n}", fontsize=8)
            axes.set_xlabel(f"{FACTORS[factor]} [%]")
        row[0].set_ylabel(f"{measure.replace('_', ' ')} [%]")
        ends = dict.fromkeys(f"{rho:.2f}" for rho in (min(known), max(known))) if known else ("?",)
        spans.append(f"{FACTORS[factor].partition(',')[0]} and what is said: ρ {' to '.join(ends)}")
    panels[0, 0].set(xlim=(-9, 109), ylim=(-9, 109))
    note = f"{caption}\nAt the edit prompt; a mark's area counts the records at its place"
    return told(figure, "; ".join(spans), note)


def _differences(
    axes: Axes,
    found: Mapping[str, Estimate],
    rows: Sequence[str],
    *,
    aside: float,
    scale: float = 100,
    **look: Any,
) -> None:
    """Horizontal marks with intervals, one a row; an interval down to zero has no end on a log axis."""
    places = [rows.index(name) + aside for name in found]
    mean, low, high = (
        scale * np.array([getattr(estimate, end) for estimate in found.values()])
        for end in ("mean", "low", "high")
    )
    if scale == 1:
        low = np.maximum(low, mean / 100)
    style = {"fmt": look.pop("marker"), "markersize": 5, "elinewidth": 0.9, "capsize": 2}
    axes.errorbar(mean, places, xerr=[mean - low, high - mean], **style, **look)
    axes.grid(axis="y", visible=False)


def _probabilities(metrics: ByVariant, scores: ByVariant, name: str) -> dict[str, Estimate]:
    """A list's mean probability before the edit and after each variant's."""
    found: dict[str, Estimate] = {}
    for variant in metrics:
        summary = summarise(probabilities_table(scores[variant]))
        for state, moment in (("before", "before"), (_short(variant), "after")):
            row: Any = summary.loc[f"{name}_{moment}"]
            estimate = Estimate(row["mean"], row["low"], row["high"], int(row["n"]))
            found.setdefault(state, estimate)
    return found


def _short(variant: Variant) -> str:
    """``plain``, ``APP``, ``without L1``."""
    return variant.change or ("APP" if variant.method.endswith("+app") else "plain")
