"""A benchmark's cases asked of one model before and after edits, with the store that keeps their scores.

A *benchmark* says what its cases are, which edit each of them asks for, and what is asked then. An
*evaluation* is a benchmark with a model, an editor and a store: which cases are missing, all of them made,
what is finished read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import pandas as pd

from helpers.editing.edit import Edit, Recognition
from helpers.editing.editor import Editor
from helpers.editing.request import EditRequest
from helpers.models import LanguageModel
from helpers.models.batching import records_at_once
from helpers.records import Numbered, read_all
from helpers.results.store import Cases, Results, ResultsStore, flag_unusable
from helpers.scoring.answers import Question, score_answers, tokenised

Case = TypeVar("Case", bound=Numbered)
Asked = tuple[
    list[Question], pd.DataFrame
]  # questions, and a row of keys for each of their answers
Make = Callable[[Sequence[Case]], Mapping[str, pd.DataFrame]]
EDIT_COLUMNS = ["case_id", "failure", "steps", "final_nll", "relative_norm", "exploding"]
_SCORES = ("tokens", "sum")
_TYPES = {  # of the columns that are published, of those a table has
    "case_id": "int32",
    "form": "category",
    "sample": "int16",
    "role": "category",
    "prompt_index": "int16",
    "list": "category",
    "answer_index": "int16",
    "tokens": "int16",
    "sum_before": "float32",
    "sum_after": "float32",
    "top_before": "int16",
    "top_after": "int16",
    "entry": "int16",
    "nearness": "float32",
}


@dataclass(frozen=True)
class Benchmark(Generic[Case]):
    """What is edited and asked, and of which data.

    Args:
        name: of its room, such as "counterfact".
        version: raised when what is scored, or how, changes.
        data: the file that the cases are from (``dataset``, ``checksum``). It is the source of what is
            published; in the store a case's content counts instead.
        path: of that file, for messages.
        request: the edit that a case asks for.
        questions: what a case asks an edited model, with the keys of the answers, ``case_id`` first.
        relation: of a case, None where it is unknown; intervals are by relation.
        content: all that a case's rows depend on besides the settings, as JSON values.
        settings: what else all rows depend on.
    """

    name: str
    version: int
    data: Mapping[str, Any]
    path: str
    cases: Sequence[Case]
    request: Callable[[Case], EditRequest]
    questions: Callable[[Case], Asked]
    relation: Callable[[Case], str | None]
    content: Callable[[Case], object]
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluation(Generic[Case]):
    """A benchmark's scores under each case's own edit by one editor, or of the unedited model.

    ``mode`` names in the store how the edits are made; ``chunk`` cases are edited together, which is what an
    interruption can cost.
    """

    lm: LanguageModel
    benchmark: Benchmark[Case]
    store: ResultsStore
    editor: Editor | None = None
    mode: str = "independent"
    chunk: int | None = None
    progress: bool = False

    @cached_property
    def cases(self) -> Cases[Case]:
        """The cases by number, kept by their content."""
        by_id = {case.case_id: case for case in self.benchmark.cases}
        chunk = self.chunk or records_at_once(self.lm.device, 32)
        return Cases(by_id, chunk, self.benchmark.content)

    @property
    def source(self) -> dict[str, Any]:
        """What the scores of every editor are of: benchmark, data file, model and scoring."""
        return {
            "benchmark": self.benchmark.name,
            **self.benchmark.data,
            **self.lm.identity,
            "scoring_version": self.benchmark.version,
            "scored_by": {"answers": Question.version},
            **self.benchmark.settings,
        }

    @property
    def results(self) -> Results:
        """Where the scores are kept."""
        if self.editor is None:
            return self.open({"editor": "none"})
        return self.open({"mode": self.mode, **self.editor.settings()})

    def open(self, more: Mapping[str, Any], records: str = "by content") -> Results:
        """Where rows of cases are kept, whichever file they are from; they depend on ``more`` besides."""
        settings = {k: v for k, v in self.source.items() if k not in self.benchmark.data}
        return self.store.open({**settings, **more, "records": records})

    def missing(self) -> list[int]:
        """The numbers of the cases that are not done."""
        return self.cases.missing(self.results)

    def complete(self) -> pd.DataFrame:
        """The scores of all cases; those that are missing are made."""
        return self.completed(self.results, self._made)

    def read(self, kind: str = "scores") -> pd.DataFrame:
        """What is finished: "scores", or "edits" (``EDIT_COLUMNS``)."""
        return self.cases.read(self.results, kind)

    def edits(self) -> pd.DataFrame:
        """Diagnostics (``EDIT_COLUMNS``) of each edit that was made."""
        return self.read("edits").reindex(columns=EDIT_COLUMNS)

    def before_and_after(self, *, stored_only: bool = False) -> pd.DataFrame:
        """Scores of the unedited model and under each edit that was not given up, a row an answer.

        If ``stored_only``, nothing is computed: the scores are those in the store.
        """
        unedited = replace(self, editor=None)
        before = unedited.read() if stored_only else unedited.complete()
        after = self.read() if stored_only else self.complete()
        if before.empty or after.empty:
            return pd.DataFrame()
        edits = self.edits()
        failed = edits.loc[edits["failure"] != "", "case_id"]
        return joined(before, after[~after["case_id"].isin(failed)])

    def completed(self, results: Results, make: Make[Case]) -> pd.DataFrame:
        """The scores of all cases; ``make`` gives those that ``results`` lack, as tables by kind."""
        self.check([self.cases.by_id[case_id] for case_id in self.cases.missing(results)])
        return self.cases.completed(results, make)

    def check(self, cases: Sequence[Case]) -> None:
        """Refuse cases that the model cannot be asked about, all before the first is edited."""

        def ask(case: Case) -> None:
            self.benchmark.request(case)
            tokenised(self.lm, self.benchmark.questions(case)[0])

        read_all(((f"{self.benchmark.path}, case_id {c.case_id}", c) for c in cases), ask)

    def score(
        self, cases: Sequence[Case], edits: Edit | Sequence[Edit] | None = None
    ) -> pd.DataFrame:
        """``score_cases`` by this evaluation's model and questions."""
        return score_cases(self.lm, cases, self.benchmark.questions, edits, progress=self.progress)

    def _made(self, cases: Sequence[Case]) -> dict[str, pd.DataFrame]:
        if self.editor is None:
            return {"scores": self.score(cases)}
        edits = self.editor.edit([self.benchmark.request(case) for case in cases])
        scores = self.score(cases, edits)
        diagnostics = flag_unusable(diagnostics_table(cases, edits), scores, "sum")
        return {"scores": scores, "edits": diagnostics}


