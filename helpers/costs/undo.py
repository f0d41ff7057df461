"""Can an edit be undone by another edit? A record is edited, then edited back; which correct answers return?

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from helpers.costs.records import studied_run
from helpers.costs.states import DerivedStates, EditsByState
from helpers.editing.edit import Edit
from helpers.editing.editor import Editor
from helpers.editing.editors import method_label
from helpers.editing.request import EditRequest
from helpers.editing.weight_edit import only_weights
from helpers.peak.metrics import (
    DEFAULT_FILTER,
    AnswerFilter,
    metric_interval,
    metrics_table,
    records_of,
    table_by_record,
)
from helpers.peak.publish import editors_of, publication_of
from helpers.peak.records import PeakRecord
from helpers.peak.run import PeakRun, edit_request
from helpers.peak.tables import scores_of
from helpers.records import comparable
from helpers.results.archive import Run, TableKey
from helpers.results.benchmark import part_of_cases
from helpers.results.notes import ShownTable, with_note, with_power, with_relations
from helpers.results.publish import Part, Publication
from helpers.results.statistics import detectable, interval, paired
from helpers.results.text import in_points, with_interval, with_p_values

EDITED = "edited"
BACK_TO_FIRST = "back to the first"
BACK_TO_LIST = "back to the list"
REMOVED = "removed"
STATES = (EDITED, BACK_TO_FIRST, BACK_TO_LIST, REMOVED)
WAYS_BACK = (BACK_TO_FIRST, BACK_TO_LIST)
RETURN_MEASURES = ("change", "first", "returned", "order")
AS_PROBABLE = float(np.log(2))  # nats: at least half of an answer's probability returns


def request_back(record: PeakRecord) -> EditRequest:
    """The edit that goes back: the record's first answer, with its other correct answers as O."""
    request = edit_request(record)
    first_key = comparable(record.correct[0])
    others = tuple(answer for answer in request.correct if comparable(answer) != first_key)
    return replace(request, target=record.correct[0], correct=others)


@dataclass(frozen=True)
class Undone:
    """A run's records under an editor's edits, and under edits that go back.

    ``list_editor`` makes all correct answers likely, by the same settings.
    """

    run: PeakRun
    list_editor: Editor

    @cached_property
    def states(self) -> DerivedStates:
        """All states of one edit, in one packed run."""
        settings = {"back_to_list": self.list_editor.settings()}
        return DerivedStates(self.run, "undone", self._undone, derived_by=settings)

    def parts(self, method: str, editor: Editor) -> list[Part]:
        """A table of scores for each state."""
        case_ids = [record.case_id for record in self.run.data.records]
        parts = []
        for state in STATES:
            settings = {**editor.settings(), "state": state}
            read_scores = partial(self.states.scores, editor, state)
            name = str(TableKey("", method, state))
            parts.append(part_of_cases(name, settings, read_scores, case_ids))
        return parts

    def _undone(
        self, editor: Editor, records: Sequence[PeakRecord], edits: Sequence[Edit]
    ) -> EditsByState:
        updates = [only_weights(edit, f"undoing {editor.method}") for edit in edits]
        requests = [request_back(record) for record in records]
        steps = list(zip(updates, requests, strict=True))
        return {
            EDITED: updates,
            BACK_TO_FIRST: [editor.edit_on(update, [request]) for update, request in steps],
            BACK_TO_LIST: [
                self.list_editor.edit_on(update, [request]) for update, request in steps
            ],
            REMOVED: [update.then(update.scaled(-1.0)) for update in updates],
        }


def publication(params: Mapping[str, Any]) -> Publication:
    """Editors of notebook 04's parameter ``undone``, a table for each state."""
    run = studied_run(params)
    editors = params["undone"]
    built = editors_of(run, [*editors, *(f"{editor}+all-sum" for editor in editors)], params)
    parts = []
    for name in editors:
        parts += Undone(run, built[f"{name}+all-sum"]).parts(name, built[name])
    return publication_of(run, params, parts, editors)


def return_measures(
    scores: pd.DataFrame, answer_filter: AnswerFilter = DEFAULT_FILTER
) -> pd.DataFrame:
    """What has returned of each record's correct answers, at its edit prompt: a row a record.

    Of the correct answers that count (``answer_filter``): ``change`` of s(o), the mean log-probability of an
    answer's tokens, in nats, averaged over those that are not the first answer; the same of the ``first``;
    ``returned``, the share of all whose probability is at least half of what it was; ``order``, Kendall's
    rank correlation of their probabilities before and after (NaN of fewer than three). With AFF and ANF.
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
        "at the edit prompt, of correct answers that count; returned: at least half as probable as before;"
        " order: Kendall's rank correlation with the order before"
    )
    return with_note(with_relations(shown, primary_changes), note)
