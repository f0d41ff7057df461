"""What an edit's objective is shown of a record's answers, and what is left to score it by.

Half of the correct and half of the hard false answers are *shown*: they are the request's ``correct`` and
``false``. The others are *unshown*, and only they are scored, for every method of the run alike. Which are
which is drawn at random by the record's number; of an odd number the larger part is unshown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from helpers.peak.records import PeakRecord

SPLIT_VERSION = 1  # raise it when other answers are shown


@dataclass(frozen=True)
class SplitRecord:
    """A record with the answers that an objective is shown, and with those that it is not."""

    shown: PeakRecord
    unshown: PeakRecord


def split_record(record: PeakRecord) -> SplitRecord:
    """Half of a record's correct and hard false answers each; the rest of it is in both."""
    generator = np.random.default_rng(record.case_id)
    shown_correct, unshown_correct = _halves(record.correct, generator)
    shown_false, unshown_false = _halves(record.hard_false, generator)
    return SplitRecord(
        replace(record, correct=shown_correct, hard_false=shown_false),
        replace(record, correct=unshown_correct, hard_false=unshown_false),
    )


def _halves(
    answers: Sequence[str], generator: np.random.Generator
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The shown and the unshown half, in the record's order."""
    shuffled = generator.permutation(len(answers))
    shown_indices = set(shuffled[: len(answers) // 2].tolist())
    shown = tuple(answer for index, answer in enumerate(answers) if index in shown_indices)
    unshown = tuple(answer for index, answer in enumerate(answers) if index not in shown_indices)
    return shown, unshown
