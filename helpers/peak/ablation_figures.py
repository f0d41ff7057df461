"""The ablations' figures, from stored scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.editing.editors import OBJECTIVES, SYMBOLS, method_label
from helpers.peak.ablation_pairs import FACTORS
from helpers.peak.ablation_tables import ByVariant, with_field
from helpers.peak.figures import grouped_bars
from helpers.peak.metrics_table import metric_interval
from helpers.results.style import BESIDE, MARKERS, PALETTE, method_line, told, use_style

LINES = ("-", "--", ":")
_ASIDE = 0.06  # how far lines over the same places stand apart


def neighbours_lines(
    metrics: ByVariant, *, editors: Sequence[str], finding: str = "", caption: str = ""
) -> Figure:
    """AFF and ANF (hard) against the number of neighbours APP is given (PEAK, Figure 4)."""
    use_style()
    figure, panels = plt.subplots(1, 2, figsize=(7.2, 2.9), sharey=True)
    for axes, (metric, title) in zip(panels, FACTORS.items(), strict=True):
        for index, editor in enumerate(editors):
            chosen = with_field(metrics, editor, "neighbours")
            names = [f"{v.value:g}" if v.field else "all" for v in chosen]
            places = np.arange(len(names))
            look = method_line(editor) | {"linestyle": LINES[index % len(LINES)]}
            _line(axes, places + _ASIDE * (index - 0.5), chosen.values(), metric, **look)
            axes.set_xticks(places, names)
        axes.set_title(title)
        axes.set_xlabel("neighbours k of each list given to APP")
        axes.set_ylim(0, 105)
    panels[0].set_ylabel("additivity factor [%]")
    panels[1].legend()
    return told(figure, finding, f"{caption}\n{means_over(metrics.values())}")


def fairer_bars(metrics: ByVariant, *, finding: str = "", caption: str = "") -> Figure:
    """ES, AFF and ANF (hard): plain, all answers as targets (+), with APP (PEAK, Table 5)."""
    use_style()
    figure, panels = plt.subplots(1, 3, figsize=(7.6, 3.0), sharey=True)
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
    panels[0].set_ylabel("mean [%]")
    panels[-1].legend(**BESIDE)
    return told(figure, finding, f"{caption}\n{means_over(metrics.values())}")


def sensitivity_panels(
    metrics: ByVariant, *, editor: str, margin: float | None, finding: str = "", caption: str = ""
) -> Figure:
    """AFF, ANF and GS when one of APP's coefficients, or the ``margin``, is changed alone."""
    use_style()
    shown = {**FACTORS, "GS": "GS"}
    varied = (*OBJECTIVES, "margin")
    figure, panels = plt.subplots(1, len(varied), figsize=(7.6, 2.9), sharey=True)
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
    panels[-1].legend(**BESIDE)
    note = f"{caption}; each value changed alone\n{means_over(metrics.values())}"
    return told(figure, finding, note)


def sequence_lines(
    metrics: Mapping[tuple[str, int], pd.DataFrame], *, finding: str = "", caption: str = ""
) -> Figure:
    """ES, AFF and ANF of all edited records against the number of edits made, 95 % intervals."""
    use_style()
    methods = list(dict.fromkeys(method for method, _ in metrics))
    figure, panels = plt.subplots(1, 3, figsize=(7.6, 3.0), sharey=True)
    for axes, (metric, title) in zip(panels, {"ES": "ES", **FACTORS}.items(), strict=True):
        for index, method in enumerate(methods):
            points = {n: t for (each, n), t in metrics.items() if each == method}
            aside = 1.06 ** (index - (len(methods) - 1) / 2)  # on a logarithmic axis
            places = aside * np.array(list(points))
            _line(axes, places, points.values(), metric, **method_line(method))
        ticks = sorted({n for _, n in metrics})
        axes.set_xscale("log")
        axes.set_xticks(ticks, [str(n) for n in ticks])
        axes.minorticks_off()
        axes.set_title(title)
        axes.set_xlabel("edits made and scored")
        axes.set_ylim(-3, 105)
    panels[0].set_ylabel("mean over edited records [%]")
    panels[-1].legend(**BESIDE)
    return told(figure, finding, f"{caption}\n{means_over(metrics.values())}")


def means_over(tables: Iterable[pd.DataFrame]) -> str:
    """How many records are behind the means: those with AFF."""
    counts = sorted({int(table["AFF_hard"].notna().sum()) for table in tables})
    return f"Means over n = {', '.join(map(str, counts))} records, 95 % intervals"


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


def _frame(rows: Sequence[tuple]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["group", "series", "mean", "low", "high"])
