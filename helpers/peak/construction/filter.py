"""Which records a model knows well enough to be edited (PEAK, Section 5.1, last paragraph).

A correct answer is unknown by the rule ``"rank"`` (the authors' code) when at least ``hard_share`` of
the hard false answers are strictly more probable; by ``"threshold"`` (the paper's text) when its
probability is below ``threshold``. Either way, false answers at least as probable as the least probable
known answer are dropped next, and a record needs enough of each list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from helpers.params import one_of, within
from helpers.peak.metrics import Kept, keep_answers
from helpers.peak.records import PeakRecord
from helpers.scoring.answers import Question

STEPS = {  # what is missing, where a list of the record has too few answers left
    "correct": "model knows correct answers",
    "hard": "hard false answers left",
    "random": "random false answers left",
}


@dataclass(frozen=True, kw_only=True)
class FilterSettings:
    """How much a model must know: ``least_correct`` answers of a record, by one of the rules."""

    rule: str = "rank"
    hard_share: float = 0.2
    threshold: float = 1e-3  # of the geometric-mean token probability
    least_correct: int = 2

    def __post_init__(self) -> None:
        one_of("rule", self.rule, ("rank", "threshold"))
        within("hard_share", self.hard_share, 0, 1)
        within("threshold", self.threshold, 0, 1)
        within("least_correct", self.least_correct, 0)


@dataclass(frozen=True)
class Filtered:
    """Records that pass, and a table of what every record keeps.

    ``table``: case_id (before renumbering), relation, subject, for each list its size and how much
    of it is kept, the ``step`` that fails (``""`` for none), and the mean probability of each list.
    """

    records: tuple[PeakRecord, ...]
    table: pd.DataFrame

    def funnel(self) -> list[tuple[str, int]]:
        """Records left after each step."""
        lost = [int((self.table["step"] == step).sum()) for step in STEPS.values()]
        left = len(self.table) - np.cumsum(lost)
        return list(zip(STEPS.values(), left.tolist(), strict=True))


def questions(records: Sequence[PeakRecord]) -> list[Question]:
    """Edit prompt and all answers of each record: correct, hard false, random false."""
    return [Question(r.edit_prompt, (*r.correct, *r.hard_false, *r.random_false)) for r in records]


def apply_filter(
    records: Sequence[PeakRecord], scores: pd.DataFrame, settings: FilterSettings | None = None
) -> Filtered:
    """Keep the records that a model knows, with their lists complete: an evaluation filters again.

    Args:
        scores: of ``questions(records)``, as ``score_answers`` returns them.
    """
    settings = settings or FilterSettings()
    kept: list[PeakRecord] = []
    rows = []
    by_question = {q: part.sort_values("answer") for q, part in scores.groupby("question")}
    for index, record in enumerate(records):
        answers = (record.correct, record.hard_false, record.random_false)
        probabilities = np.exp(by_question[index]["mean"].to_numpy())
        lists = np.split(probabilities, np.cumsum([len(each) for each in answers])[:-1])
        known = known_answers(*lists, settings=settings)
        row: dict[str, object] = {
            **{"case_id": record.case_id, "relation": record.relation, "subject": record.subject},
            "step": "",
        }
        for name, values in zip(STEPS, lists, strict=True):
            left = len(getattr(known, name))
            row[name], row[f"{name}_kept"] = len(values), left
            row[f"{name}_probability"] = float(values.mean())
            if left < (settings.least_correct if name == "correct" else 1):
                row["step"] = row["step"] or STEPS[name]
        rows.append(row)
        if not row["step"]:
            kept.append(replace(record, case_id=len(kept)))
    return Filtered(tuple(kept), pd.DataFrame(rows))


def known_answers(
    correct: np.ndarray, hard: np.ndarray, random_false: np.ndarray, *, settings: FilterSettings
) -> Kept:
    """Indices of the answers kept in each list, from their probabilities."""
    if settings.rule == "rank":
        return keep_answers(correct, hard, random_false, hard_share=settings.hard_share)
    known = np.flatnonzero(correct >= settings.threshold)
    least = correct[known].min() if len(known) else -np.inf
    return Kept(known, np.flatnonzero(hard < least), np.flatnonzero(random_false < least))
