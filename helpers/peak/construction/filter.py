"""Which records a model knows well enough to be edited (PEAK, Section 5.1, last paragraph).

The rules, on the edit prompt:

``"rank"`` (the authors' code): a correct answer is unknown when at least ``hard_share`` of the hard
false answers are strictly more probable. ``"threshold"`` (the paper's text): when its probability
is below ``threshold``. Either way, false answers at least as probable as the least probable known
correct answer are dropped next, and a record needs enough of each list.
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

LISTS = ("correct", "hard", "random")
STEPS = ("model knows correct answers", "hard false answers left", "random false answers left")


@dataclass(frozen=True, kw_only=True)
class FilterSettings:
    """How much a model must know.

    Raises:
        UserError: an unknown rule, a share outside 0 to 1, or a negative number.

    Attributes:
        rule: ``"rank"`` or ``"threshold"``.
        hard_share: for ``"rank"``: share of hard false answers that suffices to call a correct
            answer unknown.
        threshold: for ``"threshold"``: least geometric-mean token probability of a known answer.
        least_correct: known correct answers a record needs.
        least_hard: hard false answers it needs after the filter.
        least_random: random false answers it needs after the filter.
        prune: write only the kept answers into the record. The official lists are complete, and
            evaluation filters per prompt; so False by default.
    """

    rule: str = "rank"
    hard_share: float = 0.2
    threshold: float = 1e-3
    least_correct: int = 2
    least_hard: int = 1
    least_random: int = 1
    prune: bool = False

    def __post_init__(self) -> None:
        one_of("rule", self.rule, ("rank", "threshold"))
        within("hard_share", self.hard_share, 0, 1)
        within("threshold", self.threshold, 0, 1)
        for name in ("least_correct", "least_hard", "least_random"):
            within(name, getattr(self, name), 0)


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
        lost = [int((self.table["step"] == step).sum()) for step in STEPS]
        left = len(self.table) - np.cumsum(lost)
        return list(zip(STEPS, left.tolist(), strict=True))


def questions(records: Sequence[PeakRecord]) -> list[Question]:
    """Edit prompt and all answers of each record: correct, hard false, random false."""
    return [Question(r.edit_prompt, (*r.correct, *r.hard_false, *r.random_false)) for r in records]


def apply_filter(
    records: Sequence[PeakRecord], scores: pd.DataFrame, settings: FilterSettings | None = None
) -> Filtered:
    """Keep the records that a model knows.

    Args:
        records: candidates, in the order in which their questions were asked.
        scores: one row per answer of ``questions(records)``: question, answer (indices), mean (mean
            token log-probability), as ``helpers.scoring.answers.score_answers`` returns.
        settings: how much it must know.
    """
    settings = settings or FilterSettings()
    needed = (settings.least_correct, settings.least_hard, settings.least_random)
    kept, rows = [], []
    by_question = {q: part.sort_values("answer") for q, part in scores.groupby("question")}
    for index, record in enumerate(records):
        answers = (record.correct, record.hard_false, record.random_false)
        probabilities = np.exp(by_question[index]["mean"].to_numpy())
        lists = np.split(probabilities, np.cumsum([len(each) for each in answers])[:-1])
        known = known_answers(*lists, settings=settings)
        places = [getattr(known, name) for name in LISTS]
        few = (s for s, p, least in zip(STEPS, places, needed, strict=True) if len(p) < least)
        row: dict[str, object] = {
            **{"case_id": record.case_id, "relation": record.relation, "subject": record.subject},
            "step": next(few, ""),
        }
        for name, values, those in zip(LISTS, lists, places, strict=True):
            row[name], row[f"{name}_kept"] = len(values), len(those)
            row[f"{name}_probability"] = float(values.mean())
        rows.append(row)
        if not row["step"]:
            kept.append(_pruned(record, known) if settings.prune else record)
    numbered = tuple(replace(record, case_id=i) for i, record in enumerate(kept))
    return Filtered(numbered, pd.DataFrame(rows))


def known_answers(
    correct: np.ndarray, hard: np.ndarray, random_false: np.ndarray, *, settings: FilterSettings
) -> Kept:
    """Indices of the answers kept in each list, from their probabilities."""
    if settings.rule == "rank":
        return keep_answers(correct, hard, random_false, hard_share=settings.hard_share)
    known = np.flatnonzero(correct >= settings.threshold)
    least = correct[known].min() if len(known) else -np.inf
    return Kept(known, np.flatnonzero(hard < least), np.flatnonzero(random_false < least))


def _pruned(record: PeakRecord, known: Kept) -> PeakRecord:
    correct = tuple(record.correct[i] for i in known.correct)
    return replace(
        record,
        correct=correct,
        target_true=correct[0],
        hard_false=tuple(record.hard_false[i] for i in known.hard),
        random_false=tuple(record.random_false[i] for i in known.random),
        locality=tuple(pair for pair in record.locality if pair[1] in correct),
    )
