"""Scores of PEAK records before and after edits, computed in batches and kept in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from helpers import UserError
from helpers.editing.edit import Edit, Recognition
from helpers.editing.editor import Editor
from helpers.editing.request import EditRequest
from helpers.editing.weight_edit import WeightEdit
from helpers.kept import kept_whole, load_if_intact
from helpers.models import LanguageModel
from helpers.models.batching import records_at_once
from helpers.peak.metrics import COLUMNS, KEYS
from helpers.peak.records import STRICT, PeakData, PeakRecord
from helpers.records import comparable, read_all
from helpers.results.store import Cases, Results, ResultsStore, flag_unusable, settings_key
from helpers.scoring.answers import Question, score_answers, tokenised

EDIT_COLUMNS = ["case_id", "failure", "steps", "final_nll", "relative_norm", "exploding"]
SCORING_VERSION = 1  # raise it when what is scored, or how, changes
Asked = tuple[list[Question], pd.DataFrame]
Ask = Callable[[PeakRecord], Asked]
Make = Callable[[Sequence[PeakRecord]], Mapping[str, pd.DataFrame]]
_OF_THE_FILE = ("dataset", "checksum", "strict_lists")  # a record's own content states as much
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
    all_questions, keys, owners = [], [], []
    recognitions = []
    for index, record in enumerate(records):
        record_questions, record_keys = ask(record)
        all_questions += record_questions
        keys.append(record_keys)
        edit = edits if edits is None or isinstance(edits, Edit) else edits[index]
        recognitions.append(recognition_table(lm, record_questions, edit))
        owner = index
        if edits is None:
            owner = -1
        elif isinstance(edits, Edit):
            owner = 0
        owners += [owner] * len(record_questions)
    all_edits = [edits] if isinstance(edits, Edit) else edits
    scores = score_answers(lm, all_questions, all_edits, owners, progress=progress)
    table = pd.concat(keys, ignore_index=True).join(scores[list(columns)])
    return table.join(pd.concat(recognitions, ignore_index=True))


def recognition_table(
    lm: LanguageModel, record_questions: Sequence[Question], edit: Edit | None
) -> pd.DataFrame:
    """What an edit takes each answer's prompt for; no columns where it acts after every prompt.

    Columns: ``entry``, the number of the statement or key it acts by (-1: none), and ``nearness``.
    """
    number_of_answers = [len(question.answers) for question in record_questions]
    prompts = [question.prompt for question in record_questions]
    recognised = None if edit is None else edit.recognised(lm, prompts)
    if recognised is None:
        return pd.DataFrame(index=range(sum(number_of_answers)))
    table = pd.DataFrame(recognised, columns=Recognition._fields)
    return table.loc[table.index.repeat(number_of_answers)]


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

    def score(
        self, records: Sequence[PeakRecord], edits: Edit | Sequence[Edit] | None = None
    ) -> pd.DataFrame:
        """``score_records`` of this run's model and questions."""
        return score_records(self.lm, records, edits, ask=self.ask, progress=self.progress)

    def scored(self, editor: Editor | None = None) -> pd.DataFrame:
        """Scores of each record under its own, independent edit, or by the unedited model."""

        def make(records: Sequence[PeakRecord]) -> dict[str, pd.DataFrame]:
            if editor is None:
                return {"scores": self.score(records)}
            edits = editor.edit([edit_request(record) for record in records])
            scores = self.score(records, edits)
            diagnostics = flag_unusable(diagnostics_table(records, edits), scores, "sum")
            return {"scores": scores, "edits": diagnostics}

        return self.completed(self.results(editor), make)

    def scores(self, editor: Editor, *, stored_only: bool = False) -> pd.DataFrame:
        """Scores before and after, as the metrics take them; if ``stored_only``, those in the store only."""
        if stored_only:
            unedited = self.cases.read(self.results())
            edited = self.cases.read(self.results(editor))
        else:
            unedited = self.scored()
            edited = self.scored(editor)
        if unedited.empty or edited.empty:
            return pd.DataFrame(columns=COLUMNS)
        edits = self.edits(editor)
        failed = edits.loc[edits["failure"] != "", "case_id"]
        return joined(unedited, edited[~edited["case_id"].isin(failed)])

    def edits(self, editor: Editor) -> pd.DataFrame:
        """Diagnostics (``EDIT_COLUMNS``) of each edit of this run's records that was made here."""
        return self.cases.read(self.results(editor), "edits").reindex(columns=EDIT_COLUMNS)

    def completed(self, results: Results, make: Make) -> pd.DataFrame:
        """The scores of all records; ``make`` gives those that are missing, as tables by kind."""
        self.check([self.cases.by_id[case_id] for case_id in self.cases.missing(results)])
        return self.cases.completed(results, make)

    def check(self, records: Sequence[PeakRecord]) -> None:
        """Refuse records that the model cannot be asked about, all before the first is edited."""

        def ask(record: PeakRecord) -> None:
            edit_request(record)
            tokenised(self.lm, self.ask(record)[0])

        read_all(((f"{self.data.path}, case_id {r.case_id}", r) for r in records), ask)

    @cached_property
    def cases(self) -> Cases[PeakRecord]:
        """The records by number, kept by their content."""
        by_id = {record.case_id: record for record in self.data.records}
        chunk = self.chunk or records_at_once(self.lm.device, 32)
        return Cases(by_id, chunk, PeakRecord.to_json)

    def results(self, editor: Editor | None = None) -> Results:
        """Where an editor's results are kept; without one, the unedited model's."""
        if editor is None:
            return self.open({"editor": "none"})
        return self.open({"mode": "independent", **editor.settings()})

    def open(self, more: Mapping[str, Any], records: str = "by content") -> Results:
        """Where rows of records are kept, whichever file they are from; ``more`` as in ``settings``."""
        settings = self.settings(more)
        for name in _OF_THE_FILE:
            del settings[name]
        return self.store.open({**settings, "records": records})

    def settings(self, more: Mapping[str, Any]) -> dict[str, Any]:
        """What the scores are of: model, data file, scoring and ``more``, such as an editor's."""
        return {
            "benchmark": "peak",
            "dataset": self.data.name,
            "checksum": self.data.checksum,
            "strict_lists": STRICT if self.data.strict_lists else False,
            **self.lm.identity,
            "scoring_version": SCORING_VERSION,
            "scored_by": {"answers": Question.version},
            **self.ask_settings,
            **more,
        }


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

    @property
    def _is_resumable(self) -> bool:
        """Whether the cumulative edit is all that the editor remembers; PRUNE remembers more."""
        return type(self.editor).edit_sequentially is Editor.edit_sequentially

    def _last_intact(self, earlier: Sequence[int]) -> tuple[int, Edit]:
        """The last of the earlier checkpoints from which to edit on, and its edit; else 0 and none."""
        count = 0
        total: Edit = WeightEdit({})
        if not self._is_resumable:
            return count, total
        for checkpoint in earlier:
            stored = load_if_intact(self.results(checkpoint).folder / _EDIT, Edit.load)
            if stored is not None:
                count, total = checkpoint, stored.to(self.run.lm.device)
        return count, total

    def _totals(self, total: Edit, requests: Sequence[EditRequest]) -> Iterator[Edit]:
        """The cumulative edit after each request; ``total`` is what the edits before them made."""
        if not self._is_resumable:
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


def diagnostics_table(records: Sequence[PeakRecord], edits: Sequence[Edit]) -> pd.DataFrame:
    """One row per edit; ``final_nll`` is of the last evaluation, perhaps before the last step."""
    rows = []
    for record, edit in zip(records, edits, strict=True):
        noted = edit.diagnostics
        losses = noted.get("losses")
        row = {
            "case_id": record.case_id,
            "failure": noted.get("failure", ""),
            "steps": noted.get("steps"),
            "final_nll": losses[-1].get("nll") if losses else None,
            "relative_norm": max(noted.get("relative_norm", {}).values(), default=None),
            "exploding": bool(noted.get("exploding", False)),
        }
        rows.append(row)
    return pd.DataFrame(rows, columns=EDIT_COLUMNS)


def joined(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """Scores of the same questions before and after an edit in one table, a row an answer."""
    first = before.rename(columns={"sum": "sum_before"})
    second = after.rename(columns={"sum": "sum_after"}).drop(columns="tokens")
    return first.merge(second, on=KEYS, validate="1:1")
