"""The audit of gates as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.gates.tables import KEY_LABELS, measures_of, sample_words
from helpers.peak.figures import rows_of_estimates
from helpers.results.archive import PACKAGED_WORDS, Run
from helpers.results.figure import figure
from helpers.results.looks import method_line
from helpers.results.statistics import Estimate
from helpers.results.style import CONDITION_COLOURS, draw_intervals, with_caption
from helpers.results.text import footer

_MEASURES = {
    "AUC": 0.5,
    "own at 5 %": 0.05,
}  # each with its level by chance, or for all locality prompts
_TITLES = {"AUC": "AUC", "own at 5 %": "recognised where\n5 % of others pass"}
# Keys of an editor look as it does.
_LOOKS: dict[str, dict[str, Any]] = {
    **{
        key: {field: method_line(editor)[field] for field in ("color", "marker")}
        for key, editor in (("last", "grace"), ("mask", "memoir"), ("hidden", "memory-hidden"))
    },
    "subject": {"color": CONDITION_COLOURS[0], "marker": "s"},
    "bm25": {"color": method_line("memory-bm25")["color"], "linestyle": "--"},
    "bm25-subject": {"color": method_line("memory-bm25")["color"], "linestyle": ":"},
}
Curves = dict[str, dict[int, Estimate]]  # of a measure, by key and layer


@figure("09_gates", of="gates", main="smollm2-135m_counterfact-val", together=True)
def gate_panels(runs: Sequence[Run]) -> Figure:
    """Keys of gates by layer: AUC, and paraphrases recognised as their own fact where 5 % of others pass.

    Others are locality prompts; dashed levels are keys without a layer.
    """
    datasets = list(dict.fromkeys(run.about.source["dataset"] for run in runs))
    present = {run.about.source["model"] for run in runs}
    packaged = [name for name in PACKAGED_WORDS if name in present]
    model_names = [*packaged, *sorted(present.difference(packaged))]
    panel_rows = len(datasets) * len(_MEASURES)
    size = (2.0 * len(model_names) + 2.2, 1.3 * panel_rows + 1.6)
    fig, panels = plt.subplots(
        panel_rows, len(model_names), figsize=size, sharey=True, squeeze=False
    )
    for axes in panels.flat:
        axes.set_visible(False)
    areas_of_first: list[Curves] = []
    for run in runs:
        curves = curves_of(run)
        column = model_names.index(run.about.source["model"])
        dataset_number = datasets.index(run.about.source["dataset"])
        for measure_number, (measure, level) in enumerate(_MEASURES.items()):
            axes = panels[dataset_number * len(_MEASURES) + measure_number, column]
            _draw_keys_by_layer(axes, curves[measure], level)
            if axes in panels[0]:
                axes.set_title(run.about.source["model"], fontsize=9)
            if column == 0:
                dataset = run.about.source["dataset"]
                axes.set_ylabel(f"{dataset}\n{_TITLES[measure]}", fontsize=8)
        if dataset_number == 0:
            areas_of_first.append(curves["AUC"])
    panels[0, 0].set_ylim(-0.04, 1.06)
    drawn_axes = [axes for axes in panels.flat if axes.get_visible()]
    handles, labels = drawn_axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside right center", fontsize=7)
    notes = (
        "paraphrases, others: locality prompts",
        "95 % intervals (AUC: bootstrap over facts)",
        "grey: chance, or the 5 %",
        "dashed and dotted: keys without a layer",
        "AUC below 0.5: others are nearer than paraphrases",
    )
    samples = dict.fromkeys(sample_words(run) for run in runs)
    caption = footer(runs, " or ".join(samples), *notes)
    return with_caption(fig, _areas_in_words(datasets[0], areas_of_first), caption)


def curves_of(run: Run) -> dict[str, Curves]:
    """The measures of a run that the figure shows."""
    curves: dict[str, Curves] = {measure: {} for measure in _MEASURES}
    for key, layer, measures in measures_of(run):
        for measure, curves_of_measure in curves.items():
            curves_of_measure.setdefault(key, {})[layer] = measures[measure]
    return curves


def _draw_keys_by_layer(axes: Axes, curves: Curves, level: float) -> None:
    """A line for each key with layers, a dashed level for each without."""
    axes.set_visible(True)
    axes.axhline(level, color="0.5", linewidth=0.8)
    layers = sorted({layer for by_layer in curves.values() for layer in by_layer if layer >= 0})
    for number, (key, label) in enumerate(KEY_LABELS.items()):
        if key not in curves:
            continue
        look = _LOOKS[key]
        by_layer = curves[key]
        if min(by_layer) < 0:
            axes.axhline(by_layer[min(by_layer)].mean, label=label, linewidth=1.6, **look)
            continue
        estimates = rows_of_estimates((by_layer[layer] for layer in sorted(by_layer)), scale=1)
        shift = 0.06 * (number - 1.5)  # so that intervals of several keys stay apart
        tick_positions = [layers.index(layer) + shift for layer in sorted(by_layer)]
        draw_intervals(
            axes,
            tick_positions,
            estimates,
            markersize=4,
            label=label,
            **look,
        )
    axes.set_xticks(range(len(layers)), [f"layer {layer}" for layer in layers], fontsize=8)
    axes.grid(axis="x", visible=False)


def _areas_in_words(dataset: str, areas_of_models: Sequence[Curves]) -> str:
    """Of the keys with layers, those with the highest and the lowest mean area, with their ranges."""
    areas_by_label: dict[str, list[float]] = {}
    for key, label in KEY_LABELS.items():
        for areas in areas_of_models:
            means = [area.mean for layer, area in areas.get(key, {}).items() if layer >= 0]
            if means:
                areas_by_label.setdefault(label, []).extend(means)
    in_order = sorted(areas_by_label, key=lambda label: float(np.mean(areas_by_label[label])))
    if len(in_order) < 2:
        return f"AUC on {dataset} by key and layer"
    worst, best = in_order[0], in_order[-1]
    best_range, worst_range = (
        f"{min(areas_by_label[label]):.2f} to {max(areas_by_label[label]):.2f}"
        for label in (best, worst)
    )
    return (
        f"Of the keys with layers the {best} recognises paraphrases best on average (AUC on {dataset}"
        f" {best_range}), the {worst} worst ({worst_range})"
    )
