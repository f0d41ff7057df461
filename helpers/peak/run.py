"""Scores of PEAK records before and after edits, computed in batches and kept in the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd

from helpers.editing.edit import Edit
from helpers.editing.editor import Editor
from helpers.editing.request import EditRequest
from helpers.editing.sequence import SequenceState
from helpers.kept import kept_whole, load_if_intact
from helpers.models import LanguageModel
from helpers.peak.metrics import COLUMNS, KEYS
from helpers.peak.records import STRICT, PeakData, PeakRecord
from helpers.peak.shown import SPLIT_VERSION, split_record
from helpers.records import comparable
from helpers.results.evaluation import (
    INDEPENDENT,
    Asked,
    Benchmark,
    Evaluation,
    Mode,
    Tables,
    joined,
    score_cases,
)
from helpers.results.store import ResultsStore
from helpers.scoring.answers import Question, score_answers

SCORING_VERSION = 1  # raise it when what is scored, or how, changes
Ask = Callable[[PeakRecord], Asked]
_STATE = "sequence"


def edit_request(record: PeakRecord) -> EditRequest:
    """A record as an edit: append o*, with O and O_h for APP, without o* itself."""
    target = comparable(record.target_new)
    correct, false = (
        tuple(answer for answer in answers if comparable(answer) != target)
        for answers in (record.correct, record.hard_false)
    )
    return EditRequest(
        subject=record.subject,
        prompt=record.prompt,
        target=record.target_new,
        correct=correct,
        false=false,
        record=str(record.case_id),
    )


def questions(record: PeakRecord) -> Asked:
    """All questions of a record, and the key of each answer in their order."""
    lists = record.lists
    answers = tuple(answer for group in lists.values() for answer in group)
    record_questions, keys = [], []
    prompts = [("edit", 0, record.edit_prompt)]
    prompts += [("paraphrase", i, prompt) for i, prompt in enumerate(record.paraphrases)]
    for role, prompt_index, prompt in prompts:
        record_questions.append(Question(prompt, answers))
        for name, group in lists.items():
            keys += [(role, prompt_index, name, index) for index in range(len(group))]
    for prompt_index, (prompt, prompt_answer) in enumerate(record.locality):
        _, first_answer = record.locality[0]
        locality_answers = (record.target_new, prompt_answer, first_answer)
        record_questions.append(Question(prompt, locality_answers))
        keys += [("locality", prompt_index, name, 0) for name in ("target", "locality", "first")]
    table = pd.DataFrame(keys, columns=KEYS[1:])
    table.insert(0, "case_id", record.case_id)
    return record_questions, table


def score_records(
    lm: LanguageModel,
    records: Sequence[PeakRecord],
    edits: Edit | Sequence[Edit] | None = None,
    *,
    ask: Ask = questions,
    columns: Sequence[str] = ("tokens", "sum"),
    progress: bool = False,
) -> pd.DataFrame:
    """Long table (case_id, role, prompt_index, list, answer_index, ``columns``) of all records.

    Each is scored under its own of the ``edits``, or all under one; without any, by the unedited model.
    """
    return score_cases(lm, records, ask, edits, columns=columns, progress=progress)


def joined_scores(lm: LanguageModel, record: PeakRecord, edit: Edit) -> pd.DataFrame:
    """One record's scores before and after an edit, in the columns the metrics take."""
    before = score_records(lm, [record]).rename(columns={"sum": "sum_before"})
    after = score_records(lm, [record], edit)
    return before.assign(sum_after=after["sum"])


def edit_prompt_probabilities(
    lm: LanguageModel, record: PeakRecord, states: Mapping[str, Edit | None]
) -> pd.DataFrame:
    """Probability of every answer at a record's edit prompt: answer, list, a column per state.

    A state is an edit with a name, or None: the unedited model.
    """
    record_questions, _ = questions(record)
    question = record_questions[0]  # at the edit prompt
    names = [name for name, answers in record.lists.items() for _ in answers]
    table = pd.DataFrame({"answer": question.answers, "list": names})
    for name, edit in states.items():
        edits = [] if edit is None else [edit]
        scores = score_answers(lm, [question], edits, [len(edits) - 1])
        table[name] = np.exp(scores["mean"].to_numpy())
    return table


