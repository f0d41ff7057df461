"""Perplexity of two texts and a multiple choice of facts, before and after edits.

The packaged *exam* has forty passages of each text, and 200 questions whose first answer is right. A record
is asked its ``PARTS``, forty records in sequence all; nothing names an edited subject. With s the mean
log-probability of tokens, perplexity is exp(-s), and the answer with the highest s counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd

from helpers.paths import PACKAGED
from helpers.peak.metrics import KEYS
from helpers.peak.publish import editors_of, sequence_parts
from helpers.peak.records import PeakRecord
from helpers.peak.run import PeakRun
from helpers.results.archive import Run, TableKey
from helpers.results.benchmark import evaluation_part
from helpers.results.evaluation import Asked
from helpers.results.publish import Part
from helpers.results.statistics import Contrast, Estimate, mean_interval, paired
from helpers.results.text import in_points, with_interval
from helpers.scoring.answers import Question
from helpers.scoring.naming import mentions

VERSION = 1  # raise it when what a record is asked changes
FOLDER = PACKAGED / "ability"
EXAM_TEXTS = ("austen", "carroll")
PARTS = {"austen": 1, "carroll": 1, "facts": 5}
CHECKPOINTS = (10, 40)  # edits in sequence
ABILITY = "ability"  # the kind of the exam's stored tables, and their modes
ALONE = "alone"
IN_SEQUENCE = "in sequence"


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


def exam_parts(run: PeakRun, params: Mapping[str, Any]) -> Iterator[Part]:
    """The exam of the methods in ``ability``: of the run's edits alone, then of its first in sequence."""
    methods = params["ability"]
    for method, editor in editors_of(run, methods, params).items():
        alone = examined(run).evaluation(editor)
        yield evaluation_part(str(TableKey(ABILITY, method, ALONE)), alone)
    records = run.data.records[: CHECKPOINTS[-1]]
    checkpoints = [count for count in CHECKPOINTS if count <= len(records)]
    together = examined(replace(run, data=replace(run.data, records=records)), records)
    of_exam = {**params, "sequences": methods, "checkpoints": checkpoints}
    for part in sequence_parts(together, of_exam):
        sequence = TableKey.parse(part.name)
        yield replace(part, name=str(replace(sequence, kind=ABILITY, mode=IN_SEQUENCE)))


def ability_table(run: Run) -> pd.DataFrame:
    """Before → after, by state: perplexity (geometric mean) and right answers.

    Intervals of edits made alone are over the edited records' relations. After a sequence of edits there is
    one edited model: its intervals are over the parts of the exam.
    """
    rows = {}
    for key in run.keys:
        if key.kind == ABILITY:
            means = mean_scores(run, key)
            row: dict[str, str] = {}
            for text in EXAM_TEXTS:
                row |= perplexity_cells(text, pd.DataFrame(means.xs(text, level="role")))
            row |= right_answer_cells(pd.DataFrame(means.xs("facts", level="role")))
            state = str(replace(key, kind=""))  # such as "rome, in sequence: 10"
            rows[state] = row
    return pd.DataFrame.from_dict(rows, orient="index")


def mean_scores(run: Run, key: TableKey) -> pd.DataFrame:
    """Mean log-probability of each answer's tokens, columns ``before`` and ``after``.

    The index has ``KEYS``, and the record's relation where that is the unit: of edits made alone.
    """
    stored = run.tables[str(key)]
    relations = stored["case_id"].astype(str).map(run.about.caption.get("relations", {}))
    levels = list(KEYS)
    if key.mode == ALONE and relations.notna().all():
        levels.append("relation")
    scores = stored.assign(relation=relations).set_index(levels)
    tokens = scores["tokens"].astype(float)
    sums = {"before": scores["sum_before"], "after": scores["sum_after"]}
    return pd.DataFrame({moment: sums[moment].astype(float) / tokens for moment in sums})


def perplexity_cells(text: str, means: pd.DataFrame) -> dict[str, str]:
    """Perplexity of a text's passages before → after, and the ratio with its interval."""
    before, after = -means["before"], -means["after"]
    return {
        f"perplexity, {text}": f"{np.exp(before.mean()):.1f} → {np.exp(after.mean()):.1f}",
        f"ratio, {text}": with_interval(perplexity_ratio(means), digits=3),
    }


def perplexity_ratio(means: pd.DataFrame) -> Estimate:
    """Perplexity of passages after edits, divided by that before."""
    change = mean_interval(means["before"] - means["after"])
    mean, low, high = np.exp([change.mean, change.low, change.high])
    return Estimate(float(mean), float(low), float(high), change.n)


def right_answer_cells(means: pd.DataFrame) -> dict[str, str]:
    """Percent of the questions whose first answer has the highest score, before → after, and the change."""
    before, after = (right_answer_shares(means, moment).mean() for moment in ("before", "after"))
    return {
        "right answers": f"{100 * before:.1f} → {100 * after:.1f}",
        "change": in_points(right_answer_change(means).difference, signed=True),
    }


def right_answer_change(means: pd.DataFrame) -> Contrast:
    """Share of right answers after edits minus that before."""
    before, after = (right_answer_shares(means, moment) for moment in ("before", "after"))
    return paired(before, after, "fraction")


def right_answer_shares(means: pd.DataFrame, moment: str) -> pd.Series:
    """Share of each record's questions that are answered right at a moment, ``before`` or ``after``."""
    record_levels = [level for level in means.index.names if level in ("case_id", "relation")]
    most_probable = means[moment].unstack("answer_index").idxmax(axis=1)
    return most_probable.eq(0).astype(float).groupby(level=record_levels).mean()


def _named(question: Question, subjects: set[str]) -> bool:
    text = " ".join((question.prompt, *question.answers))
    return mentions(text, subjects)
