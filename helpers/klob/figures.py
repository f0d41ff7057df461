"""KLoB's figures: located neurons, the three criteria, evaluations, and where editing works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray
from scipy import stats

from helpers.klob.metrics import (
    BEST_FIXED,
    UnitIndices,
    edit_gains,
    layer_mass,
)
from helpers.klob.regret import RULE_LABELS, RuleRegret, better_locators, rule_regrets
from helpers.klob.tables import LABELS, READ_THE_SUBJECT, criteria_table
from helpers.results.archive import Run, runs_by_model
from helpers.results.figure import Option, figure
from helpers.results.statistics import mean_interval
from helpers.results.style import (
    AT_RIGHT,
    CONDITION_COLOURS,
    PALETTE,
    condition_look,
    draw_intervals,
    model_look,
    with_caption,
    without_mathematics,
)
from helpers.results.text import footer

if TYPE_CHECKING:
    from helpers.locating.attribution import CausalTrace  # imports torch

TITLES = {
    "consistency": "Wordings of one fact:\nsimilarity (RSim)",
    "relevance": "A fact and its chain:\nsimilarity (RSim)",
    "unbiasedness": "Flatter scores on\nrandom words (RSD)",
}
CONTROLS = ("random", "constant")
_SYMBOLS = {"consistency": "RSim", "relevance": "RSim", "unbiasedness": "RSD"}
_ITEMS = {"consistency": "facts", "relevance": "chains", "unbiasedness": "random inputs"}
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
    shared_count = (share_counts == len(sets)).sum()
    finding = (
        f"Of {len(sets[0])} neurons located for each wording all {len(sets)} share {shared_count}; chance"
        f" gives {expected[-1]}"
    )
    located_count = (share_counts > 0).sum()
    caption = (
        f"{title}; the bars add to {located_count:,}, the neurons of any wording; chance: as many at random"
        " for each wording"
    )
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


@figure("05_trace")
def trace_map(
    tokens: Sequence[str], subject: tuple[int, int], trace: CausalTrace, answer: str, *, title: str
) -> Figure:
    """Causal trace of one fact: the answer's probability where one state is restored (ROME, Figure 1e).

    ``tokens`` are the sentence's, ``subject`` the first and one past the last of its subject's.
    """
    restored = np.asarray(trace.restored)  # [tokens, layers]
    start, end = subject
    fig, axes = plt.subplots(figsize=(7.2, 0.3 * len(tokens) + 1.5))
    image = axes.imshow(restored, aspect="auto", cmap="cividis", vmin=0, vmax=trace.clean)
    labels = [
        f"{without_mathematics(token.strip())}{'*' if start <= index < end else ''}"
        for index, token in enumerate(tokens)
    ]
    axes.set_yticks(range(len(tokens)), labels)
    axes.set_xlabel(
        "layer at whose entry the token's state is restored (to its value without noise)",
        fontsize=8,
    )
    axes.grid(visible=False)
    fig.colorbar(image, ax=axes, label=f"P({answer})", aspect=14)
    caption = (
        f"{title}; * subject, whose embeddings have noise: P is {trace.clean:.2f} without it,"
        f" {trace.noised:.2f} with it"
    )
    return with_caption(fig, _trace_in_words(labels, subject, trace, answer), caption)


def _trace_in_words(
    labels: Sequence[str], subject: tuple[int, int], trace: CausalTrace, answer: str
) -> str:
    """Where in the subject the answer returns most, and from which layer on the last token has it."""
    restored = np.asarray(trace.restored)
    start, end = subject
    token = start + int(restored[start:end].max(axis=1).argmax())
    layer = int(restored[token].argmax())
    has_answer = restored[-1] >= trace.clean / 2
    words = f"{answer} returns at “{labels[token].rstrip('*')}” (most at layer {layer})"
    if has_answer.any():
        return f"{words}, and at the last token from layer {int(has_answer.argmax())} on"
    return words


def rsim_line(candidate: float, overall: float, *, title: str) -> Figure:
    """RSim as the ratio of two distances on the scale of similarity (KLoB, Figure 3)."""
    numerator = candidate - overall
    denominator = 1 - overall
    finding = (
        f"Relative similarity RSim = {numerator:.2f} / {denominator:.2f} ="
        f" {numerator / denominator:.2f}: 0 is no more than any sentences, 1 the same units"
    )
    fig, axes = plt.subplots(figsize=(6.6, 1.8))
    axes.plot([0, 1], [0, 0], color="0.5", linewidth=1)
    _mark_similarity(axes, 0.0, "0")
    _mark_similarity(axes, overall, "any sentences\n(Sim_all)")
    _mark_similarity(axes, candidate, "wordings of one fact\n(Sim_cand)")
    _mark_similarity(axes, 1.0, "1")
    _draw_distance(axes, 0.35, overall, candidate, "Sim_cand − Sim_all")
    _draw_distance(axes, 0.8, overall, 1.0, "1 − Sim_all")
    axes.set_ylim(-0.8, 1.3)
    axes.axis("off")
    return with_caption(fig, finding, title)


def _mark_similarity(axes: Axes, similarity: float, name: str) -> None:
    axes.plot(similarity, 0, "|", color="black", markersize=10)
    axes.annotate(name, (similarity, -0.28), ha="center", va="top", fontsize=8)


def _draw_distance(axes: Axes, height: float, start: float, end: float, name: str) -> None:
    """An arrow from one similarity to another, above the scale, and its length."""
    arrow = {"arrowstyle": "<->", "color": CONDITION_COLOURS[0]}
    axes.annotate("", (start, height), (end, height), arrowprops=arrow)
    length_words = f"{name} = {end - start:.2f}"
    middle = (start + end) / 2
    axes.annotate(length_words, (middle, height + 0.12), ha="center", fontsize=8)


@figure("05_reading", alone=True)
def reading() -> Figure:
    """RSim in one picture, for readers who meet it for the first time (KLoB, Figure 3)."""
    question = "how much more similar are the wordings of one fact than any sentences?"
    return rsim_line(0.75, 0.25, title=f"Made-up numbers: {question}")


@figure("05_examples", alone=True)
def subtask_examples() -> Figure:
    """An example of each subtask, with what a good locator does on it (KLoB, Figure 2).

    The first packaged example whose fact begins a chain of KLoB-r.
    """
    from helpers.klob.examples import read_examples  # imports torch

    related = next(iter(read_examples("relevance").values()))
    random_words = next(iter(read_examples("unbiasedness").values()))
    subject, _, answer, _, last_answer = related.chain
    panels_of_subtasks: dict[str, tuple[str, list[str]]] = {
        "consistency": (
            "one fact in three wordings: the same units",
            [f"{prompt.removesuffix(' _')} …  {answer}" for prompt in related.prompts],
        ),
        "relevance": (
            f"a fact, and a chain that needs it ({subject} → {answer} → {last_answer}): similar units",
            [
                f"{related.prompts[0].removesuffix(' _')} …  {answer}",
                f"{related.chain_prompt.removesuffix(' _')} …  {last_answer}",
            ],
        ),
        "unbiasedness": ("no fact at all: flat scores", [random_words.removesuffix(" _") + " …"]),
    }
    line_count = sum(len(lines) for _, lines in panels_of_subtasks.values())
    fig, axes = plt.subplots(figsize=(7.2, 0.26 * (line_count + 6)))
    row = 0.0
    colour = CONDITION_COLOURS[0]
    for subtask, (words, lines) in panels_of_subtasks.items():
        axes.text(0.0, -row, f"{subtask.capitalize()}: {words}", fontsize=9, color=colour)
        for number, example_line in enumerate(lines, start=1):
            axes.text(0.02, -row - number, without_mathematics(example_line), fontsize=8)
        axes.plot([0.0, 0.0], [-row - 0.5, -row - len(lines) - 0.3], color=colour, linewidth=2)
        row += len(lines) + 1.4
    axes.set(xlim=(-0.01, 1.0), ylim=(-row + 0.6, 0.9))
    axes.axis("off")
    finding = "Three questions to a locator: the same fact, a related one, and none"
    return with_caption(
        fig, finding, "packaged examples (klob-mini); …: the answer that is asked for"
    )


def _shares_of_located(run: Run) -> list[float]:
    """The shares of the neurons, k, that a run counts as located."""
    similarities = run.joined("similarities")
    of_neurons = similarities.loc[similarities["granularity"] == "neuron", "share"]
    return [float(share) for share in sorted(of_neurons.unique())]


@figure(
    "05_evaluation",
    needs=("similarities", "sentences", "null"),
    options={"k": Option("share", _shares_of_located)},
    together=True,
    **PUBLISHED,
)
def criteria_dots(
    runs: Sequence[Run], *, granularity: str = "neuron", share: float = 0.01
) -> Figure:
    """Three criteria of every locator, exact Sim_all, a colour a model; hollow marks: chance."""
    by_model = runs_by_model(runs)
    criteria = {}
    null_means = {}
    for model, (run, *_) in by_model.items():
        kinds = run.joined("similarities"), run.joined("sentences")
        shown = criteria_table(*kinds, granularity=granularity, share=share)
        criteria[model] = shown.table
        null_means[model] = run.joined("null").query(
            "granularity == @granularity and share == @share and shuffled == 'all'"
        )
    all_rows = pd.concat(criteria.values())
    measured = set(all_rows["locator"]) - set(CONTROLS)
    locators = [locator for locator in LABELS if locator in measured][::-1]
    fig, panels = plt.subplots(1, 3, figsize=(7.9, 0.5 * len(locators) + 1.4), sharey=True)
    for axes, (criterion, title) in zip(panels, TITLES.items(), strict=True):
        for model_index, (model, table) in enumerate(criteria.items()):
            estimates = table[table["criterion"] == criterion].set_index("locator")
            nulls = null_means[model][null_means[model]["subtask"] == criterion]
            chance = nulls.set_index("locator")["mean"].reindex(locators)
            heights = np.arange(len(locators)) - 0.25 * (model_index - (len(criteria) - 1) / 2)
            look = model_look(model_index)
            dots = {"ms": 4, "label": model, **look}
            draw_intervals(axes, heights, estimates.reindex(locators), across=True, **dots)
            axes.plot(chance, heights, look["fmt"], mfc="white", ms=4, color=look["color"])
        axes.axvline(0, color="0.4", linewidth=0.8)
        axes.set_title(title, loc="left", fontsize=9)
        axes.set_xlabel(f"{_SYMBOLS[criterion]}; right is better", fontsize=8)
        axes.locator_params(axis="x", nbins=4)
        for row in range(0, len(locators), 2):
            axes.axhspan(row - 0.5, row + 0.5, color="0.95", zorder=0)
        axes.grid(axis="y", visible=False)
        axes.set_yticks(range(len(locators)), [LABELS[locator] for locator in locators])
        axes.set_ylim(-0.5, len(locators) - 0.5)
    if len(criteria) > 1:
        fig.legend(*panels[0].get_legend_handles_labels(), loc="outside right center")
    limits = [axes.get_xlim() for axes in panels[:2]]  # both of RSim
    for axes in panels[:2]:
        axes.set_xlim(min(low for low, _ in limits) - 0.02, max(high for _, high in limits))
    of_locators = all_rows[all_rows["locator"].isin(locators)].groupby("criterion")["n"]
    counts = ", ".join(
        f"{of_locators.min()[criterion]} to {of_locators.max()[criterion]:,} {items}"
        for criterion, items in _ITEMS.items()
    )
    notes = (
        f"located: the top {100 * share:g} % of the {granularity}s",
        "95 % intervals, by relation where there are eight",
        "hollow: sentences dealt to facts at random",
        "no mark: not measured",
    )
    shown_runs = [run for run, *_ in by_model.values()]
    datasets = dict.fromkeys(str(run.about.source["dataset"]) for run in shown_runs)
    data = f"{' or '.join(datasets)}, n = {counts}"
    caption = footer(shown_runs, data, *notes)
    return with_caption(fig, _shared_units_in_words(all_rows, granularity, null_means), caption)


def _shared_units_in_words(
    table: pd.DataFrame, granularity: str, null_means: Mapping[str, pd.DataFrame]
) -> str:
    """The locators' lowest and highest RSim, without controls, from a ``criteria_table``, and chance."""
    without_controls = table[~table["locator"].isin(CONTROLS)]
    range_of_criterion = without_controls.groupby("criterion")["mean"].agg(["min", "max"])
    range_of_wordings = _range_text(range_of_criterion.T["consistency"])
    range_of_chains = _range_text(range_of_criterion.T["relevance"])
    chance = pd.concat(null_means.values()).query("subtask != 'unbiasedness'")["mean"]
    range_of_chance = _range_text(chance.agg(["min", "max"]))
    return (
        f"Locators find similar {granularity}s for wordings of one fact (RSim {range_of_wordings}), less"
        f" similar ones for a fact and its chain ({range_of_chains}); chance {range_of_chance}"
    )


