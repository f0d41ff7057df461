"""A benchmark's cases asked of one model before and after edits, with the store that keeps their scores.

A *benchmark* has cases, and states which edit each asks for and what is asked then. A *mode* states
how these edits are made. An *evaluation* is a benchmark with a model, an editor, a mode and a store: which
cases are missing, all of them checked and made, what is finished read, without edits that were given up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import pandas as pd

from helpers import UserError
from helpers.editing.edit import Edit, Recognition
from helpers.editing.editor import Editor
from helpers.editing.icd import ScoredTexts
from helpers.editing.request import EditRequest
from helpers.models import LanguageModel
from helpers.models.batching import records_at_once
from helpers.processes import tell_run
from helpers.records import Numbered, read_all
from helpers.results.store import Cases, Results, ResultsStore, flag_unusable, settings_key
from helpers.scoring.answers import Question, score_answers, tokenised

Case = TypeVar("Case", bound=Numbered)
Asked = tuple[
    list[Question], pd.DataFrame
]  # questions, and a row of keys for each of their answers
CaseEdits = Edit | Sequence[Edit] | None  # one of all cases, one of each, or the unedited model
Tables = Mapping[str, pd.DataFrame]  # rows of cases by kind, "scores" among them
Score = Callable[[LanguageModel, Sequence[Case], CaseEdits], Tables]
EDIT_COLUMNS = ["case_id", "failure", "steps", "final_nll", "relative_norm", "exploding"]
PROBE_COLUMNS = [
    "case_id",
    "use",
    "kind",
    "prompt",
    "answer",
]  # of what icd trains on and what is scored
_SCORES = ("tokens", "sum")
_COMPARED = ("sum", "top")  # scores that an edit changes
_TYPES = {  # of the columns that are published
    "case_id": "int32",
    "other": "int32",
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
    "half": "category",
    "whitened": "float32",
    "cosine": "float32",
}


@dataclass(frozen=True)
class Benchmark(Generic[Case]):
    """What is edited and asked, and of which data.

    Args:
        name: of its room, such as "counterfact".
        version: raised when what is asked for, scored, or how, changes.
        data: the file that the cases are from (``dataset``, ``checksum``). It is the source of what is
            published; in the store a case's content counts instead.
        path: of that file, for messages; empty: they name the case alone.
        request: the edit that a case asks for. The store knows it by the case's content only: where it is
            made otherwise of the same case, ``version`` is raised.
        questions: what a case asks an edited model, with the keys of the answers, ``case_id`` first. A case
            of which the model cannot be asked this is refused.
        relation: of a case, None where it is unknown; intervals are by relation.
        content: all that a case's rows depend on in addition to the settings, as JSON values; None: on all
            cases.
        settings: what else all rows depend on.
        score: tables of cases under edits; by default "scores", of the answers to the ``questions``.
        finite: the column of scores that an edit must leave numbers; empty: none.
        items: what the cases are called in the store's settings, where this is the key of "by content", or of
            a digest of all contents where each case's rows depend on all cases.
        whole: settings that take the place of that digest, where the cases are named by something else.
        called: what messages call a case.
    """

    name: str
    version: int
    data: Mapping[str, Any]
    path: str
    cases: Sequence[Case]
    request: Callable[[Case], EditRequest]
    questions: Callable[[Case], Asked]
    relation: Callable[[Case], str | None]
    content: Callable[[Case], object] | None
    settings: Mapping[str, Any] = field(default_factory=dict)
    score: Score[Case] | None = None
    finite: str = "sum"
    items: str = "records"
    whole: Mapping[str, Any] | None = None
    called: Callable[[Case], str] = lambda case: f"case_id {case.case_id}"

    def placebo(self, edited_instead: Mapping[int, Case]) -> Mode[Case]:
        """The mode in which each case is under the edit of another one, given by the case's number.

        Rows are kept by the contents of both.
        """
        content = self.content
        assert content is not None, "a placebo's rows are kept by content"

        def foreign_edits(editor: Editor, cases: Sequence[Case]) -> Sequence[Edit]:
            return editor.edit([self.request(edited_instead[case.case_id]) for case in cases])

        def both_contents(case: Case) -> object:
            return content(case), content(edited_instead[case.case_id])

        return Mode("placebo", foreign_edits, content=both_contents)


@dataclass(frozen=True)
class Mode(Generic[Case]):
    """How the edits under which cases are scored are made.

    Args:
        name: in the store.
        edits: one for each case, by an editor; by default that of its own request.
        settings: what else rows depend on in this mode.
        content: of a case, in the place of the benchmark's.
        of_all: whether each case's rows depend on all cases.
        in_sequence: each edit is made upon the ones before it, in the order of the cases, and all cases are
            scored under the last: their rows depend on all cases, and are made together.
    """

    name: str
    edits: Callable[[Editor, Sequence[Case]], Sequence[Edit]] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    content: Callable[[Case], object] | None = None
    of_all: bool = False
    in_sequence: bool = False


INDEPENDENT: Mode[Any] = Mode("independent")


@dataclass(frozen=True)
class Evaluation(Generic[Case]):
    """A benchmark's scores under one editor's edits, or of the unedited model.

    ``chunk`` cases are edited together, which is what an interruption can cost. ``tell`` gets lines of
    progress.
    """

    lm: LanguageModel
    benchmark: Benchmark[Case]
    store: ResultsStore
    editor: Editor | None = None
    mode: Mode[Case] = INDEPENDENT
    chunk: int | None = None
    progress: bool = False
    tell: Callable[[str], None] = tell_run

    @property
    def unedited(self) -> Evaluation[Case]:
        """The same cases asked of the unedited model."""
        return replace(self, editor=None, mode=INDEPENDENT)

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
    def settings(self) -> dict[str, Any]:
        """All that the rows depend on; of the cases, whichever file they are from, where it is all of them.

        Otherwise each case's rows are kept by its own content (``cases``).
        """
        benchmark = self.benchmark
        scoring = {k: v for k, v in self.source.items() if k not in benchmark.data}
        made_by: dict[str, Any] = {"editor": "none"}
        if self.editor is not None:
            made_by = {"mode": self.mode.name, **self.editor.settings(), **self.mode.settings}
        of_cases: Mapping[str, Any] = {benchmark.items: "by content"}
        if self._is_of_all:
            of_cases = self._whole if benchmark.whole is None else benchmark.whole
        return {**scoring, **made_by, **of_cases}

    @property
    def results(self) -> Results:
        """Where the scores are kept."""
        return self.store.open(self.settings)

    @cached_property
    def cases(self) -> Cases[Case]:
        """The cases by number, kept by their content."""
        by_id: dict[int, Case] = {}
        for case in self.benchmark.cases:
            if case.case_id in by_id:
                raise UserError(
                    f"{self.benchmark.path or self.benchmark.name}: two cases have the case_id"
                    f" {case.case_id}; give each a number of its own"
                )
            by_id[case.case_id] = case
        chunk = self.chunk or records_at_once(self.lm.device, 32)
        content = None if self._is_of_all else self.benchmark.content
        return Cases(
            by_id,
            None if self.mode.in_sequence else chunk,
            self.mode.content or content,
            lambda line: self.tell(f"{self.editor.name if self.editor else 'unedited'}: {line}"),
        )

    def missing(self) -> list[int]:
        """The numbers of the cases that are not done."""
        return self.cases.missing(self.results)

    def complete(self, make: Callable[[Sequence[Case]], Tables] | None = None) -> pd.DataFrame:
        """The scores of all cases; those that are missing are checked, then made.

        ``make`` gives them as tables by kind; by default they are scored under their edits.
        """
        results = self.results
        self.check([self.cases.by_id[case_id] for case_id in self.cases.missing(results)])
        return self.cases.completed(results, make or self._made)

    def check(self, cases: Sequence[Case]) -> None:
        """Refuse cases that cannot be asked about or that train on it, all before the first is edited."""
        file = f"{self.benchmark.path}, " if self.benchmark.path else ""
        check_trained = self._check_of_trained()

        def check_case(case: Case) -> None:
            request = self.benchmark.request(case)
            asked_questions, _ = self.benchmark.questions(case)
            tokenised(self.lm, asked_questions)
            if check_trained is not None:
                check_trained(request, asked_questions)

        read_all(((f"{file}{self.benchmark.called(case)}", case) for case in cases), check_case)

    def _check_of_trained(self) -> Callable[[EditRequest, Sequence[Question]], None] | None:
        """What refuses a request that trains on one of the questions; None: no request trains on any text.

        In a sequence all cases are scored under the same edit, so none may train on another's questions.
        """
        editor = self.editor
        icd = None if editor is None else editor.icd
        if icd is None:
            return None
        assert editor is not None
        if self.mode.edits is not None:
            raise UserError(
                f"{editor.method}: mode {self.mode.name} does not state which texts train; omit"
                " the method, or take another mode"
            )
        scored_by_all: ScoredTexts | None = None
        if self.mode.in_sequence:
            scored_by_all = _scored_texts(
                question
                for case in self.benchmark.cases
                for question in self.benchmark.questions(case)[0]
            )

        def check_request(request: EditRequest, asked_questions: Sequence[Question]) -> None:
            scored = scored_by_all or _scored_texts(asked_questions)
            scored.check_unscored(icd, editor.as_trained(request))

        return check_request

    def read(self, kind: str = "scores") -> pd.DataFrame:
        """What is finished: "scores", "edits" (``EDIT_COLUMNS``), with icd "probes" (``PROBE_COLUMNS``), or
        another kind of the benchmark's.
        """
        return self.cases.read(self.results, kind)

    def edits(self) -> pd.DataFrame:
        """Diagnostics (``EDIT_COLUMNS``) of each edit that was made."""
        return self.read("edits").reindex(columns=EDIT_COLUMNS)

    def failed(self) -> set[int]:
        """The cases whose edits were given up, or leave scores that are no numbers."""
        return _given_up(self.edits())

    def usable(self, kind: str = "scores", *, from_store_only: bool = False) -> pd.DataFrame:
        """The rows of all cases but those that ``failed``.

        If ``from_store_only``, nothing is computed: the rows are those in the store.
        """
        if not from_store_only:
            self.complete()
        results = self.results  # each look at it reads all weights
        table = self.cases.read(results, kind)
        given_up = _given_up(self.cases.read(results, "edits").reindex(columns=EDIT_COLUMNS))
        return table[~table["case_id"].isin(given_up)].reset_index(drop=True)

    def before_and_after(self, *, from_store_only: bool = False) -> pd.DataFrame:
        """Scores of the unedited model and under each edit that was not given up, a row an answer.

        If ``from_store_only``, nothing is computed: the scores are those in the store.
        """
        before = self.unedited.usable(from_store_only=from_store_only)
        after = self.usable(from_store_only=from_store_only)
        if before.empty or after.empty:
            return pd.DataFrame()
        _, keys = self.benchmark.questions(self.benchmark.cases[0])
        return joined(before, after, list(keys.columns))

    def score(self, cases: Sequence[Case], edits: CaseEdits = None) -> Tables:
        """The benchmark's tables of these cases, each under its own of the ``edits``, or all under one.

        One edit of all cases must leave scores that are numbers: a UserError.
        """
        score = self.benchmark.score or self._answers
        tables = score(self.lm, cases, edits)
        finite = self.benchmark.finite
        if isinstance(edits, Edit) and finite and tables["scores"][finite].isna().any():
            assert self.editor is not None
            raise UserError(f"{self.editor.method}: a score is not finite; use a wider dtype")
        return tables

    def _answers(self, lm: LanguageModel, cases: Sequence[Case], edits: CaseEdits) -> Tables:
        ask = self.benchmark.questions
        return {"scores": score_cases(lm, cases, ask, edits, progress=self.progress)}

    @property
    def _is_of_all(self) -> bool:
        """Whether each case's rows depend on all cases."""
        return self.benchmark.content is None or self.mode.of_all or self.mode.in_sequence

    @property
    def _whole(self) -> dict[str, str]:
        """The contents of all cases, as the store is keyed by them."""
        assert self.benchmark.content is not None, "a benchmark without content states its whole"
        contents = [self.benchmark.content(case) for case in self.benchmark.cases]
        return {self.benchmark.items: settings_key({self.benchmark.items: contents})}

    def _made(self, cases: Sequence[Case]) -> Tables:
        """The tables of these cases under edits that are made now, with diagnostics of these."""
        if self.editor is None:
            return self.score(cases)
        edits = self._edits(self.editor, cases)
        tables = self.score(cases, edits[-1] if self.mode.in_sequence else edits)
        diagnostics = diagnostics_table(cases, edits)
        if self.benchmark.finite:
            diagnostics = flag_unusable(diagnostics, tables["scores"], self.benchmark.finite)
        return {**tables, "edits": diagnostics, **self.probe_table(cases)}

    def probe_table(self, cases: Sequence[Case]) -> Tables:
        """With icd the table "probes": the texts that train, and those that score, of each case."""
        assert self.editor is not None
        icd = self.editor.icd
        if icd is None:
            return {}
        rows: list[tuple[int, str, str, str, str]] = []
        for case in cases:
            for text in icd.trained(self.editor.as_trained(self.benchmark.request(case))):
                rows.append((case.case_id, "trained", *text))
            asked_questions, _ = self.benchmark.questions(case)
            for question in asked_questions:
                for answer in question.answers:
                    rows.append((case.case_id, "scored", "", question.prompt, answer))
        return {"probes": pd.DataFrame(rows, columns=PROBE_COLUMNS)}

    def _edits(self, editor: Editor, cases: Sequence[Case]) -> Sequence[Edit]:
        """One edit for each case; in a sequence it holds all up to the case's own."""
        if self.mode.edits:
            return self.mode.edits(editor, cases)
        requests = [self.benchmark.request(case) for case in cases]
        if not self.mode.in_sequence:
            return editor.edit(requests)
        # Kept on the CPU, one edited model on the device at a time: RECT's are dense.
        return [edit.to("cpu") for edit in editor.edit_sequentially(requests)]


