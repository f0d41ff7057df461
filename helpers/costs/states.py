"""Records scored under several edits that are made from one: everything is asked in one packed run.

A *state* is what a record is scored under, by name: an update at half its strength, an edit that was undone.
The editor optimises once a record; what follows from its edit is derived, and all states are kept together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from helpers.behaviour.agreement import UNEDITED
from helpers.editing.edit import Edit
from helpers.editing.editor import Editor
from helpers.models import LanguageModel
from helpers.peak.metrics import KEYS
from helpers.peak.records import PeakRecord
from helpers.peak.run import PeakRun, score_records
from helpers.results.evaluation import CaseEdits, Evaluation, Mode, Tables, joined

EditsByState = Mapping[str, Sequence[Edit]]  # by state an edit for each record
Derive = Callable[[Editor, Sequence[PeakRecord], Sequence[Edit]], EditsByState]
MoreTables = Callable[[LanguageModel, Sequence[PeakRecord], EditsByState | None], Tables]


@dataclass(frozen=True)
class DerivedStates:
    """A run's records under the edits that ``derive`` makes of an editor's.

    Args:
        run: the records, the model and the store.
        name: of the study, in the store.
        derive: of the records' edits the edits of each state.
        derived_by: what these depend on in addition to the edits.
        settings: what ``more`` depends on.
        more: further tables of the records under the edits of all states, or of the unedited model (None),
            each with a column ``state``.
    """

    run: PeakRun
    name: str
    derive: Derive
    derived_by: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    more: MoreTables | None = None

    def evaluation(self, editor: Editor | None = None) -> Evaluation[PeakRecord]:
        """The records in all states, or of the unedited model."""
        mode: Mode[PeakRecord] = Mode(self.name, settings=self.derived_by)
        of_records = self.run.evaluation(editor, mode)

        def score(lm: LanguageModel, records: Sequence[PeakRecord], edits: CaseEdits) -> Tables:
            by_state = None
            if editor is not None:
                assert isinstance(edits, Sequence)
                by_state = self.derive(editor, records, edits)
            tables = {} if self.more is None else self.more(lm, records, by_state)
            scores = score_in_states(lm, records, by_state)
            return {**tables, "states": states_given_up(records, by_state), "scores": scores}

        benchmark = replace(
            of_records.benchmark,
            # The unedited model, which has no mode, is kept apart from PEAK's as well.
            settings={**of_records.benchmark.settings, "mode": self.name, **self.settings},
            score=score,
        )
        return replace(of_records, benchmark=benchmark)

    def scores(self, editor: Editor, state: str, *, from_store_only: bool = False) -> pd.DataFrame:
        """Scores before the edit and in one state, as the metrics take them."""
        before = self.table(None, UNEDITED, from_store_only=from_store_only)
        after = self.table(editor, state, from_store_only=from_store_only)
        if before.empty or after.empty:
            return pd.DataFrame()
        return joined(before, after, KEYS)

    def table(
        self,
        editor: Editor | None,
        state: str,
        kind: str = "scores",
        *,
        from_store_only: bool = False,
    ) -> pd.DataFrame:
        """The rows of a kind in one state, of the records whose edit to this state was not given up."""
        evaluation = self.evaluation(editor)
        rows = evaluation.usable(kind, from_store_only=from_store_only)
        if rows.empty:
            return rows
        given_up = evaluation.read("states")
        cases_given_up = given_up.loc[given_up["state"] == state, "case_id"]
        of_state = rows[(rows["state"] == state) & ~rows["case_id"].isin(cases_given_up)]
        return of_state.drop(columns="state").reset_index(drop=True)


def score_in_states(
    lm: LanguageModel, records: Sequence[PeakRecord], by_state: EditsByState | None
) -> pd.DataFrame:
    """Scores of every record in every state, or (None) of the unedited model, with the column ``state``."""
    records_in_states, edits, _ = in_rows(records, by_state)
    scores = score_records(lm, records_in_states, edits or None)
    # A record has as many rows in every state, and one state follows the other.
    states = [*(by_state or [UNEDITED])]
    return scores.assign(state=np.repeat(states, len(scores) // len(states)))


def states_given_up(records: Sequence[PeakRecord], by_state: EditsByState | None) -> pd.DataFrame:
    """The records (case_id) and states whose edits were given up, with the ``failure``."""
    rows = []
    for state, edits in (by_state or {}).items():
        for record, edit in zip(records, edits, strict=True):
            if "failure" in edit.diagnostics:
                rows.append((record.case_id, state, edit.diagnostics["failure"]))
    table = pd.DataFrame(rows, columns=["case_id", "state", "failure"])
    return table.astype({"case_id": "int64", "state": str, "failure": str})


def in_rows(
    records: Sequence[PeakRecord], by_state: EditsByState | None
) -> tuple[list[PeakRecord], list[Edit], list[str]]:
    """Records, edits and states as columns of one table: all records in the first state, then the next.

    Of the unedited model (None) there is one state, and no edits.
    """
    if by_state is None:
        return list(records), [], [UNEDITED] * len(records)
    records_in_states: list[PeakRecord] = []
    edits: list[Edit] = []
    states: list[str] = []
    for state, edits_of_state in by_state.items():
        for record, edit in zip(records, edits_of_state, strict=True):
            records_in_states.append(record)
            edits.append(edit)
            states.append(state)
    return records_in_states, edits, states