def _range_text(ends: pd.Series) -> str:
    return f"{ends['min']:.2f} to {ends['max']:.2f}".replace("-", "−")


def _gains_and_mass(run: Run) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Gains of a run's edits, and located mass by locator, [facts, layers] each."""
    gains = edit_gains(run.joined("edits"))
    return gains, layer_mass(run.joined("layers"), gains.index)


@figure("05_layers", needs=("edits", "layers"), **PUBLISHED)
def layer_curves(run: Run) -> Figure:
    """Where editing works, and where the locators that read the edited token see the facts.

    The last layer is omitted: an edit there cannot reach the token where the answer is predicted.
    """
    gains, mass = _gains_and_mass(run)
    gain_of_facts = gains.to_numpy()[:, :-1]  # [facts, layers]
    locators = [name for name in LABELS if name in mass and name in READ_THE_SUBJECT]
    height = 0.3 * len(locators)
    fig, (upper, lower) = plt.subplots(
        2, 1, figsize=(7.2, height + 3.0), sharex=True, height_ratios=[1.6, height + 0.4]
    )
    _draw_gain(upper, gain_of_facts)
    mean_shares = np.array(
        [mass[name].mean(axis=0)[:-1] for name in locators]
    )  # [locators, layers]
    image = _draw_mass(lower, mean_shares, [LABELS[locator] for locator in locators])
    fig.colorbar(image, ax=lower, label="located mass\n(square root)", aspect=12)
    notes = (
        "means, 95 % band",
        "ROME at every layer but the last",
        "locators whose scores include the subject's last token",
    )
    caption = footer([run], f"{run.about.source['dataset']}, n = {len(gains)} facts", *notes)
    return with_caption(fig, _layers_in_words(gain_of_facts, mean_shares, locators), caption)


