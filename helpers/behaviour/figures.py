"""Every scorer's verdict on the same edits, as a figure, and which of them predicts what is generated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.behaviour.agreement import (
    GENERATED,
    SCORERS,
    UNEDITED,
    app_cost_by_scorer,
    by_state,
    kind_of_scorer,
)
from helpers.behaviour.prediction import (
    PREDICTORS,
    REFERENCE,
    Prediction,
    estimate_of,
    prediction_of,
)
from helpers.editing.editors import distinct, method_named
from helpers.peak.figures import ACROSS, MAIN_RUN, rows_of_estimates
from helpers.peak.tables import Metrics, data_of
from helpers.results.archive import Run
from helpers.results.figure import figure
from helpers.results.looks import method_line
from helpers.results.notes import training_notes
from helpers.results.statistics import Contrast, interval
from helpers.results.style import draw_intervals, model_look, with_caption
from helpers.results.text import footer

_COLUMNS = {  # scorers of the figure, and their titles
    "ES": "probability:\nabove the list (ES)",
    "tokens": "token match",
    "free, greedy": "free text",
    "chat, greedy": "chat",
}


@figure("08_scorers", of="scorers", main=MAIN_RUN, when=lambda run: len(run.tables) > 3)
def scorer_marks(run: Run) -> Figure:
    """Success of each editor under four scorers, plain and with APP (hollow)."""
    tables_by_state = by_state(run)
    editors = [state for state in tables_by_state if not state.endswith("+APP")]
    scorers = [name for name in _COLUMNS if any(name in t for t in tables_by_state.values())]
    size = (8.4, 0.4 * len(editors) + 1.5)
    fig, panels = plt.subplots(1, len(scorers), figsize=size, sharex=True, sharey=True)
    for axes, scorer in zip(np.atleast_1d(panels), scorers, strict=True):
        _draw_scorer(axes, scorer, editors, tables_by_state)
    heights = np.arange(len(editors))[::-1]
    np.atleast_1d(panels)[0].set_yticks(heights, editors)
    notes = (
        "hollow: with APP",
        "95 % intervals, not tested",
        *training_notes(run),
    )
    caption = footer([run], data_of(run), *notes)
    return with_caption(fig, _success_in_words(tables_by_state), caption)


def _draw_scorer(axes: Axes, scorer: str, editors: Sequence[str], tables_by_state: Metrics) -> None:
    """A row an editor: its interval without APP, and below it, joined by a line, that with APP."""
    for height, editor in zip(range(len(editors) - 1, -1, -1), editors, strict=True):
        methods = (editor, f"{editor}+APP")
        shown = [name for name in methods if scorer in tables_by_state.get(name, ())]
        estimates = rows_of_estimates(
            interval(tables_by_state[name][scorer], kind_of_scorer(scorer)) for name in shown
        )
        heights = [height + 0.15 - 0.3 * methods.index(name) for name in shown]
        axes.plot(estimates["mean"], heights, color="0.6", linewidth=0.8, zorder=1)
        for number, name in enumerate(shown):
            look = {"color": "0.4", "marker": "o"}
            if editor != UNEDITED:
                look = method_line(method_named(name))
            mark_style = {**look, **ACROSS, "linestyle": "", "label": None}
            draw_intervals(
                axes, heights[number : number + 1], estimates.iloc[[number]], **mark_style
            )
    axes.set_title(_COLUMNS[scorer], fontsize=9)
    axes.set_xlabel("percent of the edits", fontsize=8)
    axes.set(xlim=(-4, 104), xticks=(0, 50, 100))
    axes.grid(axis="y", visible=False)


def _success_in_words(tables_by_state: Metrics) -> str:
    """The range of success by probability and in free text over plain editors but KN, and what APP changes.

    KN edits almost nothing; PRUNE's edits made alone are MEMIT's (``distinct``).
    """
    plain_editors = [
        state
        for state in distinct(tables_by_state)
        if state not in (UNEDITED, "KN") and not state.endswith("+APP")
    ]

    def ends(scorer: str) -> str:
        means = [100 * tables_by_state[state][scorer].mean() for state in plain_editors]
        return f"{min(means):.0f} to {max(means):.0f} %"

    if not plain_editors:
        return "Success under four scorers"
    finding = (
        f"By probability {ends('ES')} of the edits succeed{_but_kn(tables_by_state)}; free text names the"
        f" new answer of {ends('free, greedy')}"
    )
    with_app = [state for state in plain_editors if f"{state}+APP" in tables_by_state]
    lower = [
        state
        for state in with_app
        if tables_by_state[f"{state}+APP"]["free, greedy"].mean()
        < tables_by_state[state]["free, greedy"].mean()
    ]
    if with_app and len(lower) == len(with_app):
        return f"{finding}, and fewer with APP"
    return f"{finding}; with APP fewer for {len(lower)} of {len(with_app)} editors"


def _but_kn(tables_by_state: Metrics) -> str:
    """Words for the editor that the ranges omit, where its edits were asked."""
    return " (KN excepted)" if "KN" in tables_by_state else ""


@figure("08_who_says_it", of="scorers", main=MAIN_RUN, together=True)
def who_says_it(runs: Sequence[Run]) -> Figure:
    """What APP costs under each scorer, and which measure of an edit predicts that the model names o*."""
    states_by_model = {run.about.source["model"]: by_state(run) for run in runs}
    costs = {model: app_cost_by_scorer(states) for model, states in states_by_model.items()}
    predictions = {model: prediction_of(states) for model, states in states_by_model.items()}
    fig, (left, right) = plt.subplots(1, 2, figsize=(9.2, 4.6), width_ratios=(1.35, 1))
    _draw_costs(left, costs)
    _draw_predictions(right, predictions)
    left.set_title("what APP costs: success with it minus without", fontsize=9)
    right.set_title("which measure predicts that o* is named", fontsize=9)
    right.legend(loc="center", bbox_to_anchor=(0.62, 0.5), fontsize=8)
    edits, named = (
        " and ".join(f"{count:,}" for count in counts)
        for counts in zip(*((each.edits, each.named) for each in predictions.values()), strict=True)
    )
    is_undertrained = any(training_notes(run) for run in runs)
    notes = (
        "95 % intervals",
        "left: mean over the editors that have APP",
        f"right: pairs of edits by one method, {named} of the edits named in greedy free text",
        *(["MEND: undertrained"] if is_undertrained else []),
    )
    datasets = dict.fromkeys(run.about.source["dataset"] for run in runs)
    caption = footer(runs, f"{', '.join(datasets)}, n = {edits} edits", *notes)
    return with_caption(fig, _finding_in_words(costs, predictions), caption)


def _draw_costs(axes: Axes, costs: Mapping[str, Mapping[str, Contrast]]) -> None:
    """A row a scorer, in points, those that read probabilities above; a mark for each model."""
    scorers = [name for name in SCORERS if any(name in of_model for of_model in costs.values())]
    heights = {scorer: len(scorers) - index for index, scorer in enumerate(scorers)}
    for model_index, (model, of_model) in enumerate(costs.items()):
        estimates = [of_model[scorer].difference for scorer in scorers if scorer in of_model]
        aside = 0.16 * (0.5 - model_index)
        positions = [heights[scorer] + aside for scorer in scorers if scorer in of_model]
        draw_intervals(
            axes, positions, rows_of_estimates(estimates), **_mark_of_model(model_index, model)
        )
    axes.axvline(0, color="0.6", linewidth=0.8)
    axes.axhline(len(GENERATED) + 0.5, color="0.8", linewidth=0.8)
    titles = [SCORERS[scorer].replace("\n", " ") for scorer in scorers]
    axes.set_yticks([heights[scorer] for scorer in scorers], titles)
    axes.set_xlabel("percentage points")
    axes.grid(axis="y", visible=False)


def _draw_predictions(axes: Axes, predictions: Mapping[str, Prediction]) -> None:
    """A row a measure with its AUC within methods; a mark for each model, and a line at chance."""
    heights = range(len(PREDICTORS), 0, -1)
    for model_index, (model, prediction) in enumerate(predictions.items()):
        estimates = [estimate_of(prediction.within[name], prediction.edits) for name in PREDICTORS]
        positions = [height + 0.12 * (0.5 - model_index) for height in heights]
        draw_intervals(
            axes,
            positions,
            rows_of_estimates(estimates, scale=1),
            **_mark_of_model(model_index, model),
        )
    axes.axvline(0.5, color="0.6", linewidth=0.8)
    axes.text(0.5, 0.45, " chance", fontsize=7, color="0.4")
    axes.set_yticks([*heights], [*PREDICTORS.values()])
    axes.set(xlim=(0.4, 1.02), ylim=(0.4, len(PREDICTORS) + 0.6))
    axes.set_xlabel("share of pairs ranked right (AUC)")
    axes.grid(axis="y", visible=False)


def _mark_of_model(model_index: int, model: str) -> dict[str, Any]:
    """How a model's marks look, as ``draw_intervals`` takes it."""
    return {"label": model, **model_look(model_index), **ACROSS}


def _finding_in_words(
    costs: Mapping[str, Mapping[str, Contrast]], predictions: Mapping[str, Prediction]
) -> str:
    """What APP costs the first model's text, and how well P(o*) and ES predict that it names o*."""
    cost = next(iter(costs.values())).get("free, greedy")
    model, prediction = next(iter(predictions.items()))
    by_probability = prediction.within[REFERENCE][0]
    by_es = prediction.within["ES"][0]
    finding = (
        f"On {model} {PREDICTORS[REFERENCE]} predicts whether a text names the new answer o* (AUC"
        f" {by_probability:.2f}), ES does so less well ({by_es:.2f})"
    )
    if cost is None or not cost.difference.high < 0:
        return finding
    return f"{finding}; with APP {-100 * cost.difference.mean:.0f} points fewer free texts name it"
