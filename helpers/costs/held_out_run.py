"""PEAK's records edited with half of their answers held out, for ``held_out_answers``.

Each record's halves are drawn by a seed. What APP's loss is given is one of ``GIVEN``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import pandas as pd

from helpers import UserError
from helpers.costs.held_out_answers import (
    FOREIGN,
    HALF,
    HALF_OF_CORRECT,
    NOT_SPLIT,
    SHOWN,
    SPLIT_LISTS,
    UNSHOWN,
)
from helpers.costs.records import all_records, others_of_relation, studied_run
from helpers.editing.edit import Edit
from helpers.editing.editor import Editor
from helpers.editing.request import EditRequest
from helpers.peak.publish import editors_of, publication_of
from helpers.peak.records import PeakRecord
from helpers.peak.run import PeakRun, edit_request
from helpers.peak.shown import shown_names
from helpers.records import comparable
from helpers.results.archive import TableKey
from helpers.results.benchmark import part_of_cases
from helpers.results.evaluation import INDEPENDENT, Mode
from helpers.results.publish import Part, Publication


def halves(record: PeakRecord, seed: int) -> dict[str, tuple[str, ...]]:
    """The half that each answer of O (``correct``) and of O_h (``hard``) is in, by list.

    Names that are alike (``comparable``) are in one half, so that no unshown answer is shown under another
    index. Of an odd number of names either half has one more, by a coin. A list of fewer than two names is
    ``NOT_SPLIT``: its answers are shown, and the record is excluded where its kind is measured. So is o*
    itself where lists that are not strict hold it.
    """
    return {name: _half_of_each(record, name, seed) for name in SPLIT_LISTS}


def _half_of_each(record: PeakRecord, list_name: str, seed: int) -> tuple[str, ...]:
    answer_keys = [comparable(answer) for answer in record.lists[list_name]]
    names = {
        answer_key for answer_key in answer_keys if answer_key != comparable(record.target_new)
    }
    if len(names) < 2:
        return (NOT_SPLIT,) * len(answer_keys)

    shown_half = shown_names(record, list_name, names, seed)
    labels = []
    for answer_key in answer_keys:
        label = SHOWN if answer_key in shown_half else UNSHOWN
        labels.append(label if answer_key in names else NOT_SPLIT)
    return tuple(labels)


def shown_request(record: PeakRecord, seed: int) -> EditRequest:
    """The record's edit, with the shown halves of O and O_h for APP."""
    request = edit_request(record)
    half_of = halves(record, seed)
    target_key = comparable(record.target_new)
    shown = {}
    for list_name, labels in half_of.items():
        answers = zip(record.lists[list_name], labels, strict=True)
        shown[list_name] = tuple(
            answer
            for answer, label in answers
            if label != UNSHOWN and comparable(answer) != target_key
        )
    return replace(request, correct=shown["correct"], false=shown["hard"])


def foreign_record(record: PeakRecord, pool: Sequence[PeakRecord], seed: int) -> PeakRecord | None:
    """A record of the same relation about another subject, with answers that are none of this record's."""
    for other in others_of_relation(record, pool, seed):
        if foreign_answers(record, other):
            return other
    return None


def foreign_answers(record: PeakRecord, other: PeakRecord) -> tuple[str, ...]:
    """The correct answers of another record that are in none of this record's lists."""
    known_keys = {comparable(answer) for answers in record.lists.values() for answer in answers}
    return tuple(answer for answer in other.correct if comparable(answer) not in known_keys)


