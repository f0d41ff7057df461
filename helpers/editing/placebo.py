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
    """What a record's edit is about: the relation and subject.

    ``names`` are all that the record's questions are about.
    """

    record: str
    relation: str
    subject: str
    names: frozenset[str] = frozenset()


def foreign_records(topics: Sequence[Topic], *, seed: int) -> list[int]:
    """For each record the index of the one whose edit is its placebo.

    It is of another relation, about another subject, which is none of the record's names. Of several the
    one is taken whose digest with the seed and the record is the smallest: so a record's placebo changes
    only where it is taken away, or a new record has a smaller digest.

    Raises:
        UserError: a record for which there is none.
    """
    return [_index_of_foreign_record(topic, topics, seed) for topic in topics]


def _index_of_foreign_record(topic: Topic, topics: Sequence[Topic], seed: int) -> int:
    own_names = {name.casefold() for name in (topic.subject, *topic.names)}
    candidates = [
        index
        for index, other in enumerate(topics)
        if other.relation != topic.relation and other.subject.casefold() not in own_names
    ]
    if not candidates:
        raise UserError(
            f"record {topic.record}: no edit of another relation, about another subject, can be its"
            " placebo; give more records, or drop the placebo"
        )

    def digest(index: int) -> str:
        return digest_of(f"{seed} {topic.record} {topics[index].record}".encode())

    return min(candidates, key=digest)