def _scored_texts(asked_questions: Iterable[Question]) -> ScoredTexts:
    return ScoredTexts((question.prompt, question.answers) for question in asked_questions)


def _given_up(edits: pd.DataFrame) -> set[int]:
    """The cases with a failure in a table of diagnostics."""
    return set(edits.loc[edits["failure"] != "", "case_id"])


def score_cases(
    lm: LanguageModel,
    cases: Sequence[Case],
    ask: Callable[[Case], Asked],
    edits: CaseEdits = None,
    *,
    columns: Sequence[str] = _SCORES,
    progress: bool = False,
) -> pd.DataFrame:
    """Long table (the keys that ``ask`` gives, then ``columns``) of all cases.

    Each is scored under its own of the ``edits``, or all under one; without any, by the unedited model.
    """
    if not cases:
        return pd.DataFrame(columns=["case_id", *columns])
    all_edits, owner_of_case = with_owners(edits, len(cases))
    all_questions, keys, owners = [], [], []
    recognitions = []
    for case, owner in zip(cases, owner_of_case, strict=True):
        case_questions, case_keys = ask(case)
        all_questions += case_questions
        keys.append(case_keys)
        edit = all_edits[owner] if owner >= 0 else None
        recognitions.append(recognition_table(lm, case_questions, edit))
        owners += [owner] * len(case_questions)
    scores = score_answers(lm, all_questions, all_edits, owners, progress=progress)
    table = pd.concat(keys, ignore_index=True).join(scores[list(columns)])
    return table.join(pd.concat(recognitions, ignore_index=True))


