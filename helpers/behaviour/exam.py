"""Perplexity of two texts and a multiple choice of facts, before and after edits.

The packaged *exam* has forty passages of each text, and 200 questions whose first answer is right. A record
is asked its ``PARTS``, forty records in sequence all; nothing names an edited subject. With s the mean
log-probability of tokens, perplexity is exp(-s), and the answer with the highest s counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd

from helpers.paths import PACKAGED
from helpers.peak.ablations import SequenceTable
from helpers.peak.metrics import KEYS
from helpers.peak.publish import editors_of, scored_part, sequence_parts
from helpers.peak.records import PeakRecord
from helpers.peak.run import PeakRun
from helpers.results.archive import Run
from helpers.results.evaluation import Asked
from helpers.results.publish import Part
from helpers.results.statistics import Estimate, mean_interval, paired
from helpers.results.text import in_points, with_interval
from helpers.scoring.answers import Question
from helpers.scoring.naming import mentions

VERSION = 1  # raise it when what a record is asked changes
FOLDER = PACKAGED / "ability"
TEXTS = ("austen", "carroll")
PARTS = {"austen": 1, "carroll": 1, "facts": 5}
CHECKPOINTS = (10, 40)  # edits in sequence
_TABLES = "ability: "  # how the names of stored tables begin
_ALONE = ", alone"
_IN_SEQUENCE = ", in sequence: "


@cache
def exam() -> dict[str, list[Question]]:
    """The passages of each text, and the questions about ``facts``."""
    questions = {}
    for role in PARTS:
        text = (FOLDER / f"{role}.tsv").read_text("utf-8")
        rows = (line.split("\t") for line in text.splitlines())
        questions[role] = [Question(prompt, tuple(answers)) for prompt, *answers in rows]
    return questions


def examined(run: PeakRun, edited: Sequence[PeakRecord] = ()) -> PeakRun:
    """The run with the exam for its records' questions, where ``edited`` are in sequence."""
    settings = {"exam": VERSION, "edited": [[r.case_id, r.subject] for r in edited]}
    return replace(run, ask=partial(part_of_exam, edited), ask_settings=settings)


def part_of_exam(edited: Sequence[PeakRecord], record: PeakRecord) -> Asked:
    """A record's part of the exam, by its place in a sequence, and the key of each answer."""
    index_in_sequence = {r.case_id: index for index, r in enumerate(edited)}
    record_index = index_in_sequence.get(record.case_id, record.case_id)
    subjects = {record.subject, *(r.subject for r in edited)}
    record_questions, keys = [], []
    for role, count in PARTS.items():
        numbered = list(enumerate(exam()[role]))
        unrelated = [(n, question) for n, question in numbered if not _named(question, subjects)]
        for turn in range(count * record_index, count * (record_index + 1)):
            number, question = unrelated[turn % len(unrelated)]
            record_questions.append(question)
            for answer_index in range(len(question.answers)):
                keys.append((record.case_id, role, number, "exam", answer_index))
    return record_questions, pd.DataFrame(keys, columns=KEYS)


@dataclass(frozen=True)
class ExamTable:
    """The table of the exam after edits by a method: alone, or after ``edits`` of them in sequence."""

    method: str
    edits: int | None = None  # in sequence; None: each edit alone

    @classmethod
    def parse(cls, name: str) -> ExamTable | None:
        """What the table of this name is of; None if it is not of the exam."""
        if not name.startswith(_TABLES):
            return None
        method, _, edits = name.removeprefix(_TABLES).partition(_IN_SEQUENCE)
        return cls(method, int(edits)) if edits else cls(method.removesuffix(_ALONE))

    def __str__(self) -> str:
        return _TABLES + self.state

    @property
    def state(self) -> str:
        """The edited model in words: ``rome, alone`` or ``rome, in sequence: 10``."""
        order = _ALONE if self.edits is None else f"{_IN_SEQUENCE}{self.edits}"
        return self.method + order


def exam_parts(run: PeakRun, params: Mapping[str, Any]) -> Iterator[Part]:
    """The exam of the methods in ``ability``: of the run's edits alone, then of its first in sequence."""
    methods = params["ability"]
    for method, editor in editors_of(run, methods, params).items():
        yield scored_part(str(ExamTable(method)), examined(run), editor)
    records = run.data.records[: CHECKPOINTS[-1]]
    checkpoints = [count for count in CHECKPOINTS if count <= len(records)]
    together = examined(replace(run, data=replace(run.data, records=records)), records)
    of_exam = {**params, "sequences": methods, "checkpoints": checkpoints}
    for part in sequence_parts(together, of_exam):
        sequence = SequenceTable.parse(part.name)
        assert sequence is not None
        yield replace(part, name=str(ExamTable(sequence.method, sequence.edits)))


def ability_table(run: Run) -> pd.DataFrame:
    """Before → after, by state: perplexity (geometric mean) and right answers.

    Intervals of edits made alone are over the edited records' relations. After a sequence of edits there is
    one edited model: its intervals are over the parts of the exam.
    """
    rows: dict[str, dict[str, str]] = {}
    for name in run.tables:
        exam_table = ExamTable.parse(name)
        if exam_table is None:
            continue
        row = rows.setdefault(exam_table.state, {})
        stored = run.tables[name]
        relations = stored["case_id"].astype(str).map(run.about.caption.get("relations", {}))
        alone = exam_table.edits is None and relations.notna().all()
        keys = [*KEYS, *(["relation"] if alone else [])]
        scores = stored.assign(relation=relations).set_index(keys)
        scores = scores[["tokens", "sum_before", "sum_after"]].astype(float)
        sums = scores[["sum_before", "sum_after"]]
        means = sums.div(scores["tokens"], axis=0)
        for text in TEXTS:
            of_text = -means.xs(text, level="role")
            before, after = of_text["sum_before"], of_text["sum_after"]
            change = mean_interval(after - before)
            low, high = np.exp([change.low, change.high])
            ratio = Estimate(np.exp(change.mean), low, high, change.n)
            row[f"perplexity, {text}"] = " → ".join(
                f"{np.exp(x.mean()):.1f}" for x in (before, after)
            )
            row[f"ratio, {text}"] = with_interval(ratio, digits=3)
        facts = means.xs("facts", level="role")
        chosen = [facts[m].unstack("answer_index").idxmax(axis=1) for m in sums.columns.astype(str)]
        record = [level for level in keys if level in ("case_id", "relation")]
        shares = [each.eq(0).astype(float).groupby(level=record).mean() for each in chosen]
        row["right answers"] = " → ".join(f"{100 * x.mean():.1f}" for x in shares)
        row["change"] = in_points(paired(shares[0], shares[1], "fraction").difference, signed=True)
    return pd.DataFrame.from_dict(rows, orient="index")


def _named(question: Question, subjects: set[str]) -> bool:
    text = " ".join((question.prompt, *question.answers))
    return mentions(text, subjects)
