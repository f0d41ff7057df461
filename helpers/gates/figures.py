"""The audit of gates as a figure."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.gates.tables import KEY_LABELS, audit_caption, measures_of
from helpers.peak.figures import rows_of_estimates
from helpers.results.archive import PACKAGED_WORDS, Run
from helpers.results.figure import figure
from helpers.results.statistics import Estimate
from helpers.results.style import MARKERS, PALETTE, draw_intervals, with_caption

_CHANCE = 0.5
Areas = dict[str, dict[int, Estimate]]  # by key and layer


@figure("09_gates", of="gates", main="smollm2-135m_counterfact-val", together=True)
def gate_panels(runs: Sequence[Run]) -> Figure:
    """AUC of paraphrases against locality prompts by layer, a colour a key; dashed: keys without a layer."""
    datasets = list(dict.fromkeys(run.about.source["dataset"] for run in runs))
    present = {run.about.source["model"] for run in runs}
    packaged = [name for name in PACKAGED_WORDS if name in present]
    model_names = [*packaged, *sorted(present.difference(packaged))]
    size = (2.5 * len(model_names) + 2.0, 2.1 * len(datasets) + 1.3)
    fig, panels = plt.subplots(
        len(datasets), len(model_names), figsize=size, sharey=True, squeeze=False
    )
    areas_of_runs = {run.name: areas_of(run) for run in runs}
    for axes in panels.flat:
        axes.set_visible(False)
    for run in runs:
        row = datasets.index(run.about.source["dataset"])
        column = model_names.index(run.about.source["model"])
        _draw_areas(panels[row, column], areas_of_runs[run.name])
        panels[row, column].set_title(run.name, fontsize=7)
    panels[0, 0].set_ylim(0, 1)
    for axes in panels[:, 0]:
        axes.set_ylabel("AUC")
    drawn_axes = [axes for axes in panels.flat if axes.get_visible()]
    handles, labels = drawn_axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside right center", fontsize=7)
    first_areas = [
        areas_of_runs[run.name] for run in runs if run.about.source["dataset"] == datasets[0]
    ]
    samples = "\n".join(audit_caption(run) for run in runs)
    return with_caption(
        fig,
        _areas_in_words(datasets[0], first_areas),
        f"{samples}\n95 % intervals: bootstrap over facts; 0.5 is chance",
    )


def areas_of(run: Run) -> Areas:
    """The areas of a run by key and layer."""
    areas: Areas = {}
    for key, layer, measures in measures_of(run):
        areas.setdefault(key, {})[layer] = measures["AUC"]
    return areas


def _draw_areas(axes: Axes, areas: Areas) -> None:
    """A line for each key with layers, a dashed level for each without."""
    axes.set_visible(True)
    axes.axhline(_CHANCE, color="0.5", linewidth=0.8)
    layers = sorted({layer for by_layer in areas.values() for layer in by_layer if layer >= 0})
    for number, (key, label) in enumerate(KEY_LABELS.items()):
        if key not in areas:
            continue
        colour = PALETTE[number]
        by_layer = areas[key]
        if min(by_layer) < 0:
            axes.axhline(by_layer[min(by_layer)].mean, color=colour, linestyle="--", label=label)
            continue
        estimates = rows_of_estimates((by_layer[layer] for layer in sorted(by_layer)), scale=1)
        shift = 0.06 * (number - 1.5)  # so that intervals of several keys stay apart
        tick_positions = [layers.index(layer) + shift for layer in sorted(by_layer)]
        draw_intervals(
            axes,
            tick_positions,
            estimates,
            color=colour,
            marker=MARKERS[number],
            markersize=4,
            label=label,
        )
    axes.set_xticks(range(len(layers)), [str(layer) for layer in layers])
    axes.set_xlabel("layer", fontsize=8)


def _areas_in_words(dataset: str, areas_of_models: Sequence[Areas]) -> str:
    """The range of each key's areas over models and layers."""
    ranges = []
    for key, label in KEY_LABELS.items():
        means = [area.mean for areas in areas_of_models for area in areas.get(key, {}).values()]
        if means:
            low, high = f"{min(means):.2f}", f"{max(means):.2f}"
            ranges.append(f"{label} {low}" if low == high else f"{label} {low}–{high}")
    return f"AUC on {dataset}, over models and layers: {'; '.join(ranges)}"
