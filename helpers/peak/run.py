"""Scores of PEAK records before and after edits, computed in batches and kept in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd

from helpers import UserError
from helpers.editing.edit import Edit
from helpers.editing.editor import Editor
from helpers.editing.request import EditRequest
from helpers.editing.weight_edit import WeightEdit
from helpers.kept import kept_whole, load_if_intact
from helpers.models import LanguageModel
from helpers.peak.metrics import COLUMNS, KEYS
from helpers.peak.records import STRICT, PeakData, PeakRecord
from helpers.records import comparable
from helpers.results.evaluation import Asked, Benchmark, Evaluation, Make, joined, score_cases
from helpers.results.store import Cases, Results, ResultsStore, settings_key
from helpers.scoring.answers import Question, score_answers

SCORING_VERSION = 1  # raise it when what is scored, or how, changes
Ask = Callable[[PeakRecord], Asked]
_EDIT = "edit.safetensors"


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
            request=edit_request,
            questions=self.ask,
            relation=attrgetter("relation"),
            content=PeakRecord.to_json,
            settings=self.ask_settings,
        )

    def evaluation(self, editor: Editor | None = None) -> Evaluation[PeakRecord]:
        """The records under an editor's independent edits, or of the unedited model."""
        return Evaluation(
            self.lm,
            self.benchmark,
            self.store,
            editor,
            chunk=self.chunk,
            progress=self.progress,
        )

    def score(
        self, records: Sequence[PeakRecord], edits: Edit | Sequence[Edit] | None = None
    ) -> pd.DataFrame:
        """``score_records`` of this run's model and questions."""
        return self.evaluation().score(records, edits)

    def scored(self, editor: Editor | None = None) -> pd.DataFrame:
        """Scores of each record under its own, independent edit, or by the unedited model."""
        return self.evaluation(editor).complete()

    def scores(self, editor: Editor, *, stored_only: bool = False) -> pd.DataFrame:
        """Scores before and after, as the metrics take them; if ``stored_only``, those in the store only."""
        scores = self.evaluation(editor).before_and_after(stored_only=stored_only)
        return pd.DataFrame(columns=COLUMNS) if scores.empty else scores

    def edits(self, editor: Editor) -> pd.DataFrame:
        """Diagnostics (``EDIT_COLUMNS``) of each edit of this run's records that was made here."""
        return self.evaluation(editor).edits()

    def completed(self, results: Results, make: Make[PeakRecord]) -> pd.DataFrame:
        """The scores of all records; ``make`` gives those that are missing, as tables by kind."""
        return self.evaluation().completed(results, make)

    def check(self, records: Sequence[PeakRecord]) -> None:
        """Refuse records that the model cannot be asked about, all before the first is edited."""
        self.evaluation().check(records)

    @cached_property
    def cases(self) -> Cases[PeakRecord]:
        """The records by number, kept by their content."""
        return self.evaluation().cases

    def results(self, editor: Editor | None = None) -> Results:
        """Where an editor's results are kept; without one, the unedited model's."""
        return self.evaluation(editor).results

    def open(self, more: Mapping[str, Any], records: str = "by content") -> Results:
        """Where rows of records are kept, whichever file they are from; ``more`` as in ``settings``."""
        return self.evaluation().open(more, records)

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
        records = self.run.data.records
        missing = [count for count in counts if not self.results(count).done()]
        if missing:
            self.run.check(records[: missing[-1]])
            self._complete(missing, [count for count in counts if count < missing[0]])
        return joined(self.run.scored(), self.results(counts[-1]).read())

    def results(self, count: int) -> Results:
        """Where the scores after ``count`` edits are kept: by the content of all their records."""
        records = self.run.data.records[:count]
        content = settings_key({"records": [record.to_json() for record in records]})
        edited = [record.case_id for record in records]
        settings = {"mode": "sequential", "edited": edited, **self.editor.settings()}
        return self.run.open(settings, content)

    def _complete(self, missing: Sequence[int], earlier: Sequence[int]) -> None:
        """Edit on from the last earlier checkpoint whose update is intact."""
        start, total = self._last_intact(earlier)
        records = self.run.data.records[start : missing[-1]]
        requests = [edit_request(record) for record in records]
        for count, total_after in enumerate(self._totals(total, requests), start + 1):
            if count in missing:
                self._keep(count, total_after)

    def _last_intact(self, earlier: Sequence[int]) -> tuple[int, Edit]:
        """The last of the earlier checkpoints from which to edit on, and its edit; else 0 and none."""
        count = 0
        total: Edit = WeightEdit({})
        if not self.editor.is_resumable:
            return count, total
        for checkpoint in earlier:
            stored = load_if_intact(self.results(checkpoint).folder / _EDIT, Edit.load)
            if stored is not None:
                count, total = checkpoint, stored.to(self.run.lm.device)
        return count, total

    def _totals(self, total: Edit, requests: Sequence[EditRequest]) -> Iterator[Edit]:
        """The cumulative edit after each request; ``total`` is what the edits before them made."""
        if not self.editor.is_resumable:
            yield from self.editor.edit_sequentially(requests)
            return
        for request in requests:
            total = self.editor.edit_on(total, [request])
            yield total

    def _keep(self, count: int, total: Edit) -> None:
        """Store the edit after ``count`` edits, and the scores of their records under it."""
        results = self.results(count)
        with kept_whole(results.folder / _EDIT) as scratch:
            total.save(scratch)
        scores = self.run.score(self.run.data.records[:count], total)
        if scores["sum"].isna().any():
            raise UserError(f"{self.editor.method}: a score is not finite; use a wider dtype")
        results.add({"scores": scores})