@dataclass(frozen=True)
class HeldOutAnswers:
    """A run's records with the halves of their lists, drawn by ``seed``.

    ``pool`` are the records whose answers may be shown for another record's.
    """

    run: PeakRun
    pool: Sequence[PeakRecord]
    seed: int = 0

    @cached_property
    def foreign(self) -> dict[int, PeakRecord]:
        """By the number of each record that has one, the record whose O is shown for its own."""
        foreign_records = {}
        for record in self.run.data.records:
            other = foreign_record(record, self.pool, self.seed)
            if other is not None:
                foreign_records[record.case_id] = other
        return foreign_records

    def run_of(self, given: str) -> PeakRun:
        """The run of the records that can be edited with these answers given.

        All can, but with ``FOREIGN`` those without a foreign record; a ``UserError`` where none is left.
        """
        if given != FOREIGN:
            return self.run
        records = tuple(r for r in self.run.data.records if r.case_id in self.foreign)
        if not records:
            raise UserError(
                f"{self.run.data.path}: no record has another one of its relation whose correct answers"
                " could be shown for its own; give more records"
            )
        return replace(self.run, data=replace(self.run.data, records=records))

    def request(self, record: PeakRecord, given: str) -> EditRequest:
        """A record's edit as APP's loss is given it."""
        request = shown_request(record, self.seed)
        if given == HALF_OF_CORRECT:
            return replace(request, false=())
        if given == FOREIGN:
            answers = foreign_answers(record, self.foreign[record.case_id])
            count = max(1, len(request.correct))
            return replace(request, correct=answers[:count])
        return request

    def mode(self, given: str) -> Mode[PeakRecord]:
        """How these edits are made: rows are kept by the record and the answers that the loss is given."""

        def edits(editor: Editor, records: Sequence[PeakRecord]) -> Sequence[Edit]:
            return editor.edit([self.request(record, given) for record in records])

        def content(record: PeakRecord) -> object:
            request = self.request(record, given)
            return record.to_json(), list(request.correct), list(request.false)

        return Mode("given answers", edits, content=content)

    def scores(
        self, editor: Editor, given: str = "", *, from_store_only: bool = False
    ) -> pd.DataFrame:
        """Scores before and after, with the half of each answer; without ``given`` of ordinary edits."""
        run = self.run_of(given)
        mode = self.mode(given) if given else INDEPENDENT
        scores = run.scores(editor, mode, from_store_only=from_store_only)
        return with_halves(scores, run.data.records, self.seed)

    def part(self, method: str, editor: Editor, given: str = "") -> Part:
        """The table of a method's scores."""
        settings = {**editor.settings(), "halves_seed": self.seed}
        if given:
            settings["given"] = given
        case_ids = [record.case_id for record in self.run_of(given).data.records]
        read_scores = partial(self.scores, editor, given)
        return part_of_cases(str(TableKey("", method, given)), settings, read_scores, case_ids)


def with_halves(scores: pd.DataFrame, records: Sequence[PeakRecord], seed: int) -> pd.DataFrame:
    """A score table with the column ``half``, which is ``NOT_SPLIT`` of all other lists."""
    labels = {}
    for record in records:
        for list_name, labels_of_list in halves(record, seed).items():
            for answer_index, label in enumerate(labels_of_list):
                labels[record.case_id, list_name, answer_index] = label
    answers = zip(scores["case_id"], scores["list"], scores["answer_index"], strict=True)
    is_own_prompt = scores["role"] != "locality"
    half = pd.Series(
        [labels.get(answer, NOT_SPLIT) for answer in answers], index=scores.index, dtype=object
    )
    return scores.assign(half=half.where(is_own_prompt, NOT_SPLIT))


def publication(params: Mapping[str, Any]) -> Publication:
    """Editors of notebook 04's parameter ``held_out``: alone, and with APP given what it is given."""
    run = studied_run(params)
    held_out = HeldOutAnswers(run, all_records(params), params["seed"])
    editors = params["held_out"]
    with_app = [f"{editor}+app" for editor in editors]
    built = editors_of(run, [*editors, *with_app], params)
    # What the primary tests need comes first, for every editor.
    parts = []
    for given in (HALF, FOREIGN, HALF_OF_CORRECT, ""):
        for name in editors:
            if given == HALF:
                parts.append(held_out.part(name, built[name]))
            parts.append(held_out.part(f"{name}+app", built[f"{name}+app"], given))
    return publication_of(run, params, parts, with_app, {"halves_seed": params["seed"]})
