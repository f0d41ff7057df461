"""Every scorer's verdict on the same edits, as a figure, and which of them predicts what is generated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.behaviour.agreement import (
    ASKED,
    GENERATED,
    SCORERS,
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
from helpers.behaviour.scorers import UNEDITED
from helpers.editing.editors import distinct
from helpers.peak.figures import ACROSS, MAIN_RUN, rows_of_estimates
from helpers.peak.tables import Metrics, caption_of
from helpers.results.archive import Run
from helpers.results.figure import figure
from helpers.results.notes import training_notes
from helpers.results.statistics import Contrast, interval
from helpers.results.style import MARKERS, PALETTE, draw_intervals, with_caption

_IN_TITLE = ("ES", "tokens", "free, greedy")  # scorers in colour, which the title compares


@figure("04_scorers", of="scorers", main=MAIN_RUN, when=lambda run: len(run.tables) > 3)
def scorer_panels(run: Run) -> Figure:
    """Each state's success under every scorer: above those that read probabilities, below responses."""
    tables_by_state = by_state(run)
    heights = np.arange(len(tables_by_state))[::-1]
    size = (9.2, 0.36 * len(tables_by_state) + 2.4)
    fig, panels = plt.subplots(2, len(ASKED), figsize=size, sharex=True, sharey=True)
    for panels_of_kind, titles in zip(panels, (ASKED, GENERATED), strict=True):
        _draw_scorers(panels_of_kind, titles, tables_by_state)
    panels[0, 0].set(xlim=(-4, 104), xticks=(0, 50, 100))
    panels[0, 0].set_yticks(heights, [*tables_by_state])
    states_in_title = _states_in_title(tables_by_state)
    left_out = [state for state in tables_by_state if state not in (UNEDITED, *states_in_title)]
    except_words = f" except {' and '.join(left_out)}" if left_out else ""
    means = f"means over methods{except_words}"
    note = f"percent, 95 % intervals over records; title, in colour: {means}"
    caption = "\n".join([caption_of(run), *training_notes(run), note])
    return with_caption(fig, _success_in_words(tables_by_state), caption)


def _draw_scorers(
    panels: Sequence[Axes], titles: Mapping[str, str], tables_by_state: Metrics
) -> None:
    """A panel for each scorer that has results, and in it a row for each state."""
    heights = range(len(tables_by_state) - 1, -1, -1)
    scorers = [name for name in titles if any(name in table for table in tables_by_state.values())]
    for axes, scorer in zip(panels, scorers, strict=False):
        # The first state is the uppermost; one without this scorer leaves its row empty.
        tables_by_height = {
            height: table
            for height, table in zip(heights, tables_by_state.values(), strict=True)
            if scorer in table
        }
        estimates = rows_of_estimates(
            interval(table[scorer], kind_of_scorer(scorer)) for table in tables_by_height.values()
        )
        colour = PALETTE[0] if scorer in _IN_TITLE else PALETTE[7]
        draw_intervals(
            axes, [*tables_by_height], estimates, fmt="o", color=colour, clip_on=False, **ACROSS
        )
        axes.set_title(titles[scorer], fontsize=7)
        axes.tick_params(labelbottom=True)
        axes.grid(axis="y", visible=False)
    for axes in panels[len(scorers) :]:
        axes.axis("off")


def _states_in_title(tables_by_state: Metrics) -> list[str]:
    """The edited states without KN, which edits almost nothing, and without PRUNE, whose edits made alone are
    MEMIT's (``distinct``).
    """
    return [state for state in distinct(tables_by_state) if state not in (UNEDITED, "KN")]


def _success_in_words(tables_by_state: Metrics) -> str:
    """Mean success by the scorers ``_IN_TITLE`` over ``_states_in_title``."""
    tables_of_edited = [tables_by_state[state] for state in _states_in_title(tables_by_state)]
    mean_successes = [
        100 * np.mean([table[scorer].mean() for table in tables_of_edited]) for scorer in _IN_TITLE
    ]
    probability_words, token_words, text_words = (f"{mean:.0f} %" for mean in mean_successes)
    words_of_others = (
        f"{text_words} in free text (greedy); {token_words} of the answer's tokens match"
    )
    return f"{probability_words} of the edits succeed by probability, {words_of_others}"


@figure("04_who_says_it", of="scorers", main=MAIN_RUN, together=True)
def who_says_it(runs: Sequence[Run]) -> Figure:
    """What APP costs under each scorer, and which measure of an edit predicts that the model names o*."""
    states_by_model = {run.about.source["model"]: by_state(run) for run in runs}
    costs = {model: app_cost_by_scorer(states) for model, states in states_by_model.items()}
    predictions = {model: prediction_of(states) for model, states in states_by_model.items()}
    fig, (left, right) = plt.subplots(1, 2, figsize=(9.2, 4.6), width_ratios=(1.35, 1))
    _draw_costs(left, costs)
    _draw_predictions(right, predictions)
    left.set_title("what APP costs: success with it minus without", fontsize=9)
    right.set_title("who predicts that o* is named", fontsize=9)
    right.legend(loc="center", bbox_to_anchor=(0.62, 0.5), fontsize=8)
    counts = "; ".join(
        f"{model}: {prediction.edits} edits by {prediction.methods} methods, {prediction.named} of them named"
        for model, prediction in predictions.items()
    )
    notes = (
        "left: mean over the editors that have APP, 95 % intervals by sign flips over records or relations;"
        " right: pairs of edits by one method, bootstrap intervals; named: greedy free text; "
    )
    captions = [caption_of(run) for run in runs]
    training = dict.fromkeys(note for run in runs for note in training_notes(run))
    caption = "\n".join([*captions, *training, f"{notes}{counts}"])
    return with_caption(fig, _predictor_in_words(costs, predictions), caption)


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
    colour = PALETTE[model_index]
    return {"fmt": MARKERS[model_index], "color": colour, "label": model, **ACROSS}


def _predictor_in_words(
    costs: Mapping[str, Mapping[str, Contrast]], predictions: Mapping[str, Prediction]
) -> str:
    """How well P(o*) and ES predict for each model, and what APP costs the first by ES and in free text."""
    pairs_in_words = []
    for model, prediction in predictions.items():
        by_probability = 100 * prediction.within[REFERENCE][0]
        by_es = 100 * prediction.within["ES"][0]
        pairs_in_words.append(f"{by_probability:.0f}\u00a0% and {by_es:.0f}\u00a0% ({model})")
    model, of_model = next(iter(costs.items()))
    cost_by_es = -100 * of_model["ES"].difference.mean
    cost_in_text = -100 * of_model["free, greedy"].difference.mean
    return (
        f"Which edits does the model generate? {PREDICTORS[REFERENCE]} and ES rank"
        f" {', '.join(pairs_in_words)} of the pairs right. APP costs {cost_by_es:.0f} points of ES and"
        f" {cost_in_text:.0f} of free text ({model})"
    )