def _draw_gain(axes: Axes, gain_of_facts: NDArray[np.floating]) -> None:
    """The mean gain at each layer and its band, from [facts, layers]."""
    layers = np.arange(gain_of_facts.shape[1])
    intervals = [mean_interval(gain_of_layer) for gain_of_layer in gain_of_facts.T]
    lows = [interval.low for interval in intervals]
    highs = [interval.high for interval in intervals]
    axes.plot(layers, gain_of_facts.mean(axis=0), color="black")
    axes.fill_between(layers, lows, highs, color="0.8")
    axes.set_ylabel("gain\n[nats per token]")
    axes.set_title("Edit of one layer: gain at other wordings", loc="left", fontsize=9)


def _draw_mass(axes: Axes, shares: NDArray[np.floating], labels: Sequence[str]) -> AxesImage:
    """A strip of layers for each labelled locator, from [locators, layers]; the highest is marked."""
    image = axes.imshow(shares, aspect="auto", cmap="cividis", norm=PowerNorm(0.5, vmin=0))
    peaks = shares.argmax(axis=1)
    axes.plot(peaks, range(len(labels)), "o", color="white", markeredgecolor="black", ms=4)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xlabel("layer")
    axes.set_title(
        "Located mass: the layer's share of a locator's scores; ○ the highest",
        loc="left",
        fontsize=9,
    )
    axes.grid(visible=False)
    return image


