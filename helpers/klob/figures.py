"""KLoB's figures: located neurons, the three criteria, evaluations, and where editing works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray
from scipy import stats

from helpers.klob.metrics import Units, edit_gains, layer_mass, locality_table, profile_twins
from helpers.klob.tables import LABELS, criteria_table, made_of, made_with
from helpers.results.archive import Run
from helpers.results.figure import figure
from helpers.results.statistics import mean_interval
from helpers.results.style import (
    AT_RIGHT,
    PALETTE,
    marked,
    with_caption,
    without_mathematics,
)

TITLES = {
    "consistency": "Consistency: RSim on c",
    "relevance": "Relevance: RSim on r",
    "unbiasedness": "Unbiasedness: RSD on u",
}
CONTROLS = ("random", "constant")
PUBLISHED: dict[str, Any] = {"of": "klob", "main": "smollm2-135m_klob-mini"}


@figure("05_neurons")
def neuron_counts(sets: Sequence[Units], shape: tuple[int, int], *, title: str) -> Figure:
    """Located neurons by layer and by how many wordings of one fact share them.

    ``shape`` is (layers, neurons).
    """
    fig, axes = plt.subplots(figsize=(6.6, 3.0))
    shared = np.zeros(shape, dtype=int)
    below = np.zeros(shape[0], dtype=int)
    for units in sets:
        shared.flat[units] += 1
    number = len(sets)
    located_share = len(sets[0]) / shared.size
    chance_counts = shared.size * stats.binom.pmf(range(number + 1), number, located_share)
    expected = ["less than 1" if count < 1 else f"{count:,.0f}" for count in chance_counts]
    colours = ("0.8", *PALETTE)
    for count in range(number, 0, -1):
        heights = (shared == count).sum(axis=1)
        label = f"in {count} of {number}: {heights.sum()}\n(chance: {expected[count]})"
        axes.bar(range(shape[0]), heights, bottom=below, color=colours[count - 1], label=label)
        below += heights
    axes.set(xlabel="layer", ylabel="located neurons")
    axes.legend(title="wordings", labelspacing=1, **AT_RIGHT)
    common = f"{(shared == number).sum()} of {len(sets[0])} located neurons"
    finding = f"All {number} wordings share {common}; chance gives {expected[-1]}"
    return with_caption(
        fig, finding, f"{title}\nChance: as many neurons, at random for each wording"
    )


@figure("05_criteria")
def layer_strips(
    panels: Mapping[str, tuple[Sequence[str], NDArray[np.floating]]], *, caption: str
) -> Figure:
    """Where a locator's mass lies, for examples of each criterion: a strip of layers per sentence.

    ``panels`` have for each criterion the sentences and their pooled scores [sentences, layers].
    """
    rows = [len(sentences) for sentences, _ in panels.values()]
    size = (7.6, 0.24 * sum(rows) + 1.5)
    fig, column = plt.subplots(
        len(panels), 1, figsize=size, height_ratios=rows, squeeze=False, sharex=True
    )
    shares = {}  # [sentences, layers] by criterion
    for title, (_, mass) in panels.items():
        shares[title] = mass / mass.sum(axis=1, keepdims=True)
    highest = max(panel_shares.max() for panel_shares in shares.values())
    for axes, (title, (sentences, _)) in zip(column[:, 0], panels.items(), strict=True):
        image = axes.imshow(shares[title], aspect="auto", cmap="cividis", vmin=0, vmax=highest)
        axes.set_yticks(
            range(len(sentences)), list(map(without_mathematics, sentences)), fontsize=7
        )
        axes.grid(visible=False)
        axes.set_title(title, loc="left", fontsize=9)
    axes.set_xlabel("layer")
    fig.colorbar(image, ax=list(column[:, 0]), label="share of mass", shrink=0.8)
    peak_is_last = 0  # sentences
    for panel_shares in shares.values():
        last_layer = panel_shares.shape[1] - 1
        peak_is_last += int((panel_shares.argmax(axis=1) == last_layer).sum())
    finding = f"{peak_is_last} of {sum(rows)} sentences have their highest share in the last layer"
    return with_caption(fig, finding, f"Share of a sentence's mass by layer; {caption}")


@figure("05_rsim")
def rsim_line(candidate: float, overall: float, *, title: str) -> Figure:
    """RSim as the ratio of two distances on the scale of similarity (KLoB, Figure 3)."""
    fig, axes = plt.subplots(figsize=(6.6, 1.6))
    axes.plot([0, 1], [0, 0], color="0.5", linewidth=1)
    for value, name in ((0.0, "0"), (overall, "Sim_all"), (candidate, "Sim_cand"), (1.0, "1")):
        axes.plot(value, 0, "|", color="black", markersize=10)
        axes.annotate(name, (value, -0.28), ha="center", va="top", fontsize=8)
    for height, end, name in ((0.35, candidate, "Sim_cand - Sim_all"), (0.8, 1.0, "1 - Sim_all")):
        arrow = {"arrowstyle": "<->", "color": PALETTE[0]}
        axes.annotate("", (overall, height), (end, height), arrowprops=arrow)
        length = f"{name} = {end - overall:.2f}"
        axes.annotate(length, ((overall + end) / 2, height + 0.06), ha="center", fontsize=8)
    axes.set_ylim(-0.6, 1.2)
    axes.axis("off")
    numerator = candidate - overall
    denominator = 1 - overall
    ratio = numerator / denominator
    return with_caption(fig, f"RSim = {numerator:.2f} / {denominator:.2f} = {ratio:.2f}", title)


@figure("05_reading", alone=True)
def reading() -> Figure:
    """RSim in one picture, for readers who meet it for the first time."""
    question = "how much more similar are the wordings of one fact than any sentences?"
    return rsim_line(0.75, 0.25, title=f"Made-up numbers: {question}")


@figure("05_evaluation", needs=("similarities", "sentences", "null"), **PUBLISHED)
def criteria_dots(run: Run, *, granularity: str = "neuron", share: float = 0.01) -> Figure:
    """Three criteria of every locator, exact Sim_all; diamonds mark the mean of the null."""
    criteria = criteria_table(
        run.joined("similarities"), run.joined("sentences"), granularity=granularity, share=share
    )
    table = criteria.table
    null = run.joined("null").query(
        "granularity == @granularity and share == @share and shuffled == 'all'"
    )
    names = [name for name in LABELS if name in set(table["locator"])][::-1]
    fig, row = plt.subplots(1, 3, figsize=(7.6, 0.27 * len(names) + 1.3), sharey=True)
    for axes, (criterion, title) in zip(row, TITLES.items(), strict=True):
        estimates = table[table["criterion"] == criterion].set_index("locator").reindex(names)
        marked(axes, range(len(names)), estimates, across=True, fmt="o", ms=4, color=PALETTE[0])
        chance = null[null["subtask"] == criterion].set_index("locator").reindex(names)
        axes.plot(chance["mean"], range(len(names)), "D", color="0.45", mfc="none", ms=4)
        axes.axvline(0, color="0.4", linewidth=0.8)
        axes.set_title(title, loc="left", fontsize=9)
        axes.locator_params(axis="x", nbins=4)
        axes.set_yticks(range(len(names)), [LABELS[name] for name in names])
    data = f"{made_of(run)}; {granularity}s, k = {100 * share:g} %"
    note = f"95 % intervals, {criteria.note}; ◇ what chance gives"
    return with_caption(fig, _similarity_in_words(table, granularity), f"{data}\n{note}")


def _similarity_in_words(table: pd.DataFrame, granularity: str) -> str:
    """The locators' lowest and highest RSim, without controls, from a ``criteria_table``."""
    without_controls = table[~table["locator"].isin(CONTROLS)]
    ranges = without_controls.groupby("criterion")["mean"].agg(["min", "max"])
    wordings = _range_text(ranges.T["consistency"])
    chains = _range_text(ranges.T["relevance"])
    return (
        f"Wordings of a fact share {granularity}s (RSim {wordings}), a fact and its chain {chains}"
    )


