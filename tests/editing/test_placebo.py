"""Which edit is whose placebo."""

import pytest

from helpers import UserError
from helpers.editing.placebo import Topic, foreign_records

RELATIONS = ("capital", "language", "religion")
TOPICS = [
    Topic(f"{number}", RELATIONS[number % 3], f"City {number // 2}", frozenset({"City 5", "x"}))
    for number in range(24)
]


def test_a_placebo_is_of_another_relation_and_no_name_of_the_record():
    for topic, place in zip(TOPICS, foreign_records(TOPICS, seed=0), strict=True):
        other = TOPICS[place]
        assert other.relation != topic.relation
        assert other.subject not in {topic.subject, "City 5"}


def test_the_choice_is_the_seeds_alone_and_outlives_other_records():
    first = foreign_records(TOPICS, seed=0)
    assert first == foreign_records(TOPICS, seed=0)
    assert first != foreign_records(TOPICS, seed=1)
    lost = 7  # without it, only those whose placebo it was get another one
    fewer = [*TOPICS[:lost], *TOPICS[lost + 1 :]]
    chosen = iter(foreign_records(fewer, seed=0))
    for number, place in enumerate(first):
        if number != lost:
            same = fewer[next(chosen)] == TOPICS[place]
            assert same == (place != lost)


def test_records_without_a_placebo_are_named():
    alike = [Topic("a", "capital", "Oslo"), Topic("b", "capital", "Rome")]
    with pytest.raises(UserError, match="record a: no edit of another relation"):
        foreign_records(alike, seed=0)
    named = [Topic("a", "capital", "Oslo", frozenset({"ROME"})), Topic("b", "river", "Rome")]
    with pytest.raises(UserError, match="record a: "):
        foreign_records(named, seed=0)
