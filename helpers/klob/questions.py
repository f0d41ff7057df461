"""KLoB's examples as sentences for locators: groups of sentences that an RSim compares."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from helpers.klob.examples import (
    ConsistencyExample,
    RelevanceExample,
    load_consistency,
    load_relevance,
    load_unbiasedness,
)
from helpers.locating.query import Sentence

Subtask = Literal["consistency", "relevance", "unbiasedness"]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Examples:
    """Examples of one subtask.

    Attributes:
        subtask: which criterion they test.
        groups: sentences of each example; a chain stands last.
        relations: label of each example's first fact ("" without one).
        numbers: place of each example in its file.
    """

    subtask: Subtask
    groups: tuple[tuple[Sentence, ...], ...]
    relations: tuple[str, ...]
    numbers: tuple[int, ...]

    def only(self, numbers: Sequence[int]) -> Examples:
        """Those of these numbers, in that order; a ValueError where one is not there."""
        places = [self.numbers.index(number) for number in numbers]
        groups = tuple(self.groups[place] for place in places)
        relations = tuple(self.relations[place] for place in places)
        return Examples(self.subtask, groups, relations, tuple(numbers))


def load_examples(
    subtask: Subtask, source: str | Path = "klob-mini", *, count: int | None = None, seed: int = 0
) -> Examples:
    """A random choice of a subtask's examples, in file order.

    Args:
        subtask: ``"consistency"``, ``"relevance"`` or ``"unbiasedness"``.
        source: see ``helpers.klob.examples``.
        count: how many; default: all.

    Raises:
        ValueError: more examples wanted than there are.
    """
    if subtask == "consistency":
        facts, numbers = _choose(load_consistency(source), count, seed)
        groups = [_fact_sentences(example) for example in facts]
        relations = [example.knowledge[1] for example in facts]
    elif subtask == "relevance":
        chains, numbers = _choose(load_relevance(source), count, seed)
        groups = [_chain_sentences(example) for example in chains]
        relations = [example.fact[1] for example in chains]
    else:
        clozes, numbers = _choose(load_unbiasedness(source), count, seed)
        groups = [(Sentence(cloze),) for cloze in clozes]
        relations = ["" for _ in clozes]
    return Examples(subtask, tuple(groups), tuple(relations), numbers)


def _choose(
    items: Sequence[Item], count: int | None, seed: int
) -> tuple[list[Item], tuple[int, ...]]:
    if count is None:
        return list(items), tuple(range(len(items)))
    if not 0 < count <= len(items):
        raise ValueError(f"{count} examples wanted, the file has {len(items)}")
    numbers = sorted(random.Random(seed).sample(range(len(items)), count))
    return [items[i] for i in numbers], tuple(numbers)


def _fact_sentences(example: ConsistencyExample) -> tuple[Sentence, ...]:
    subject, _, answer = example.knowledge
    return tuple(_sentence(cloze, answer, subject) for cloze in example.prompts)


def _chain_sentences(example: RelevanceExample) -> tuple[Sentence, ...]:
    subject, _, bridge = example.fact
    singles = [_sentence(cloze, bridge, subject) for cloze in example.fact_prompts]
    return *singles, _sentence(example.chain_prompt, example.chain[-1], subject)


def _sentence(cloze: str, answer: str, subject: str) -> Sentence:
    """A subject that a hand-written sentence does not name verbatim is left open."""
    return Sentence(cloze, answer, subject if subject in cloze else None)
