"""KLoB's figures: located neurons, the three criteria, evaluations, and where editing works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from helpers.results.figure import figure
from helpers.results.style import BESIDE, MARKERS, PALETTE, captioned, plain, told, use_style

LABELS = {
    "knowledge-neurons": "knowledge neurons (IG)",
    "gradient-activation": "gradient × activation",
    "activation": "activation",
    "logit-neuron": "logit attribution, neuron",
    "logit-layer": "logit attribution, layer",
    "gradient-weight": "gradient × weight",
    "fisher": "Fisher",
    "causal-tracing": "causal tracing",
    "random": "random (control)",
    "constant": "constant (control)",
}
TITLES = {
    "consistency": "Consistency: RSim on c",
    "relevance": "Relevance: RSim on r",
    "unbiasedness": "Unbiasedness: RSD on u",
}


@figure("05_neurons", title="Neurons located in three wordings of one fact")
def neuron_map(sets: NDArray[np.bool_], *, title: str) -> Figure:
    """Located neurons of several wordings of one fact, by layer and neuron.

    Args:
        sets: boolean [wordings, layers, neurons].
        title: the fact, in words.
    """
    use_style()
    figure, axes = plt.subplots(figsize=(6.6, 3.4))
    shared, chance = sets.sum(axis=0), _shared_by_chance(sets)
    for count in range(1, len(sets) + 1):
        layers, neurons = np.nonzero(shared == count)
        axes.scatter(
            neurons,
            layers,
            s=5 + 9 * (count - 1),
            marker=MARKERS[count - 1],
            color=["0.72", *PALETTE][count - 1],
            edgecolor="black" if count == len(sets) else "none",
            linewidth=0.4,
            label=f"in {count} of {len(sets)}: {len(layers)}\n(chance {chance[count]:.1f})",
            zorder=count,
        )
    axes.set_xlabel("neuron of the layer's MLP")
    axes.set_ylabel("layer")
    axes.set_ylim(-1, sets.shape[1])
    axes.legend(title="wordings", labelspacing=1, **BESIDE)
    common, expected = int((shared == len(sets)).sum()), chance[len(sets)]
    finding = f"{common} neurons are located in every wording; chance gives {expected:.1f}"
    note = f"{title}\nChance: the same numbers of neurons, drawn for each wording on its own"
    return told(figure, finding, note)


def _shared_by_chance(sets: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Neurons to expect in 0, 1, … of the sets if each had its size and nothing else in common."""
    chance = np.ones(1)
    for part in sets:
        share = part.mean()
        chance = np.convolve(chance, [1 - share, share])
    return chance * sets[0].size


@figure("05_criteria", title="Located mass by layer, one example of each criterion")
def layer_strips(
    panels: Mapping[str, tuple[Sequence[str], NDArray[np.floating]]], *, caption: str
) -> Figure:
    """Where a locator's mass lies, one strip of layers per sentence, one panel per criterion.

    Args:
        panels: for each criterion's title the sentences and their pooled scores [sentences, layers].
    """
    use_style()
    rows = [len(sentences) for sentences, _ in panels.values()]
    figure, column = plt.subplots(
        len(panels), 1, figsize=(7.6, 0.24 * sum(rows) + 1.5), height_ratios=rows, squeeze=False
    )
    shares = {title: m / m.sum(axis=1, keepdims=True) for title, (_, m) in panels.items()}
    highest = max(part.max() for part in shares.values())
    for axes, (title, (sentences, _)) in zip(column[:, 0], panels.items(), strict=True):
        image = axes.imshow(shares[title], aspect="auto", cmap="cividis", vmin=0, vmax=highest)
        axes.set_yticks(range(len(sentences)), list(map(plain, sentences)), fontsize=7)
        axes.grid(visible=False)
        axes.set_title(title, loc="left", fontsize=9)
    for axes in column[:-1, 0]:
        axes.set_xticks([])
    column[-1, 0].set_xlabel("layer")
    figure.colorbar(image, ax=list(column[:, 0]), label="share of mass", shrink=0.8)
    last = sum(int((part.argmax(axis=1) == part.shape[1] - 1).sum()) for part in shares.values())
    finding = f"{last} of {sum(rows)} sentences have their highest share in the last layer"
    return told(figure, finding, f"Share of a sentence's mass by layer; {caption}")


@figure("05_rsim", title="RSim as the ratio of two distances")
def rsim_line(candidate: float, everywhere: float, *, title: str) -> Figure:
    """RSim as the ratio of two distances on the scale of similarity (KLoB, Figure 3)."""
    use_style()
    figure, axes = plt.subplots(figsize=(6.6, 1.6))
    axes.plot([0, 1], [0, 0], color="0.5", linewidth=1)
    for place, name in ((0.0, "0"), (everywhere, "Sim_all"), (candidate, "Sim_cand"), (1.0, "1")):
        axes.plot(place, 0, "|", color="black", markersize=10)
        axes.annotate(name, (place, -0.28), ha="center", va="top", fontsize=8)
    for height, end, name in ((0.35, candidate, "Sim_cand - Sim_all"), (0.8, 1.0, "1 - Sim_all")):
        arrow = {"arrowstyle": "<->", "color": PALETTE[0]}
        axes.annotate("", (everywhere, height), (end, height), arrowprops=arrow)
        middle = (everywhere + end) / 2
        length = f"{name} = {end - everywhere:.2f}"
        axes.annotate(length, (middle, height + 0.06), ha="center", fontsize=8)
    near, whole = candidate - everywhere, 1 - everywhere
    axes.set_ylim(-0.6, 1.2)
    axes.axis("off")
    return told(figure, f"RSim = {near:.2f} / {whole:.2f} = {near / whole:.2f}", title)


