"""Which records a model knows well enough to be edited (PEAK, Section 5.1, last paragraph).

Takes probabilities and needs no model: ask ``questions(records)`` of a scorer and hand its table in.
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
from helpers.peak.additivity import keep_answers
from helpers.peak.schema import PeakRecord

LISTS = ("correct", "hard", "random")


@dataclass(frozen=True, kw_only=True)
class FilterSettings:
    """How much a model must know.

    Raises:
        ValueError: an unknown rule, a share outside 0 to 1, or a negative number.

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
        left = len(self.table)
        rows = []
        for step in STEPS:
            left -= int((self.table["step"] == step).sum())
            rows.append((step, left))
        return rows


STEPS = ("model knows correct answers", "hard false answers left", "random false answers left")


def questions(records: Sequence[PeakRecord]) -> list[tuple[str, tuple[str, ...]]]:
    """Edit prompt and all answers of each record: correct, hard false, random false."""
    return [(r.edit_prompt, (*r.correct, *r.hard_false, *r.random_false)) for r in records]


def apply_filter(
    records: Sequence[PeakRecord], scores: pd.DataFrame, settings: FilterSettings | None = None
) -> Filtered:
    """Keep the records that a model knows.

    Args:
        records: candidates, in the order in which their questions were asked.
        scores: one row per answer of ``questions(records)``: question, answer (indices), mean (mean
            token log-probability), as ``helpers.scoring.answers.score_answers`` returns.

    Raises:
        ValueError: an unknown rule, or scores that do not fit the records.
    """
    settings = settings or FilterSettings()
    kept, rows = [], []
    by_question = {q: part.sort_values("answer") for q, part in scores.groupby("question")}
    for index, record in enumerate(records):
        sizes = [len(record.correct), len(record.hard_false), len(record.random_false)]
        part = by_question.get(index)
        if part is None or len(part) != sum(sizes):
            raise ValueError(
                f"record {record.case_id} has {sum(sizes)} answers, but"
                f" {0 if part is None else len(part)} scores: score questions(records) in order"
            )
        lists = np.split(np.exp(part["mean"].to_numpy()), np.cumsum(sizes)[:-1])
        masks = known_answers(*lists, settings=settings)
        step = _failing(masks, settings)
        rows.append(_row(record, lists, masks, step))
        if not step:
            kept.append(_pruned(record, masks) if settings.prune else record)
    numbered = tuple(replace(record, case_id=i) for i, record in enumerate(kept))
    return Filtered(numbered, pd.DataFrame(rows))


def known_answers(
    correct: np.ndarray, hard: np.ndarray, random_false: np.ndarray, *, settings: FilterSettings
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boolean masks of the answers kept in each list, from their probabilities.

    Raises:
        ValueError: an unknown rule.
    """
    if settings.rule == "rank":
        lists = correct, hard, random_false
        kept = keep_answers(*lists, hard_share=settings.hard_share)
        known, *false = (
            np.isin(np.arange(len(values)), places)
            for values, places in zip(lists, (kept.correct, kept.hard, kept.random), strict=True)
        )
        return known, false[0], false[1]
    if settings.rule != "threshold":
        raise ValueError(f"rule {settings.rule!r} must be 'rank' or 'threshold'")
    known = correct >= settings.threshold
    least = correct[known].min() if known.any() else -np.inf
    return known, hard < least, random_false < least


def _failing(masks: Sequence[np.ndarray], settings: FilterSettings) -> str:
    needed = (settings.least_correct, settings.least_hard, settings.least_random)
    for step, mask, least in zip(STEPS, masks, needed, strict=True):
        if mask.sum() < least:
            return step
    return ""


def _row(
    record: PeakRecord, lists: Sequence[np.ndarray], masks: Sequence[np.ndarray], step: str
) -> dict[str, object]:
    row: dict[str, object] = {
        "case_id": record.case_id,
        "relation": record.relation,
        "subject": record.subject,
        "step": step,
    }
    for name, values, mask in zip(LISTS, lists, masks, strict=True):
        row[name] = len(values)
        row[f"{name}_kept"] = int(mask.sum())
        row[f"{name}_probability"] = float(values.mean())
    return row


def _pruned(record: PeakRecord, masks: Sequence[np.ndarray]) -> PeakRecord:
    lists = (record.correct, record.hard_false, record.random_false)
    correct, hard, random_false = (
        tuple(answer for answer, keep in zip(answers, mask, strict=True) if keep)
        for answers, mask in zip(lists, masks, strict=True)
    )
    return replace(
        record,
        correct=correct,
        target_true=correct[0],
        hard_false=hard,
        random_false=random_false,
        locality=tuple(pair for pair in record.locality if pair[1] in correct),
    )
