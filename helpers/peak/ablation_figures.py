"""The ablations' figures, from stored scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.editing.variants import OBJECTIVES, SYMBOLS, Variant, method_label
from helpers.peak.ablation_tables import ByVariant, with_field
from helpers.peak.figures import LISTS, grouped_bars, grouped_points
from helpers.peak.metrics_table import metric_interval, probabilities_table, summarise
from helpers.peak.said_metrics import rank_correlation
from helpers.results import method_looks as looks
from helpers.results.style import MARKERS, PALETTE, captioned, use_style

FACTORS = {"AFF_hard": "AFF, hard", "ANF_hard": "ANF, hard"}
LINES = ("-", "--", ":")
_ASIDE = 0.06  # how far lines over the same places stand apart


def objectives_panels(metrics: ByVariant, scores: ByVariant, *, caption: str = "") -> Figure:
    """Additivity and answer probabilities with APP and short of one objective (PEAK, Figs. 3, 5).

    Args:
        metrics: of the variants to show, the plain method first.
        scores: their score tables.
    """
    use_style()
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.4), width_ratios=[1, 1.15])
    bars = [
        (_short(variant), title, *_interval(table, metric))
        for variant, table in metrics.items()
        for metric, title in FACTORS.items()
    ]
    grouped_bars(left, _frame(bars), group="group", bar="series")
    left.set_ylabel("additivity factor [%], lower is better")
    left.set_ylim(0, 105)
    left.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    points = []
    for index, variant in enumerate(metrics):
        summary = summarise(probabilities_table(scores[variant]))
        for moment in ("before", "after") if index == 0 else ("after",):
            state = "before" if moment == "before" else _short(variant)
            for name, label in LISTS.items():
                chosen = summary.loc[f"{name}_{moment}", ["mean", "low", "high"]]
                points.append((state, label, *chosen))
    grouped_points(right, _frame(points), group="group", point="series")
    right.set_yscale("log")
    right.set_ylabel("mean probability (log scale)")
    right.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0), columnspacing=0.8)
    for axes in (left, right):
        axes.tick_params(axis="x", labelrotation=30)
    editor = method_label(next(iter(metrics)).editor)
    return captioned(figure, f"{editor}: APP short of one objective, 95 % intervals\n{caption}")


def neighbours_lines(metrics: ByVariant, *, editors: Sequence[str], caption: str = "") -> Figure:
    """AFF and ANF (hard) against the number of neighbours APP is given (PEAK, Figure 4)."""
    use_style()
    figure, panels = plt.subplots(1, 2, figsize=(7.2, 2.9), sharey=True)
    for axes, (metric, title) in zip(panels, FACTORS.items(), strict=True):
        for index, editor in enumerate(editors):
            chosen = with_field(metrics, editor, "neighbours")
            names = [f"{v.value:g}" if v.field else "all" for v in chosen]
            places = np.arange(len(names))
            look = looks.line(editor) | {"linestyle": LINES[index % len(LINES)]}
            _line(axes, places + _ASIDE * (index - 0.5), chosen.values(), metric, **look)
            axes.set_xticks(places, names)
        axes.set_title(title)
        axes.set_xlabel("neighbours k of each list given to APP")
        axes.set_ylim(0, 105)
    panels[0].set_ylabel("additivity factor [%]")
    panels[1].legend()
    return captioned(figure, f"More neighbours, 95 % intervals\n{caption}")


def fairer_bars(metrics: ByVariant, *, caption: str = "") -> Figure:
    """ES, AFF and ANF (hard): plain, all answers as targets (+), with APP (PEAK, Table 5)."""
    use_style()
    figure, panels = plt.subplots(1, 3, figsize=(7.2, 3.0), sharey=True)
    kinds = {"": "plain", "all": "+ (mean)", "all-sum": "+ (sum)", "app": "+APP"}
    shown = {"ES": "ES (higher is better)"} | {m: f"{t} (lower)" for m, t in FACTORS.items()}
    for axes, (metric, title) in zip(panels, shown.items(), strict=True):
        rows = [
            (method_label(v.editor), kinds[v.method.partition("+")[2]], *_interval(table, metric))
            for v, table in metrics.items()
        ]
        grouped_bars(axes, _frame(rows), group="group", bar="series")
        axes.set_title(title)
        axes.set_ylim(0, 105)
    panels[0].set_ylabel("mean, 95 % interval [%]")
    _legend_below(figure, panels[0])
    return captioned(figure, f"Fairer baselines\n{caption}")


def sensitivity_panels(
    metrics: ByVariant, *, editor: str, margin: float | None, caption: str = ""
) -> Figure:
    """AFF, ANF and GS when one of APP's coefficients, or the ``margin``, is changed alone."""
    use_style()
    shown = {**FACTORS, "GS": "GS"}
    varied = (*OBJECTIVES, "margin")
    figure, panels = plt.subplots(1, len(varied), figsize=(7.2, 2.9), sharey=True)
    for axes, field in zip(panels, varied, strict=True):
        chosen = with_field(metrics, editor, field, margin=margin)
        values = [v.value if v.field else margin if field == "margin" else 1.0 for v in chosen]
        places = np.arange(len(values))
        for index, (metric, title) in enumerate(shown.items()):
            look = {"color": PALETTE[index], "marker": MARKERS[index], "linestyle": LINES[index]}
            aside = places + _ASIDE * (index - 0.5)
            _line(axes, aside, chosen.values(), metric, label=title, **look)
        unit = "" if field == "margin" else "×"
        axes.set_xticks(places, [f"{value:g}{unit}" for value in values])
        axes.set_title(SYMBOLS[field])
        axes.set_ylim(0, 105)
    panels[0].set_ylabel("percent")
    _legend_below(figure, panels[0])
    title = f"{method_label(editor)}+APP: one coefficient changed alone, 95 % intervals\n{caption}"
    return captioned(figure, title)