def _range_text(ends: pd.Series) -> str:
    return f"{ends['min']:.2f} to {ends['max']:.2f}".replace("-", "−")


def _gains_and_mass(run: Run) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Gains of a run's edits, and located mass by locator, [facts, layers] each."""
    gains = edit_gains(run.joined("edits"))
    return gains, layer_mass(run.joined("layers"), gains.index)


def _edits_in_words(run: Run, gains: pd.DataFrame, mass: dict[str, Any]) -> str:
    """Model, data, number of facts, and locators whose profile is another one's."""
    words = f"{made_with(run)}; ROME at every layer, {len(gains)} facts"
    for twin, original in profile_twins(mass).items():
        words += f"; {LABELS[twin]}: as {LABELS[original]}"
    return words


@figure("05_layers", needs=("edits", "layers"), **PUBLISHED)
def layer_curves(run: Run) -> Figure:
    """Where editing works and where locators see the facts: the two steps of KLoB's Figure 1."""
    gains, mass = _gains_and_mass(run)
    gain = gains.to_numpy()  # [facts, layers]
    twins = profile_twins(mass)
    names = [name for name in LABELS if name in mass and name not in (*CONTROLS, *twins)]
    height = 0.26 * len(names)
    fig, (upper, lower) = plt.subplots(
        2, 1, figsize=(7.2, height + 3.0), sharex=True, height_ratios=[1.6, height + 0.4]
    )
    _draw_gain(upper, gain)
    shares = np.array([mass[name].mean(axis=0) for name in names])  # [locators, layers]
    image = _draw_mass(lower, shares, [LABELS[name] for name in names])
    fig.colorbar(image, ax=lower, label="share of mass", aspect=12)
    data = _edits_in_words(run, gains, mass)
    caption = f"{data}\nMeans over facts, 95 % band; late: the last fifth"
    return with_caption(fig, _late_layers_in_words(gain, shares), caption)


