"""Can an edit be undone by another edit? Which correct answers return, by the stored scores of ``undo_run``.

================= ================================================================================
edited            the record's edit: o*
back to the first upon it a second edit by the same editor, whose target is the record's first answer
back to the list  the same with all correct answers as targets (``+all-sum``)
removed           the edit and its own negative: the control, in which everything returns
================= ================================================================================

*figures/data/undone/<model>_<dataset>* holds a table of scores for each method and state, as
*figures/data/peak* does.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from helpers.editing.editors import method_label
from helpers.peak.metrics import (
    DEFAULT_FILTER,
    AnswerFilter,
    metric_interval,
    metrics_table,
    records_of,
    table_by_record,
)
from helpers.peak.tables import scores_of
from helpers.results.archive import Run
from helpers.results.notes import ShownTable, with_note, with_power, with_relations
from helpers.results.statistics import detectable, interval, paired
from helpers.results.text import in_points, with_interval, with_p_values

EDITED = "edited"
BACK_TO_FIRST = "back to the first"
BACK_TO_LIST = "back to the list"
REMOVED = "removed"
STATES = (EDITED, BACK_TO_FIRST, BACK_TO_LIST, REMOVED)
WAYS_BACK = (BACK_TO_FIRST, BACK_TO_LIST)
RETURN_MEASURES = ("change", "first", "returned", "order")
AS_PROBABLE = float(np.log(2))  # nats per token: half of an answer's probability per token


def return_measures(
    scores: pd.DataFrame, answer_filter: AnswerFilter = DEFAULT_FILTER
) -> pd.DataFrame:
    """What has returned of each record's correct answers, at its edit prompt: a row a record.

    Of the correct answers that count (``answer_filter``): ``change`` of s(o), the mean log-probability of an
    answer's tokens, in nats, averaged over those that are not the first answer; the same of the ``first``;
    ``returned``, the share of all whose probability per token (geometric mean) is at least half of what it
    was; ``order``, Kendall's rank correlation of their probabilities before and after (NaN of fewer than
    three). With AFF and ANF.
    """
    measures_by_case = {}
    for case_id, record in records_of(scores):
        counted = answer_filter.counted(record.edit)
        measures_by_case[case_id] = _returned(record.edit["correct"], counted.correct)
    returned = table_by_record(measures_by_case, scores, RETURN_MEASURES)
    return metrics_table(scores, answer_filter)[["AFF_hard", "ANF_hard"]].join(returned)


def _returned(correct: np.ndarray, counted: np.ndarray) -> dict[str, float]:
    """``return_measures`` of a record's correct answers [2, answers], the first one first."""
    measures = dict.fromkeys(RETURN_MEASURES, float("nan"))
    change = correct[1] - correct[0]
    others = counted[counted != 0]
    if 0 in counted:
        measures["first"] = float(change[0])
    if len(others):
        measures["change"] = float(change[others].mean())
    if len(counted):
        measures["returned"] = float((change[counted] >= -AS_PROBABLE).mean())
    if len(counted) > 2:
        measures["order"] = float(stats.kendalltau(*correct[:, counted]).statistic)
    return measures


def returns_of_run(run: Run) -> dict[str, dict[str, pd.DataFrame]]:
    """``return_measures`` by method and state of a stored run."""
    returns: dict[str, dict[str, pd.DataFrame]] = {}
    scores_by_name = scores_of(run)
    for key in run.keys:
        if key.mode in STATES:
            of_method = returns.setdefault(key.method, {})
            of_method[key.mode] = return_measures(scores_by_name[str(key)])
    return returns


def undo_table(run: Run) -> ShownTable:
    """What has returned after each state, a row a method and state, and the test that something has not.

    ``p``: the other correct answers' change after going back against none (the control's); ``Holm`` corrects
    for all rows that go back.
    """
    rows = []
    p_values = []
    is_primary = []
    primary_changes = []
    for method, by_state in returns_of_run(run).items():
        for state, table in by_state.items():
            contrast = paired(0 * table["change"], table["change"], "number")
            first = interval(table["first"], "number")
            p_values.append(contrast.p_value)
            is_primary.append(state in WAYS_BACK)
            if state in WAYS_BACK:
                primary_changes.append(table["change"].dropna())
            rows.append(
                {
                    "method": method_label(method),
                    "state": state,
                    "records": contrast.difference.n,
                    "other answers, nats": with_interval(contrast.difference, signed=True),
                    "first answer, nats": with_interval(first, signed=True),
                    "returned": in_points(interval(table["returned"], "fraction")),
                    "order": with_interval(interval(table["order"], "number")),
                    "AFF": in_points(metric_interval("AFF_hard", table["AFF_hard"])),
                    "ANF": in_points(metric_interval("ANF_hard", table["ANF_hard"])),
                }
            )
    table = with_p_values(rows, p_values, is_primary).set_index(["method", "state"])
    least = map(detectable, primary_changes)
    shown = with_power(table, least, map(len, primary_changes), unit=" nats", digits=2)
    note = (
        "at the edit prompt, of correct answers that count; returned: at least half as probable per token as"
        " before; order: Kendall's rank correlation with the order before"
    )
    return with_note(with_relations(shown, primary_changes), note)
