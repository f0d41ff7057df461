"""PEAK's records edited, edited back, and with the edit removed, for ``undo``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from helpers.costs.records import studied_run
from helpers.costs.states import DerivedStates, EditsByState
from helpers.costs.undo import BACK_TO_FIRST, BACK_TO_LIST, EDITED, REMOVED, STATES
from helpers.editing.edit import Edit
from helpers.editing.editor import Editor
from helpers.editing.request import EditRequest
from helpers.editing.weight_edit import only_weights
from helpers.peak.publish import editors_of, publication_of
from helpers.peak.records import PeakRecord
from helpers.peak.run import PeakRun, edit_request
from helpers.records import comparable
from helpers.results.archive import TableKey
from helpers.results.benchmark import part_of_cases
from helpers.results.publish import Part, Publication


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
