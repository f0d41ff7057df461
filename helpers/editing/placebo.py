"""A placebo: a record scored under the edit of another record, which has nothing to do with it.

What changes under it is what any such edit does to a model. What an edit does to its own record beyond that
is due to what it writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helpers import UserError
from helpers.paths import digest_of


@dataclass(frozen=True)
class Topic:
    """What a record's edit is about: the edit's relation and subject, and all ``names`` that the record's
    questions are about.
    """

    record: str
    relation: str
    subject: str
    names: frozenset[str] = frozenset()


def foreign_records(topics: Sequence[Topic], *, seed: int) -> list[int]:
    """For each record the place of the one whose edit is its placebo: of another relation, about another
    subject, which is none of the record's names. UserError where there is none.

    Of those the one is taken whose digest with the seed and the record is the smallest. So a record's
    placebo changes only where it is taken away, or a new record has a smaller digest.
    """
    subjects = [topic.subject.casefold() for topic in topics]
    chosen = []
    for topic in topics:
        own_names = {name.casefold() for name in (topic.subject, *topic.names)}
        candidates = [
            place
            for place, other in enumerate(topics)
            if other.relation != topic.relation and subjects[place] not in own_names
        ]
        if not candidates:
            raise UserError(
                f"record {topic.record}: no edit of another relation, about another subject, can be its"
                " placebo; give more records, or drop the placebo"
            )

        def digest(place: int, record: str = topic.record) -> str:
            return digest_of(f"{seed} {record} {topics[place].record}".encode())

        chosen.append(min(candidates, key=digest))
    return chosen