def _draw_gain(axes: Axes, gain: NDArray[np.floating]) -> None:
    """The mean gain at each layer and its band, from [facts, layers]."""
    layers = np.arange(gain.shape[1])
    intervals = [mean_interval(gain_of_layer) for gain_of_layer in gain.T]
    lows = [interval.low for interval in intervals]
    highs = [interval.high for interval in intervals]
    axes.plot(layers, gain.mean(axis=0), color="black")
    axes.fill_between(layers, lows, highs, color="0.8")
    axes.set_ylabel("gain [nats]")
    edits = "Edit of one layer: gain of the new answer at other wordings"
    axes.set_title(f"{edits}, n = {len(gain)} facts", loc="left", fontsize=9)


def _draw_mass(axes: Axes, shares: NDArray[np.floating], labels: Sequence[str]) -> AxesImage:
    """A strip of layers for each labelled locator, from [locators, layers]; the highest is marked."""
    image = axes.imshow(shares, aspect="auto", cmap="cividis", norm=PowerNorm(0.5, vmin=0))
    peaks = shares.argmax(axis=1)
    axes.plot(peaks, range(len(labels)), "o", color="white", markeredgecolor="black", ms=4)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xlabel("layer")
    axes.set_title("Located mass, share of the fact's; ○ the highest", loc="left", fontsize=9)
    axes.grid(visible=False)
    return image


def _late_layers_in_words(gain: NDArray[np.floating], shares: NDArray[np.floating]) -> str:
    """How many locators point to the last fifth of the layers, and what edits there gain less."""
    layer_count = gain.shape[1]
    is_late = np.arange(layer_count) >= 0.8 * layer_count
    pointing_late = int(is_late[shares.argmax(axis=1)].sum())
    gain_early = gain[:, ~is_late].mean(axis=1)  # [facts]
    gain_late = gain[:, is_late].mean(axis=1)
    loss = mean_interval(gain_early - gain_late)
    return (
        f"{pointing_late} of {len(shares)} locators point to late layers; "
        f"edits there gain {loss.mean:.1f} [{loss.low:.1f}, {loss.high:.1f}] nats less"
    )


@figure("05_locality", needs=("edits", "layers"), **PUBLISHED)
def locality_dots(run: Run, *, seed: int = 0) -> Figure:
    """Rank correlation of located mass with the edit's gain: own fact against other facts."""
    gains, mass = _gains_and_mass(run)
    tests = locality_table(gains, mass, seed=seed)
    names = [name for name in LABELS if name in set(tests["locator"])][::-1]
    size = (7.6, 0.3 * len(names) + 1.4)
    fig, (left, right) = plt.subplots(1, 2, figsize=size, sharex=True, sharey=True)
    for index, (pairing, label) in enumerate((("own", "the same fact"), ("other", "other facts"))):
        estimates = tests[tests["pairing"] == pairing].set_index("locator").reindex(names)
        heights = np.arange(len(names)) + 0.14 - 0.28 * index
        look = {"fmt": "os"[index], "ms": 4, "color": PALETTE[index], "label": label}
        marked(left, heights, estimates, across=True, **look)
    differences = tests[tests["pairing"] == "specific"].set_index("locator").reindex(names)
    marked(right, range(len(names)), differences, across=True, fmt="o", ms=4, color="black")
    for axes, words in ((left, "Correlation with the gain of …"), (right, "Same fact − other")):
        axes.axvline(0, color="0.4", linewidth=0.8)
        axes.set_title(words, loc="left", fontsize=9)
    left.set_yticks(range(len(names)), [LABELS[name] for name in names])
    left.legend(loc="upper right", fontsize=7)
    note = "Spearman correlation of located mass with gain over layers: mean over facts, 95 % intervals"
    caption = f"{_edits_in_words(run, gains, mass)}\n{note}"
    return with_caption(fig, _locality_in_words(differences), caption)


def _locality_in_words(differences: pd.DataFrame) -> str:
    """How many locators, without controls, predict a fact's own gains better, from its *specific* tests."""
    without_controls = differences.drop(list(CONTROLS), errors="ignore")
    is_better = (without_controls["low"] > 0) & (without_controls["p_value"] < 0.05)
    locators = f"{int(is_better.sum())} of {len(without_controls)} locators"
    return f"{locators} predict a fact's own gains better than others'"
