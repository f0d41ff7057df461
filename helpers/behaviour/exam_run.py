"""The exam: passages of two texts and a multiple choice of facts, asked before and after edits.

The packaged *exam* has forty passages of each text, and 200 questions whose first answer is right. A record
is asked its ``PARTS``, forty records in sequence all; nothing names an edited subject.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pandas as pd

from helpers.behaviour.exam import ABILITY, ALONE, IN_SEQUENCE
from helpers.paths import PACKAGED
from helpers.peak.metrics import KEYS
from helpers.peak.publish import editors_of, sequence_parts
from helpers.peak.records import PeakRecord
from helpers.peak.run import PeakRun
from helpers.results.archive import TableKey
from helpers.results.benchmark import evaluation_part
from helpers.results.evaluation import Asked
from helpers.results.publish import Part
from helpers.scoring.answers import Question
from helpers.scoring.naming import mentions

VERSION = 1  # raise it when what a record is asked changes
FOLDER = PACKAGED / "ability"
PARTS = {"austen": 1, "carroll": 1, "facts": 5}
CHECKPOINTS = (10, 40)  # edits in sequence


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


def _named(question: Question, subjects: set[str]) -> bool:
    text = " ".join((question.prompt, *question.answers))
    return mentions(text, subjects)
