"""KLoB's figures: located neurons, the three criteria, evaluations, and where editing works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
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
    drawn, axes = plt.subplots(figsize=(6.6, 3.0))
    shared = np.zeros(shape, dtype=int)
    below = np.zeros(shape[0], dtype=int)
    for units in sets:
        shared.flat[units] += 1
    number = len(sets)
    chance = shared.size * stats.binom.pmf(range(number + 1), number, len(sets[0]) / shared.size)
    colours = "0.8", *PALETTE
    expected = ["less than 1" if n < 1 else f"{n:,.0f}" for n in chance]
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
        drawn, finding, f"{title}\nChance: as many neurons, at random for each wording"
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
    drawn, column = plt.subplots(
        len(panels), 1, figsize=size, height_ratios=rows, squeeze=False, sharex=True
    )
    shares = {title: m / m.sum(axis=1, keepdims=True) for title, (_, m) in panels.items()}
    highest = max(part.max() for part in shares.values())
    for axes, (title, (sentences, _)) in zip(column[:, 0], panels.items(), strict=True):
        image = axes.imshow(shares[title], aspect="auto", cmap="cividis", vmin=0, vmax=highest)
        axes.set_yticks(
            range(len(sentences)), list(map(without_mathematics, sentences)), fontsize=7
        )
        axes.grid(visible=False)
        axes.set_title(title, loc="left", fontsize=9)
    axes.set_xlabel("layer")
    drawn.colorbar(image, ax=list(column[:, 0]), label="share of mass", shrink=0.8)
    last = sum(int((part.argmax(axis=1) == part.shape[1] - 1).sum()) for part in shares.values())
    finding = f"{last} of {sum(rows)} sentences have their highest share in the last layer"
    return with_caption(drawn, finding, f"Share of a sentence's mass by layer; {caption}")


@figure("05_rsim")
def rsim_line(candidate: float, overall: float, *, title: str) -> Figure:
    """RSim as the ratio of two distances on the scale of similarity (KLoB, Figure 3)."""
    drawn, axes = plt.subplots(figsize=(6.6, 1.6))
    axes.plot([0, 1], [0, 0], color="0.5", linewidth=1)
    for place, name in ((0.0, "0"), (overall, "Sim_all"), (candidate, "Sim_cand"), (1.0, "1")):
        axes.plot(place, 0, "|", color="black", markersize=10)
        axes.annotate(name, (place, -0.28), ha="center", va="top", fontsize=8)
    for height, end, name in ((0.35, candidate, "Sim_cand - Sim_all"), (0.8, 1.0, "1 - Sim_all")):
        arrow = {"arrowstyle": "<->", "color": PALETTE[0]}
        axes.annotate("", (overall, height), (end, height), arrowprops=arrow)
        length = f"{name} = {end - overall:.2f}"
        axes.annotate(length, ((overall + end) / 2, height + 0.06), ha="center", fontsize=8)
    near = candidate - overall
    whole = 1 - overall
    axes.set_ylim(-0.6, 1.2)
    axes.axis("off")
    return with_caption(drawn, f"RSim = {near:.2f} / {whole:.2f} = {near / whole:.2f}", title)


@figure("05_reading", alone=True)
def reading() -> Figure:
    """RSim in one picture, for readers who meet it for the first time."""
    asked = "how much more similar are the wordings of one fact than any sentences?"
    return rsim_line(0.75, 0.25, title=f"Made-up numbers: {asked}")


@figure("05_evaluation", needs=("similarities", "sentences", "null"), **PUBLISHED)
def criteria_dots(run: Run, *, granularity: str = "neuron", share: float = 0.01) -> Figure:
    """Three criteria of every locator, exact Sim_all; diamonds mark the mean of the null."""
    how: dict[str, Any] = {"granularity": granularity, "share": share}
    table = criteria_table(run.joined("similarities"), run.joined("sentences"), **how)
    null = run.joined("null").query(
        "granularity == @granularity and share == @share and shuffled == 'all'"
    )
    names = [name for name in LABELS if name in set(table["locator"])][::-1]
    drawn, row = plt.subplots(1, 3, figsize=(7.6, 0.27 * len(names) + 1.3), sharey=True)
    for axes, (criterion, title) in zip(row, TITLES.items(), strict=True):
        part = table[table["criterion"] == criterion].set_index("locator").reindex(names)
        marked(axes, range(len(names)), part, across=True, fmt="o", ms=4, color=PALETTE[0])
        chance = null[null["subtask"] == criterion].set_index("locator").reindex(names)
        axes.plot(chance["mean"], range(len(names)), "D", color="0.45", mfc="none", ms=4)
        axes.axvline(0, color="0.4", linewidth=0.8)
        axes.set_title(title, loc="left", fontsize=9)
        axes.locator_params(axis="x", nbins=4)
        axes.set_yticks(range(len(names)), [LABELS[name] for name in names])
    real = table[~table["locator"].isin(CONTROLS)].groupby("criterion")["mean"]
    ends = real.agg(["min", "max"]).to_numpy()[:2]
    wordings, chains = (f"{low:.2f} to {high:.2f}".replace("-", "−") for low, high in ends)
    shared = f"share {granularity}s (RSim {wordings}), a fact and its chain {chains}"
    of = f"{made_of(run)}; {granularity}s, k = {100 * share:g} %"
    note = f"95 % intervals, {table.attrs['below']}; ◇ what chance gives"
    return with_caption(drawn, f"Wordings of a fact {shared}", f"{of}\n{note}")


def _edited(run: Run) -> tuple[pd.DataFrame, dict[str, Any], str]:
    """Gains of a run's edits, located mass, and what they are of."""
    gains = edit_gains(run.joined("edits"))
    mass = layer_mass(run.joined("layers"), gains.index)
    twins = "".join(f"; {LABELS[t]}: as {LABELS[of]}" for t, of in profile_twins(mass).items())
    return gains, mass, f"{made_with(run)}; ROME at every layer, {len(gains)} facts{twins}"


