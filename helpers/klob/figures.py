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

from helpers.klob.metrics import UnitIndices, edit_gains, layer_mass, locality_table, profile_twins
from helpers.klob.tables import LABELS, criteria_table, made_of, made_with
from helpers.results.archive import Run
from helpers.results.figure import Option, figure
from helpers.results.statistics import mean_interval
from helpers.results.style import (
    AT_RIGHT,
    PALETTE,
    draw_intervals,
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
def neuron_counts(sets: Sequence[UnitIndices], shape: tuple[int, int], *, title: str) -> Figure:
    """Located neurons by layer and by how many wordings of one fact share them.

    ``shape`` is (layers, neurons).
    """
    share_counts = np.zeros(shape, dtype=int)  # of the wordings that share a neuron
    for units in sets:
        share_counts.flat[units] += 1
    expected = _expected_in_words(share_counts.size, len(sets), len(sets[0]))
    fig, axes = plt.subplots(figsize=(6.6, 3.0))
    _draw_neuron_counts(axes, share_counts, len(sets), expected)
    shared_by_all = f"{(share_counts == len(sets)).sum()} of {len(sets[0])} located neurons"
    finding = f"All {len(sets)} wordings share {shared_by_all}; chance gives {expected[-1]}"
    caption = f"{title}\nChance: as many neurons, at random for each wording"
    return with_caption(fig, finding, caption)


def _expected_in_words(neuron_count: int, wording_count: int, set_size: int) -> list[str]:
    """How many neurons 0, 1, … wordings share by chance, if each locates as many at random."""
    located_share = set_size / neuron_count
    wording_counts = range(wording_count + 1)
    expected_counts = neuron_count * stats.binom.pmf(wording_counts, wording_count, located_share)
    return ["less than 1" if count < 1 else f"{count:,.0f}" for count in expected_counts]


def _draw_neuron_counts(
    axes: Axes, share_counts: NDArray[np.int_], wording_count: int, expected: Sequence[str]
) -> None:
    """A bar a layer, divided by how many wordings share a neuron: those of all wordings at the bottom."""
    layer_count = len(share_counts)
    bottoms = np.zeros(layer_count, dtype=int)
    colours = ("0.8", *PALETTE)
    for count in range(wording_count, 0, -1):
        heights = (share_counts == count).sum(axis=1)  # [layers]
        label = f"in {count} of {wording_count}: {heights.sum()}\n(chance: {expected[count]})"
        colour = colours[count - 1]
        axes.bar(range(layer_count), heights, bottom=bottoms, color=colour, label=label)
        bottoms += heights
    axes.set(xlabel="layer", ylabel="located neurons")
    axes.legend(title="wordings", labelspacing=1, **AT_RIGHT)


@figure("05_criteria")
def layer_strips(
    panels: Mapping[str, tuple[Sequence[str], NDArray[np.floating]]], *, caption: str
) -> Figure:
    """Where a locator's mass lies, for examples of each criterion: a strip of layers per sentence.

    ``panels`` have for each criterion the sentences and their pooled scores [sentences, layers].
    """
    sentence_counts = [len(sentences) for sentences, _ in panels.values()]
    shares = {
        criterion: mass / mass.sum(axis=1, keepdims=True) for criterion, (_, mass) in panels.items()
    }  # [sentences, layers] each
    size = (7.6, 0.24 * sum(sentence_counts) + 1.5)
    fig, column = plt.subplots(
        len(panels), 1, figsize=size, height_ratios=sentence_counts, squeeze=False, sharex=True
    )
    all_axes = list(column[:, 0])
    highest = max(shares_of_panel.max() for shares_of_panel in shares.values())
    for axes, (criterion, (sentences, _)) in zip(all_axes, panels.items(), strict=True):
        image = _draw_strips(axes, sentences, shares[criterion], highest)
        axes.set_title(criterion, loc="left", fontsize=9)
    all_axes[-1].set_xlabel("layer")
    fig.colorbar(image, ax=all_axes, label="share of mass", shrink=0.8)
    small_print = f"Share of a sentence's mass by layer; {caption}"
    return with_caption(fig, _peaks_in_words([*shares.values()]), small_print)


def _draw_strips(
    axes: Axes, sentences: Sequence[str], shares: NDArray[np.floating], highest: float
) -> AxesImage:
    """A strip of layers for each sentence, from [sentences, layers]; ``highest`` has the last colour."""
    image = axes.imshow(shares, aspect="auto", cmap="cividis", vmin=0, vmax=highest)
    labels = list(map(without_mathematics, sentences))
    axes.set_yticks(range(len(sentences)), labels, fontsize=7)
    axes.grid(visible=False)
    return image


def _peaks_in_words(shares: Sequence[NDArray[np.floating]]) -> str:
    """How many sentences have their highest share in the last layer, from [sentences, layers] each."""
    sentence_count = 0
    peaks_in_last = 0
    for shares_of_panel in shares:
        last_layer = shares_of_panel.shape[1] - 1
        sentence_count += len(shares_of_panel)
        peaks_in_last += int((shares_of_panel.argmax(axis=1) == last_layer).sum())
    return (
        f"{peaks_in_last} of {sentence_count} sentences have their highest share in the last layer"
    )


@figure("05_rsim")
def rsim_line(candidate: float, overall: float, *, title: str) -> Figure:
    """RSim as the ratio of two distances on the scale of similarity (KLoB, Figure 3)."""
    numerator = candidate - overall
    denominator = 1 - overall
    finding = f"RSim = {numerator:.2f} / {denominator:.2f} = {numerator / denominator:.2f}"
    fig, axes = plt.subplots(figsize=(6.6, 1.6))
    axes.plot([0, 1], [0, 0], color="0.5", linewidth=1)
    _mark_similarity(axes, 0.0, "0")
    _mark_similarity(axes, overall, "Sim_all")
    _mark_similarity(axes, candidate, "Sim_cand")
    _mark_similarity(axes, 1.0, "1")
    _draw_distance(axes, 0.35, overall, candidate, "Sim_cand - Sim_all")
    _draw_distance(axes, 0.8, overall, 1.0, "1 - Sim_all")
    axes.set_ylim(-0.6, 1.2)
    axes.axis("off")
    return with_caption(fig, finding, title)


def _mark_similarity(axes: Axes, similarity: float, name: str) -> None:
    axes.plot(similarity, 0, "|", color="black", markersize=10)
    axes.annotate(name, (similarity, -0.28), ha="center", va="top", fontsize=8)


def _draw_distance(axes: Axes, height: float, start: float, end: float, name: str) -> None:
    """An arrow from one similarity to another, above the scale, and its length."""
    arrow = {"arrowstyle": "<->", "color": PALETTE[0]}
    axes.annotate("", (start, height), (end, height), arrowprops=arrow)
    length_words = f"{name} = {end - start:.2f}"
    middle = (start + end) / 2
    axes.annotate(length_words, (middle, height + 0.06), ha="center", fontsize=8)


@figure("05_reading", alone=True)
def reading() -> Figure:
    """RSim in one picture, for readers who meet it for the first time."""
    question = "how much more similar are the wordings of one fact than any sentences?"
    return rsim_line(0.75, 0.25, title=f"Made-up numbers: {question}")


def _shares_of_located(run: Run) -> list[float]:
    """The shares of the neurons, k, that a run counts as located."""
    similarities = run.joined("similarities")
    of_neurons = similarities.loc[similarities["granularity"] == "neuron", "share"]
    return [float(share) for share in sorted(of_neurons.unique())]


@figure(
    "05_evaluation",
    needs=("similarities", "sentences", "null"),
    options={"k": Option("share", _shares_of_located)},
    **PUBLISHED,
)
def criteria_dots(run: Run, *, granularity: str = "neuron", share: float = 0.01) -> Figure:
    """Three criteria of every locator, exact Sim_all; diamonds mark the mean of the null."""
    criteria = criteria_table(
        run.joined("similarities"), run.joined("sentences"), granularity=granularity, share=share
    )
    table = criteria.table
    null_means = run.joined("null").query(
        "granularity == @granularity and share == @share and shuffled == 'all'"
    )
    locators = [locator for locator in LABELS if locator in set(table["locator"])][::-1]
    heights = range(len(locators))
    fig, panels = plt.subplots(1, 3, figsize=(7.6, 0.27 * len(locators) + 1.3), sharey=True)
    for axes, (criterion, title) in zip(panels, TITLES.items(), strict=True):
        estimates = table[table["criterion"] == criterion].set_index("locator").reindex(locators)
        draw_intervals(axes, heights, estimates, across=True, fmt="o", ms=4, color=PALETTE[0])
        nulls = null_means[null_means["subtask"] == criterion]
        null_of_locator = nulls.set_index("locator")["mean"].reindex(locators)
        axes.plot(null_of_locator, heights, "D", color="0.45", mfc="none", ms=4)
        axes.axvline(0, color="0.4", linewidth=0.8)
        axes.set_title(title, loc="left", fontsize=9)
        axes.locator_params(axis="x", nbins=4)
        axes.set_yticks(heights, [LABELS[locator] for locator in locators])
    run_words = f"{made_of(run)}; {granularity}s, k = {100 * share:g} %"
    note = f"95 % intervals, {criteria.note}; ◇ what chance gives"
    return with_caption(fig, _similarity_in_words(table, granularity), f"{run_words}\n{note}")


def _similarity_in_words(table: pd.DataFrame, granularity: str) -> str:
    """The locators' lowest and highest RSim, without controls, from a ``criteria_table``."""
    without_controls = table[~table["locator"].isin(CONTROLS)]
    range_of_criterion = without_controls.groupby("criterion")["mean"].agg(["min", "max"])
    range_of_wordings = _range_text(range_of_criterion.T["consistency"])
    range_of_chains = _range_text(range_of_criterion.T["relevance"])
    wordings = f"Wordings of a fact share {granularity}s (RSim {range_of_wordings})"
    return f"{wordings}, a fact and its chain {range_of_chains}"


def _range_text(ends: pd.Series) -> str:
    return f"{ends['min']:.2f} to {ends['max']:.2f}".replace("-", "−")


def _gains_and_mass(run: Run) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Gains of a run's edits, and located mass by locator, [facts, layers] each."""
    gains = edit_gains(run.joined("edits"))
    return gains, layer_mass(run.joined("layers"), gains.index)


def _edits_in_words(run: Run, gains: pd.DataFrame, mass: dict[str, Any]) -> str:
    """Model, data, number of facts, and locators whose profile is another one's."""
    edits_words = f"{made_with(run)}; ROME at every layer, {len(gains)} facts"
    for twin, original in profile_twins(mass).items():
        edits_words += f"; {LABELS[twin]}: as {LABELS[original]}"
    return edits_words


@figure("05_layers", needs=("edits", "layers"), **PUBLISHED)
def layer_curves(run: Run) -> Figure:
    """Where editing works and where locators see the facts: the two steps of KLoB's Figure 1."""
    gains, mass = _gains_and_mass(run)
    gain_of_facts = gains.to_numpy()  # [facts, layers]
    twins = profile_twins(mass)
    locators = [
        locator for locator in LABELS if locator in mass and locator not in (*CONTROLS, *twins)
    ]
    height = 0.26 * len(locators)
    fig, (upper, lower) = plt.subplots(
        2, 1, figsize=(7.2, height + 3.0), sharex=True, height_ratios=[1.6, height + 0.4]
    )
    _draw_gain(upper, gain_of_facts)
    mean_shares = np.array([mass[name].mean(axis=0) for name in locators])  # [locators, layers]
    image = _draw_mass(lower, mean_shares, [LABELS[locator] for locator in locators])
    fig.colorbar(image, ax=lower, label="share of mass", aspect=12)
    run_words = _edits_in_words(run, gains, mass)
    caption = f"{run_words}\nMeans over facts, 95 % band; late: the last fifth"
    return with_caption(fig, _late_layers_in_words(gain_of_facts, mean_shares), caption)


def _draw_gain(axes: Axes, gain_of_facts: NDArray[np.floating]) -> None:
    """The mean gain at each layer and its band, from [facts, layers]."""
    layers = np.arange(gain_of_facts.shape[1])
    intervals = [mean_interval(gain_of_layer) for gain_of_layer in gain_of_facts.T]
    lows = [interval.low for interval in intervals]
    highs = [interval.high for interval in intervals]
    axes.plot(layers, gain_of_facts.mean(axis=0), color="black")
    axes.fill_between(layers, lows, highs, color="0.8")
    axes.set_ylabel("gain [nats]")
    edit_words = "Edit of one layer: gain of the new answer at other wordings"
    axes.set_title(f"{edit_words}, n = {len(gain_of_facts)} facts", loc="left", fontsize=9)


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
    locators = [locator for locator in LABELS if locator in set(tests["locator"])][::-1]
    size = (7.6, 0.3 * len(locators) + 1.4)
    fig, (left, right) = plt.subplots(1, 2, figsize=size, sharex=True, sharey=True)
    by_pairing = {
        str(pairing): of_pairing.set_index("locator").reindex(locators)
        for pairing, of_pairing in tests.groupby("pairing")
    }
    heights = np.arange(len(locators))
    own_style = {"fmt": "o", "ms": 4, "color": PALETTE[0], "label": "the same fact"}
    other_style = {"fmt": "s", "ms": 4, "color": PALETTE[1], "label": "other facts"}
    difference_style = {"fmt": "o", "ms": 4, "color": "black"}
    draw_intervals(left, heights + 0.14, by_pairing["own"], across=True, **own_style)
    draw_intervals(left, heights - 0.14, by_pairing["other"], across=True, **other_style)
    differences = by_pairing["specific"]
    draw_intervals(right, heights, differences, across=True, **difference_style)
    for axes in (left, right):
        axes.axvline(0, color="0.4", linewidth=0.8)
    left.set_title("Correlation with the gain of …", loc="left", fontsize=9)
    right.set_title("Same fact − other", loc="left", fontsize=9)
    left.set_yticks(range(len(locators)), [LABELS[locator] for locator in locators])
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
