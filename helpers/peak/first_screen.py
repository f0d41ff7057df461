"""The figure at the top of the README: one typical edit, without and with APP, from stored scores."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.peak.metrics import DEFAULT_FILTER, LIST_NAMES, metrics_table
from helpers.peak.records import MINI, PeakRecord, load_peak
from helpers.peak.tables import scores_of
from helpers.records import by_case_id
from helpers.results.archive import Run, model_words
from helpers.results.figure import figure
from helpers.results.looks import scatter_look
from helpers.results.style import BEFORE_LOOK, with_caption, without_mathematics

RUN = "smollm2-135m_peak-mini-cf"  # of packaged records, whose words may be shown
STATES = {
    "rome": "after ROME",
    "rome+app": "after ROME with APP",
}  # stored tables, and their titles
BEFORE = "before the edit"
LOST = 0.1  # an answer is lost where less than this part of its probability is left
_MARKS: dict[str, dict[str, Any]] = {
    BEFORE: BEFORE_LOOK,
    **{state: scatter_look(method) for method, state in STATES.items()},
}
_SHOWN_LISTS = {"target": "new answer", "correct": "correct", "hard": "false"}


def typical_case(run: Run) -> int:
    """The record whose AFF and ANF, after ROME without and with APP, are nearest to their means.

    Of the records that both methods edit with success (ES); the distance is Euclidean.
    """
    metrics = {name: metrics_table(table) for name, table in scores_of(run, only=[*STATES]).items()}
    damage = pd.concat([table[["AFF_hard", "ANF_hard"]] for table in metrics.values()], axis=1)
    success = pd.concat([table["ES"] for table in metrics.values()], axis=1)
    distances = (((damage - damage.mean()) ** 2).sum(axis=1, skipna=False)) ** 0.5
    candidates = distances[success.eq(1).all(axis=1)].dropna()
    case_ids = candidates.index.get_level_values("case_id")
    return int(case_ids[int(candidates.to_numpy().argmin())])


def typical_record(run: Run) -> PeakRecord:
    """``typical_case`` with its words."""
    return by_case_id(load_peak(run.about.source["dataset"]).records, typical_case(run))


def answers_of_record(run: Run, record: PeakRecord) -> pd.DataFrame:
    """The new answer and a record's counted answers at the edit prompt, the most probable of a list first.

    Columns: answer, list, and a probability for each state (the geometric mean over the answer's tokens).
    Omitted are random false answers, and those that the unedited model does not rank as it should.
    """
    scores = scores_of(run, only=[*STATES])
    columns = {}
    for name, state in STATES.items():
        at_edit_prompt = scores[name].query("role == 'edit' and case_id == @record.case_id")
        by_answer = at_edit_prompt.set_index(["list", "answer_index"])
        columns[BEFORE] = (by_answer["sum_before"] / by_answer["tokens"]).map(np.exp)
        columns[state] = (by_answer["sum_after"] / by_answer["tokens"]).map(np.exp)
    probabilities = pd.DataFrame(columns)
    kept = DEFAULT_FILTER.counted(_lists_before(probabilities))
    counted = {("target", 0)}
    counted |= {("correct", int(index)) for index in kept.correct}
    counted |= {("hard", int(index)) for index in kept.hard}
    parts = []
    for list_name in _SHOWN_LISTS:
        of_list = probabilities[[key in counted for key in probabilities.index]].loc[[list_name]]
        of_list = of_list.sort_values(BEFORE, ascending=False)
        words = [record.lists[list_name][int(index)] for _, index in of_list.index]
        parts.append(of_list.reset_index(drop=True).assign(answer=words, list=list_name))
    return pd.concat(parts, ignore_index=True)


def _lists_before(probabilities: pd.DataFrame) -> dict[str, np.ndarray]:
    """Log-probabilities before the edit of each list [1, answers], in the order of the record."""
    logs = np.log(probabilities[BEFORE]).sort_index()
    stored_lists = set(logs.index.get_level_values("list"))
    return {name: logs.loc[name].to_numpy()[None] for name in LIST_NAMES if name in stored_lists}


def lost_counts(answers: pd.DataFrame) -> dict[str, int]:
    """For each edited state, how many correct answers have less than a tenth left."""
    correct = answers.query("list == 'correct'")
    return {
        state: int((correct[state] < LOST * correct[BEFORE]).sum()) for state in STATES.values()
    }


@figure(
    "01_first_screen",
    of="ablations",
    needs=tuple(STATES),
    main=RUN,
    when=lambda run: run.about.source["dataset"] in MINI,
)
def typical_edit(run: Run) -> Figure:
    """A typical edit: every answer's probability before it, after ROME, and with APP (PEAK, Figure 1)."""
    record = typical_record(run)
    answers = answers_of_record(run, record)
    fig, axes = plt.subplots(figsize=(6.6, 0.2 * len(answers) + 1.3))
    _draw_answers(axes, answers)
    lost_without, lost_with = lost_counts(answers).values()
    correct_count = len(answers.query("list == 'correct'"))
    finding = (
        f"When ROME writes “{record.target_new}”, {lost_without} of {correct_count} correct answers fall"
        f" below a tenth of their probability, with APP {lost_with} of {correct_count}"
    )
    model = model_words(run.about.source["model"]).partition(" (")[0]
    notes = "a record of average damage, answers ranked rightly before"
    return with_caption(fig, finding, f"{model}: “{record.edit_prompt} …”; {notes}")


def _draw_answers(axes: Axes, answers: pd.DataFrame) -> None:
    """A row an answer, with a mark for each state and a line from the first to the farthest."""
    heights = np.arange(len(answers))[::-1]
    states = [BEFORE, *STATES.values()]
    lowest = answers[states].min(axis=1)
    highest = answers[states].max(axis=1)
    axes.hlines(heights, lowest, highest, color="0.8", linewidth=1, zorder=1)
    for state in states:
        axes.scatter(answers[state], heights, label=state, s=28, zorder=3, **_MARKS[state])
    for list_name, list_words in _SHOWN_LISTS.items():
        rows_of_list = heights[(answers["list"] == list_name).to_numpy()]
        axes.axhline(rows_of_list.min() - 0.5, color="0.85", linewidth=0.8, zorder=0)
        axes.text(
            1.01, rows_of_list.mean(), list_words, transform=axes.get_yaxis_transform(), va="center"
        )
    axes.set_yticks(heights, [without_mathematics(answer) for answer in answers["answer"]])
    axes.set_xscale("log")
    axes.set_ylim(-0.7, len(answers) - 0.3)
    axes.set_xlabel("probability per token (geometric mean over the answer's tokens, log scale)")
    axes.grid(axis="y", visible=False)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(states))