def with_owners(edits: CaseEdits, count: int) -> tuple[Sequence[Edit], list[int]]:
    """Edits as scoring takes them, and for each of ``count`` cases the index of its own (-1: none)."""
    if edits is None:
        return [], [-1] * count
    if isinstance(edits, Edit):
        return [edits], [0] * count
    return edits, list(range(count))


def recognition_table(
    lm: LanguageModel, case_questions: Sequence[Question], edit: Edit | None
) -> pd.DataFrame:
    """What an edit takes each answer's prompt for; no columns where it acts after every prompt.

    Columns: ``entry``, the number of the statement or key it acts by (-1: none), and ``nearness``. An edit
    that was made for another model is refused.
    """
    number_of_answers = [len(question.answers) for question in case_questions]
    prompts = [question.prompt for question in case_questions]
    recognised = None
    if edit is not None:
        edit.check(lm)
        recognised = edit.recognised(lm, prompts)
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


def joined(
    before: pd.DataFrame, after: pd.DataFrame, key_columns: Collection[str] | None = None
) -> pd.DataFrame:
    """Scores of the same questions before and after an edit in one table, a row an answer.

    Rows belong together by the ``key_columns``; None: by all that are no score of ``score_cases``. The other
    columns of both tables become two each, ``_before`` and ``_after``; but ``tokens``, which no edit changes.
    """
    names = [name for name in before if name != "tokens"]
    if key_columns is None:
        keys = [name for name in names if name not in _COMPARED]
    else:
        keys = [name for name in names if name in key_columns]
    compared = [name for name in names if name not in keys and name in after]
    first = before.rename(columns={name: f"{name}_before" for name in compared})
    second = after.rename(columns={name: f"{name}_after" for name in compared})
    without_tokens = second.drop(columns="tokens", errors="ignore")
    table = first.merge(without_tokens, on=keys, validate="1:1")
    in_both = after["case_id"].isin(before["case_id"])
    if len(table) != in_both.sum():
        raise ValueError(f"rows after an edit have none before it by {keys}: name the key columns")
    return table


def small(table: pd.DataFrame) -> pd.DataFrame:
    """A table as it is published: no text but names of lists, log-probabilities in single precision."""
    if unknown := [name for name in table if name not in _TYPES]:
        raise ValueError(f"columns {unknown} have no type to be published in: give it in _TYPES")
    types = {name: kind for name, kind in _TYPES.items() if name in table}
    return table[list(types)].astype(types)