def criteria_dots(table: pd.DataFrame, null: pd.DataFrame | None = None, *, caption: str) -> Figure:
    """Three criteria of every locator with 95 % intervals; diamonds mark what chance gives.

    Args:
        table: ``klob_tables.criteria_table``.
        null: columns locator, criterion, mean of the permutation null; optional.
    """
    use_style()
    names = [name for name in LABELS if name in set(table["locator"])][::-1]
    figure, row = plt.subplots(1, 3, figsize=(7.6, 0.27 * len(names) + 1.3), sharey=True)
    for axes, (criterion, title) in zip(row, TITLES.items(), strict=True):
        part = table[table["criterion"] == criterion].set_index("locator").reindex(names)
        _dots(axes, part, PALETTE[0])
        if null is not None:
            chance = null[null["criterion"] == criterion].set_index("locator").reindex(names)
            axes.plot(chance["mean"], range(len(names)), "D", color="0.45", mfc="none", ms=4)
        axes.axvline(0, color="0.4", linewidth=0.8)
        axes.set_title(title, loc="left", fontsize=9)
        axes.set_yticks(range(len(names)), [LABELS[name] for name in names])
    return captioned(figure, f"{caption}\n95 % intervals, ◇ what chance gives")


def share_lines(table: pd.DataFrame, *, caption: str) -> Figure:
    """RSim of every locator against the located share k.

    Args:
        table: ``klob_tables.rsim_table`` of one granularity.
    """
    use_style()
    figure, row = plt.subplots(1, 2, figsize=(7.2, 3.2), sharey=True)
    for axes, subtask in zip(row, ("consistency", "relevance"), strict=True):
        names = [name for name in LABELS if name in set(table["locator"])]
        for name in names:
            part = table.query("subtask == @subtask and locator == @name").sort_values("share")
            axes.plot(100 * part["share"], part["mean"], markersize=4, **_line(name))
            ends = part["low"], part["high"]
            axes.fill_between(100 * part["share"], *ends, color=_line(name)["color"], alpha=0.2)
        axes.axhline(0, color="0.4", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_xticks([0.1, 0.5, 1, 5], ["0.1", "0.5", "1", "5"])
        axes.set_xlabel("located share k [%]")
        axes.set_title(TITLES[subtask], loc="left")
    row[0].set_ylabel("mean RSim, unclipped")
    row[1].legend(**BESIDE)
    consistency = table[table["subtask"] == "consistency"].sort_values("mean")
    first = sorted({LABELS[name] for name in consistency.groupby("share")["locator"].last()})
    finding = f"The most consistent locator at every share: {' or '.join(first)}"
    return told(figure, finding, f"{caption}; bands: 95 % intervals over examples")


def locality_dots(tests: pd.DataFrame, *, finding: str = "", caption: str) -> Figure:
    """Rank correlation of located mass with the edit's gain: own fact against other facts.

    Args:
        tests: columns locator, pairing (``own`` or ``other``), mean, low, high.
    """
    use_style()
    names = [name for name in LABELS if name in set(tests["locator"])][::-1]
    figure, axes = plt.subplots(figsize=(6.0, 0.34 * len(names) + 1.3))
    for index, (pairing, label) in enumerate((("own", "same fact"), ("other", "other facts"))):
        part = tests[tests["pairing"] == pairing].set_index("locator").reindex(names)
        _dots(
            axes, part, PALETTE[index], shift=0.14 - 0.28 * index, marker="os"[index], label=label
        )
    axes.axvline(0, color="0.4", linewidth=0.8)
    axes.set_yticks(range(len(names)), [LABELS[name] for name in names])
    axes.set_xlabel("Spearman correlation of located mass with gain, over layers")
    axes.legend(**BESIDE)
    return told(figure, finding, f"{caption}\nMean over facts, 95 % intervals")


def _line(name: str) -> dict[str, Any]:
    """Label, colour, marker and line of a locator, the same in every figure."""
    place = list(LABELS).index(name)
    return {
        "label": LABELS[name],
        "color": "0.5" if "control" in LABELS[name] else PALETTE[place % 8],
        "marker": MARKERS[place % 8],
        "linestyle": ("-", "--", ":", "-.")[place % 4],
    }


def _dots(
    axes: Axes,
    part: pd.DataFrame,
    color: object,
    *,
    shift: float = 0.0,
    marker: str = "o",
    label: str | None = None,
) -> None:
    """Horizontal dots with intervals, one row of ``part`` above the other."""
    places = np.arange(len(part)) + shift
    spread = np.abs([part["mean"] - part["low"], part["high"] - part["mean"]])
    axes.errorbar(
        part["mean"], places, xerr=spread, fmt=marker, color=color, ms=4, capsize=2, label=label
    )