def score_cases(
    lm: LanguageModel,
    cases: Sequence[Case],
    ask: Callable[[Case], Asked],
    edits: Edit | Sequence[Edit] | None = None,
    *,
    columns: Sequence[str] = _SCORES,
    progress: bool = False,
) -> pd.DataFrame:
    """Long table (the keys that ``ask`` gives, then ``columns``) of all cases.

    Each is scored under its own of the ``edits``, or all under one; without any, by the unedited model.
    """
    if not cases:
        return pd.DataFrame(columns=["case_id", *columns])
    all_questions, keys, owners = [], [], []
    recognitions = []
    for index, case in enumerate(cases):
        case_questions, case_keys = ask(case)
        all_questions += case_questions
        keys.append(case_keys)
        edit = edits if edits is None or isinstance(edits, Edit) else edits[index]
        recognitions.append(recognition_table(lm, case_questions, edit))
        owner = index
        if edits is None:
            owner = -1
        elif isinstance(edits, Edit):
            owner = 0
        owners += [owner] * len(case_questions)
    all_edits = [edits] if isinstance(edits, Edit) else edits
    scores = score_answers(lm, all_questions, all_edits, owners, progress=progress)
    table = pd.concat(keys, ignore_index=True).join(scores[list(columns)])
    return table.join(pd.concat(recognitions, ignore_index=True))


def recognition_table(
    lm: LanguageModel, case_questions: Sequence[Question], edit: Edit | None
) -> pd.DataFrame:
    """What an edit takes each answer's prompt for; no columns where it acts after every prompt.

    Columns: ``entry``, the number of the statement or key it acts by (-1: none), and ``nearness``.
    """
    number_of_answers = [len(question.answers) for question in case_questions]
    prompts = [question.prompt for question in case_questions]
    recognised = None if edit is None else edit.recognised(lm, prompts)
    if recognised is None:
        return pd.DataFrame(index=range(sum(number_of_answers)))
    table = pd.DataFrame(recognised, columns=Recognition._fields)
    return table.loc[table.index.repeat(number_of_answers)]


def diagnostics_table(cases: Sequence[Numbered], edits: Sequence[Edit]) -> pd.DataFrame:
    """One row per edit; ``final_nll`` is of the last evaluation, perhaps before the last step."""
    rows = []
    for case, edit in zip(cases, edits, strict=True):
        noted = edit.diagnostics
        losses = noted.get("losses")
        row = {
            "case_id": case.case_id,
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
    keys = [name for name in before if name not in _SCORES]
    first = before.rename(columns={"sum": "sum_before"})
    second = after.rename(columns={"sum": "sum_after"}).drop(columns="tokens")
    return first.merge(second, on=keys, validate="1:1")


def small(table: pd.DataFrame) -> pd.DataFrame:
    """A table as it is published: no text but names of lists, log-probabilities in single precision."""
    types = {name: kind for name, kind in _TYPES.items() if name in table}
    return table[list(types)].astype(types)
