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

from helpers.costs.states import DerivedStates, EditsByState
from helpers.editing.edit import Edit
from helpers.editing.editor import Editor
from helpers.editing.editors import method_label
from helpers.editing.request import EditRequest
from helpers.editing.weight_edit import only_weights
from helpers.peak.metrics import DEFAULT_FILTER, AnswerFilter, kind_of_metric, metrics_table
from helpers.peak.publish import editors_of, peak_run, publication_of
from helpers.peak.records import PeakRecord
from helpers.peak.run import PeakRun, edit_request
from helpers.peak.tables import scores_of
from helpers.records import comparable
from helpers.results.archive import Run, TableKey
from helpers.results.benchmark import part_of_cases
from helpers.results.notes import ShownTable, with_note, with_power, with_relations
from helpers.results.publish import Part, Publication
from helpers.results.statistics import detectable, interval, paired
from helpers.results.text import holm_texts, in_points, p_texts, with_interval

CHUNK = 10  # records edited between two writes to the results store
EDITED = "edited"
BACK_TO_FIRST = "back to the first"
BACK_TO_LIST = "back to the list"
REMOVED = "removed"
STATES = (EDITED, BACK_TO_FIRST, BACK_TO_LIST, REMOVED)
AS_PROBABLE = float(
    np.log(2)
)  # nats: an answer returns where at least half of its probability does


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
    run = replace(peak_run(params), chunk=CHUNK)
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
    rows = {}
    at_edit_prompt = scores[scores["role"] == "edit"]
    for case_id, of_record in at_edit_prompt.groupby("case_id"):
        scores_of_list = {}  # each [2, answers]
        for list_name in ("correct", "hard", "random"):
            of_list = of_record[of_record["list"] == list_name].sort_values("answer_index")
            sums = of_list[["sum_before", "sum_after"]].to_numpy(float)
            scores_of_list[list_name] = sums.T / of_list["tokens"].to_numpy(float)
        counted = answer_filter.keep(*(lists[0] for lists in scores_of_list.values()))
        rows[case_id] = _returned(scores_of_list["correct"], counted.correct)
    columns = ["change", "first", "returned", "order"]
    returned = pd.DataFrame.from_dict(rows, orient="index", columns=columns, dtype=float)
    metrics = metrics_table(scores, answer_filter)[["AFF_hard", "ANF_hard"]]
    case_ids = metrics.index.get_level_values("case_id")
    return metrics.assign(**{name: returned[name].reindex(case_ids).array for name in columns})


def _returned(correct: np.ndarray, counted: np.ndarray) -> dict[str, float]:
    """``return_measures`` of a record's correct answers [2, answers], the first one first."""
    nothing = float("nan")
    if not len(counted):
        return {"change": nothing, "first": nothing, "returned": nothing, "order": nothing}
    change = correct[1] - correct[0]
    others = counted[counted != 0]
    order = nothing
    if len(counted) > 2:
        order = float(stats.kendalltau(correct[0, counted], correct[1, counted]).statistic)
    return {
        "change": float(change[others].mean()) if len(others) else nothing,
        "first": float(change[0]) if 0 in counted else nothing,
        "returned": float((change[counted] >= -AS_PROBABLE).mean()),
        "order": order,
    }


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
    changes = []
    for method, by_state in returns_of_run(run).items():
        for state, table in by_state.items():
            change = table["change"]
            nothing_lost = pd.Series(0.0, index=change.index)
            contrast = paired(nothing_lost, change, "number")
            goes_back = state in (BACK_TO_FIRST, BACK_TO_LIST)
            p_values.append(contrast.p_value)
            is_primary.append(goes_back)
            if goes_back:
                changes.append(change)
            rows.append(
                {
                    "method": method_label(method),
                    "state": state,
                    "records": int(change.notna().sum()),
                    "other answers, nats": with_interval(contrast.difference, signed=True),
                    "first answer, nats": with_interval(
                        interval(table["first"], "number"), signed=True
                    ),
                    "returned": in_points(interval(table["returned"], "fraction")),
                    "order": with_interval(interval(table["order"], "number")),
                    **{
                        metric.removesuffix("_hard"): in_points(
                            interval(table[metric], kind_of_metric(metric))
                        )
                        for metric in ("AFF_hard", "ANF_hard")
                    },
                }
            )
    tested = pd.DataFrame(rows).assign(p=p_texts(p_values), Holm=holm_texts(p_values, is_primary))
    table = tested.set_index(["method", "state"])
    counts = [int(change.notna().sum()) for change in changes]
    shown = with_power(table, map(detectable, changes), counts, unit=" nats", digits=2)
    note = (
        "at the edit prompt, of correct answers that count; returned: at least half as probable as before;"
        " order: Kendall's rank correlation with the order before"
    )
    return with_note(with_relations(shown, changes), note)