def sequence_lines(metrics: Mapping[tuple[str, int], pd.DataFrame], *, caption: str = "") -> Figure:
    """ES, AFF and ANF of all edited records against the number of edits made, 95 % intervals."""
    use_style()
    methods = list(dict.fromkeys(method for method, _ in metrics))
    figure, panels = plt.subplots(1, 3, figsize=(7.2, 3.0), sharey=True)
    for axes, (metric, title) in zip(panels, {"ES": "ES", **FACTORS}.items(), strict=True):
        for index, method in enumerate(methods):
            points = {n: t for (each, n), t in metrics.items() if each == method}
            aside = 1.06 ** (index - (len(methods) - 1) / 2)  # on a logarithmic axis
            places = aside * np.array(list(points))
            _line(axes, places, points.values(), metric, **looks.line(method))
        ticks = sorted({n for _, n in metrics})
        axes.set_xscale("log")
        axes.set_xticks(ticks, [str(n) for n in ticks])
        axes.minorticks_off()
        axes.set_title(title)
        axes.set_xlabel("edits made and scored")
        axes.set_ylim(-3, 105)
    panels[0].set_ylabel("mean over edited records [%]")
    _legend_below(figure, panels[0])
    return captioned(figure, f"Sequential edits, 95 % intervals\n{caption}")


def said_scatter(beside: pd.DataFrame, *, caption: str = "") -> Figure:
    """AFF and ANF of each record against forgetting and noise in what is said, with Spearman's ρ."""
    use_style()
    pairs = {"AFF_hard": "share_forgetting", "ANF_hard": "share_noise"}
    figure, panels = plt.subplots(1, 2, figsize=(7.2, 3.4))
    for axes, (factor, measure) in zip(panels, pairs.items(), strict=True):
        for method, table in beside.groupby("method", sort=False):
            look = looks.mark(str(method)) | {"markersize": 5, "alpha": 0.85}
            axes.plot(100 * table[factor], 100 * table[measure], **look)
        # Methods edit the same records, so that no one number stands for all their edits.
        found = [
            rank_correlation(table[factor], table[measure]) for _, table in beside.groupby("method")
        ]
        known = sorted(one.rho for one in found if not np.isnan(one.rho))
        span = " to ".join(f"{rho:.2f}" for rho in dict.fromkeys((*known[:1], *known[-1:])))
        records = max((one.n for one in found), default=0)
        axes.set_title(f"ρ by method: {span or 'undefined'} (n ≤ {records})")
        axes.set_xlabel(f"{FACTORS[factor]}, at the edit prompt [%]")
        axes.set_ylabel(f"{measure.replace('_', ' ')} in what is said [%]")
        axes.set_xlim(-4, 104)
        axes.set_ylim(-4, 104)
    _legend_below(figure, panels[0])
    return captioned(figure, f"Scores and speech\n{caption}")


def _legend_below(figure: Figure, axes: Axes) -> None:
    """One legend for all panels, under them."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4)


def _line(
    axes: Axes, places: np.ndarray, tables: Iterable[pd.DataFrame], metric: str, **look: Any
) -> None:
    """Means joined by a line, with 95 % intervals."""
    values = np.array([_interval(table, metric) for table in tables]).reshape(-1, 3)
    axes.errorbar(
        places,
        values[:, 0],
        yerr=[values[:, 0] - values[:, 1], values[:, 2] - values[:, 0]],
        elinewidth=0.8,
        capsize=2,
        **look,
    )


def _interval(table: pd.DataFrame, metric: str) -> tuple[float, float, float]:
    """Mean, low and high of a metric in percent."""
    estimate = metric_interval(metric, table[metric])
    return 100 * estimate.mean, 100 * estimate.low, 100 * estimate.high


def _short(variant: Variant) -> str:
    """``plain``, ``APP``, ``without L1``."""
    return variant.change or ("APP" if variant.method.endswith("+app") else "plain")


def _frame(rows: Sequence[tuple]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["group", "series", "mean", "low", "high"])
