"""What an edit's objective is shown of a record's answers, and what is left to score it by.

Half of the correct and half of the hard false answers are *shown*: they are the request's ``correct`` and
``false``. The others are *unshown*, and only they are scored, for every method of the run alike. The halves
are drawn by digests of the record's number and the names. Names that are alike are in one half; of an odd
number either half has one more, by a coin; one name alone is unshown. Locality prompts that name the subject
are not asked, as shown answers could be scored after them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from helpers.editing.demonstrations import names_one
from helpers.paths import digest_of
from helpers.peak.records import PeakRecord
from helpers.records import comparable

SPLIT_VERSION = 2  # raise it when other answers are shown or scored
SEED = 0


@dataclass(frozen=True)
class SplitRecord:
    """A record with the answers that an objective is shown, and with those that it is not."""

    shown: PeakRecord
    unshown: PeakRecord


def split_record(record: PeakRecord) -> SplitRecord:
    """Half of a record's correct and hard false answers each; the rest of it is in both.

    But no locality prompt of the unshown half names the subject.
    """
    shown_correct, unshown_correct = _shown_and_unshown(record, "correct")
    shown_false, unshown_false = _shown_and_unshown(record, "hard")
    unshown_locality = tuple(
        (prompt, answer)
        for prompt, answer in record.locality
        if not names_one([prompt], [record.subject])
    )
    return SplitRecord(
        replace(record, correct=shown_correct, hard_false=shown_false),
        replace(
            record, correct=unshown_correct, hard_false=unshown_false, locality=unshown_locality
        ),
    )


def shown_names(
    record: PeakRecord, list_name: str, names: Iterable[str], seed: int = SEED
) -> set[str]:
    """Half of the names of a list, drawn by digests; of an odd number either half has one more, by a coin."""

    def digest(name: str) -> str:
        return digest_of(f"{seed} {record.case_id} {list_name} {name}".encode())

    drawn_order = sorted(names, key=digest)
    coin = int(digest(""), 16) % 2
    return set(drawn_order[: (len(drawn_order) + coin) // 2])


def _shown_and_unshown(
    record: PeakRecord, list_name: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The shown and the unshown answers of a list, in the record's order."""
    answers: Sequence[str] = record.lists[list_name]
    names = {comparable(answer) for answer in answers}
    shown_half = shown_names(record, list_name, names) if len(names) > 1 else set()
    shown = tuple(answer for answer in answers if comparable(answer) in shown_half)
    unshown = tuple(answer for answer in answers if comparable(answer) not in shown_half)
    return shown, unshown