def _layers_in_words(
    gain: NDArray[np.floating], shares: NDArray[np.floating], locators: Sequence[str]
) -> str:
    """Where the mean gain is at least half of its maximum, and which layers locators point to on average."""
    first, *others = [
        (LABELS[name], peak) for name, peak in zip(locators, shares.argmax(1), strict=True)
    ]
    mean_gain = gain.mean(axis=0)
    gains_half = mean_gain >= mean_gain.max() / 2
    count = int(gains_half.sum())
    where = (
        f"up to layer {count - 1}"
        if gains_half[:count].all()
        else f"at {count} of {len(mean_gain)} layers"
    )
    gain_words = f"Edits {where} gain at least half of the highest mean gain"
    words = f"{gain_words}; {first[0]} points to layer {first[1]}"
    return ", ".join([words, *(f"{label} to {peak}" for label, peak in others)])


@figure("05_locality", of="regret", main="smollm2-135m_klob-mini", needs=("edits", "layers"))
def rule_regret_dots(run: Run) -> Figure:
    """What each rule that names a fact's layer costs against the fact's best layer, in nats.

    The best layer is that of the fact's edits to another answer. A row a rule; a locator has a mark for
    its own tokens and one for the subject's last.
    """
    regrets = sorted(rule_regrets(run), key=lambda regret: regret.estimate.mean)
    rules = list(dict.fromkeys(regret.rule for regret in regrets))
    fig, axes = plt.subplots(figsize=(7.2, 0.32 * len(rules) + 1.4))
    mark_styles: dict[str, dict[str, Any]] = {
        "without a locator": {"fmt": "D", "color": "0.35"},
        "the locator's own tokens": condition_look(0),
        "the subject's last token": condition_look(1),
    }
    shift_of_label = dict(zip(mark_styles, (0.0, 0.15, -0.15), strict=True))
    for label, mark_style in mark_styles.items():
        regrets_of_label = [regret for regret in regrets if _token_label(regret) == label]
        heights = [
            len(rules) - 1 - rules.index(regret.rule) + shift_of_label[label]
            for regret in regrets_of_label
        ]
        estimates = pd.DataFrame([asdict(regret.estimate) for regret in regrets_of_label])
        if len(estimates):
            draw_intervals(axes, heights, estimates, across=True, ms=5, label=label, **mark_style)
    axes.axvline(0, color="0.4", linewidth=0.8)
    axes.set_yticks(range(len(rules)), [RULE_LABELS.get(rule, rule) for rule in rules[::-1]])
    axes.set_xlabel("regret: gain lost against the fact's best layer, nats per token")
    axes.legend(loc="upper right")
    data = (
        f"{run.about.source['dataset']}, n = {len(regrets[0].regret)} facts, two new answers each"
    )
    notes = (
        "95 % intervals",
        "regret 0: the fact's best layer, chosen on the edits to the other answer",
        "better: after Holm's correction",
    )
    return with_caption(fig, _rules_in_words(regrets), footer([run], data, *notes))


def _token_label(regret: RuleRegret) -> str:
    if not regret.is_locator:
        return "without a locator"
    return "the subject's last token" if regret.tokens == "subject" else "the locator's own tokens"


def _rules_in_words(regrets: Sequence[RuleRegret]) -> str:
    """Whether a locator loses less than the best fixed layer, and what there is to win."""
    (fixed,) = (regret for regret in regrets if regret.rule == BEST_FIXED)
    lost = f"which loses {fixed.estimate.mean:.1f} nats per token".replace("-", "−")
    better = dict.fromkeys(RULE_LABELS[regret.rule] for regret in better_locators(regrets))
    return (
        f"{', '.join(better) if better else 'We find no locator that'} names a better layer for an edit"
        f" than one layer for all facts, {lost}"
    )