@dataclass(frozen=True)
class PeakRun:
    """One model on one data set, with the store its scores are kept in."""

    lm: LanguageModel
    data: PeakData
    store: ResultsStore
    chunk: int | None = None  # records edited together: what an interruption can cost
    progress: bool = False
    ask: Ask = questions  # of each record
    ask_settings: dict[str, Any] = field(default_factory=dict)  # what else ``ask`` depends on
    # Objectives are shown half of each list, and what is scored is the other half (``peak.shown``).
    shown_half: bool = False

    @cached_property
    def benchmark(self) -> Benchmark[PeakRecord]:
        """The records and what is asked of each."""
        return Benchmark(
            name="peak",
            version=SCORING_VERSION,
            data={
                "dataset": self.data.name,
                "checksum": self.data.checksum,
                "strict_lists": STRICT if self.data.strict_lists else False,
            },
            path=str(self.data.path),
            cases=self.data.records,
            request=self.request,
            questions=self.questions,
            relation=attrgetter("relation"),
            content=PeakRecord.to_json,
            settings=self.ask_settings | ({"shown_half": SPLIT_VERSION} if self.shown_half else {}),
        )

    def request(self, record: PeakRecord) -> EditRequest:
        """A record as an edit, with the answers that its objective is shown."""
        return edit_request(split_record(record).shown if self.shown_half else record)

    def questions(self, record: PeakRecord) -> Asked:
        """What is asked of a record."""
        return self.ask(split_record(record).unshown if self.shown_half else record)

    def evaluation(
        self, editor: Editor | None = None, mode: Mode[PeakRecord] = INDEPENDENT
    ) -> Evaluation[PeakRecord]:
        """The records under an editor's edits, or of the unedited model."""
        return Evaluation(
            self.lm,
            self.benchmark,
            self.store,
            editor,
            mode,
            chunk=self.chunk,
            progress=self.progress,
        )

    def scored(self, editor: Editor | None = None) -> pd.DataFrame:
        """Scores of each record under its own, independent edit, or by the unedited model."""
        return self.evaluation(editor).complete()

    def scores(
        self,
        editor: Editor,
        mode: Mode[PeakRecord] = INDEPENDENT,
        *,
        from_store_only: bool = False,
    ) -> pd.DataFrame:
        """Scores before and after, as the metrics take them; if ``from_store_only``, those in the store."""
        scores = self.evaluation(editor, mode).before_and_after(from_store_only=from_store_only)
        return pd.DataFrame(columns=COLUMNS) if scores.empty else scores

    def edits(self, editor: Editor) -> pd.DataFrame:
        """Diagnostics (``EDIT_COLUMNS``) of each edit of this run's records that was made here."""
        return self.evaluation(editor).edits()

    def settings(self, more: Mapping[str, Any]) -> dict[str, Any]:
        """What the scores are of: model, data file, scoring and ``more``, such as an editor's."""
        return {**self.evaluation().source, **more}


@dataclass(frozen=True)
class PeakSequence:
    """Edits of a run's records by one editor, in file order, each upon the ones before.

    At each checkpoint every record edited so far is scored under the cumulative edit, so that
    additivity includes what later edits did to earlier records. The edit is kept next to the
    scores: a longer sequence continues where a shorter one ended.
    """

    run: PeakRun
    editor: Editor

    def scores(self, checkpoints: Sequence[int]) -> pd.DataFrame:
        """Scores of the edited records, before all edits and at the last checkpoint; others are kept."""
        counts = sorted(set(checkpoints))
        missing = [count for count in counts if self.evaluation(count).missing()]
        if missing:
            self.run.evaluation().check(self.run.data.records[: missing[-1]])
        for number, count in enumerate(counts):
            self.evaluation(count).complete(partial(self._made, counts[:number]))
        return joined(self.run.scored(), self.evaluation(counts[-1]).read())

    def evaluation(self, count: int) -> Evaluation[PeakRecord]:
        """The first ``count`` records under the edit of them all, kept by the content of them all."""
        records = self.run.data.records[:count]
        edited = [record.case_id for record in records]
        mode: Mode[PeakRecord] = Mode("sequential", settings={"edited": edited}, in_sequence=True)
        first = replace(self.run, data=replace(self.run.data, records=records))
        return first.evaluation(self.editor, mode)

    def _made(self, earlier: Sequence[int], records: Sequence[PeakRecord]) -> Tables:
        """Make and keep the edit of all records; their scores under it."""
        evaluation = self.evaluation(len(records))
        state = self._state(earlier, [self.run.request(record) for record in records])
        with kept_whole(evaluation.results.folder / _STATE) as scratch:
            state.save(scratch)
        total = self.editor.edit_of(state)
        return {**evaluation.score(records, total), **evaluation.probe_table(records)}

    def _state(self, earlier: Sequence[int], requests: Sequence[EditRequest]) -> SequenceState:
        """The sequence's state after all requests, from the last earlier checkpoint that is intact."""
        if self.editor.sees_all:
            return SequenceState(self.editor.edit_jointly(requests))
        count, state = self._last_intact(earlier)
        for request in requests[count:]:
            state = self.editor.after_turn(state, [request])
        return state

    def _last_intact(self, earlier: Sequence[int]) -> tuple[int, SequenceState]:
        """The last of the earlier checkpoints that is intact, and its state; else 0 and no edits."""
        for count in reversed(earlier):
            path = self.evaluation(count).results.folder / _STATE
            stored = load_if_intact(path, SequenceState.load)
            if stored is not None:
                return count, stored.to(self.run.lm.device)
        return 0, SequenceState()