@figure("05_layers", needs=("edits", "layers"), **PUBLISHED)
def layer_curves(run: Run) -> Figure:
    """Where editing works and where locators see the facts: the two steps of KLoB's Figure 1."""
    gains, mass, of = _edited(run)
    outcome = gains.to_numpy()
    twins = profile_twins(mass)
    names = [name for name in LABELS if name in mass and name not in (*CONTROLS, *twins)]
    height = 0.26 * len(names)
    drawn, (upper, lower) = plt.subplots(
        2, 1, figsize=(7.2, height + 3.0), sharex=True, height_ratios=[1.6, height + 0.4]
    )
    layers = np.arange(outcome.shape[1])
    band = [mean_interval(each) for each in outcome.T]
    upper.plot(layers, outcome.mean(axis=0), color="black")
    upper.fill_between(layers, [b.low for b in band], [b.high for b in band], color="0.8")
    upper.set_ylabel("gain [nats]")
    edits = "Edit of one layer: gain of the new answer at other wordings"
    upper.set_title(f"{edits}, n = {len(outcome)} facts", loc="left", fontsize=9)
    shares = np.array([mass[name].mean(axis=0) for name in names])
    image = lower.imshow(shares, aspect="auto", cmap="cividis", norm=PowerNorm(0.5, vmin=0))
    peaks = shares.argmax(axis=1)
    lower.plot(peaks, range(len(names)), "o", color="white", markeredgecolor="black", ms=4)
    lower.set_yticks(range(len(names)), [LABELS[name] for name in names])
    lower.set_xlabel("layer")
    lower.set_title("Located mass, share of the fact's; ○ the highest", loc="left", fontsize=9)
    lower.grid(visible=False)
    drawn.colorbar(image, ax=lower, label="share of mass", aspect=12)
    late = layers >= 0.8 * len(layers)
    less = mean_interval(outcome[:, ~late].mean(axis=1) - outcome[:, late].mean(axis=1))
    finding = (
        f"{int(late[peaks].sum())} of {len(names)} locators point to late layers; "
        f"edits there gain {less.mean:.1f} [{less.low:.1f}, {less.high:.1f}] nats less"
    )
    return with_caption(drawn, finding, f"{of}\nMeans over facts, 95 % band; late: the last fifth")


@figure("05_locality", needs=("edits", "layers"), **PUBLISHED)
def locality_dots(run: Run, *, seed: int = 0) -> Figure:
    """Rank correlation of located mass with the edit's gain: own fact against other facts."""
    gains, mass, of = _edited(run)
    tests = locality_table(gains, mass, seed=seed)
    names = [name for name in LABELS if name in set(tests["locator"])][::-1]
    size = (7.6, 0.3 * len(names) + 1.4)
    drawn, (left, right) = plt.subplots(1, 2, figsize=size, sharex=True, sharey=True)
    for index, (pairing, label) in enumerate((("own", "the same fact"), ("other", "other facts"))):
        part = tests[tests["pairing"] == pairing].set_index("locator").reindex(names)
        places = np.arange(len(names)) + 0.14 - 0.28 * index
        look = {"fmt": "os"[index], "ms": 4, "color": PALETTE[index], "label": label}
        marked(left, places, part, across=True, **look)
    added = tests[tests["pairing"] == "specific"].set_index("locator").reindex(names)
    marked(right, range(len(names)), added, across=True, fmt="o", ms=4, color="black")
    for axes, words in ((left, "Correlation with the gain of …"), (right, "Same fact − other")):
        axes.axvline(0, color="0.4", linewidth=0.8)
        axes.set_title(words, loc="left", fontsize=9)
    left.set_yticks(range(len(names)), [LABELS[name] for name in names])
    left.legend(loc="upper right", fontsize=7)
    real = added.drop(list(CONTROLS), errors="ignore")
    better = int(((real["low"] > 0) & (real["p_value"] < 0.05)).sum())
    finding = f"{better} of {len(real)} locators predict a fact's own gains better than others'"
    note = "Spearman correlation of located mass with gain over layers: mean over facts, 95 % intervals"
    return with_caption(drawn, finding, f"{of}\n{note}")
