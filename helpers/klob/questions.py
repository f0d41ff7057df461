"""KLoB's examples as sentences for locators: groups of sentences that an RSim compares."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from helpers import UserError
from helpers.klob.examples import (
    ConsistencyExample,
    Example,
    RelevanceExample,
    Subtask,
    examples_file,
    line_of,
    read_examples,
)
from helpers.locating.query import Sentence, encode
from helpers.models.language_model import LanguageModel


@dataclass(frozen=True)
class Examples:
    """Examples of one subtask.

    Attributes:
        subtask: which criterion they test.
        groups: sentences of each example; a chain stands last.
        relations: label of each example's first fact ("" without one).
        numbers: place of each example in its file.
        skipped: what is wrong with each of those that were left out.
    """

    subtask: Subtask
    groups: tuple[tuple[Sentence, ...], ...]
    relations: tuple[str, ...]
    numbers: tuple[int, ...]
    skipped: tuple[str, ...] = ()

    @property
    def content(self) -> dict[str, Any]:
        """What results depend on."""
        return {name: value for name, value in asdict(self).items() if name != "skipped"}

    def only(self, numbers: Sequence[int]) -> Examples:
        """Those of these numbers, in that order.

        Raises:
            ValueError: one is not there.
        """
        if absent := sorted(set(numbers) - set(self.numbers)):
            raise ValueError(f"{self.subtask}: no example {absent[0]}; was it left out?")
        places = [self.numbers.index(number) for number in numbers]
        groups = tuple(self.groups[place] for place in places)
        relations = tuple(self.relations[place] for place in places)
        return Examples(self.subtask, groups, relations, tuple(numbers))


def load_examples(
    subtask: Subtask, source: str | Path = "klob-mini", *, count: int | None = None, **options: Any
) -> Examples:
    """A random choice of a subtask's examples as sentences, in file order.

    Args:
        subtask: ``"consistency"``, ``"relevance"`` or ``"unbiasedness"``.
        source: see ``helpers.klob.examples``.
        count: how many; default: all.
        options: further ones of ``chosen_examples``.
    """
    chosen, skipped = chosen_examples(subtask, source, count=count, **options)
    return Examples(
        subtask,
        tuple(_sentences(example) for example in chosen.values()),
        tuple(_relation(example) for example in chosen.values()),
        tuple(chosen),
        skipped,
    )


def chosen_examples(
    subtask: Subtask,
    source: str | Path = "klob-mini",
    *,
    count: int | None = None,
    seed: int = 0,
    asked: LanguageModel | None = None,
    skip_bad: bool = False,
) -> tuple[Mapping[int, Any], tuple[str, ...]]:
    """A random choice of a subtask's examples by their place in the file.

    Args:
        subtask: which file.
        source: see ``helpers.klob.examples``.
        count: how many; default: all.
        seed: of the choice, which is the same whichever examples are bad.
        asked: the model that will be asked: what it cannot be asked is as bad as what breaks the schema.
        skip_bad: leave out bad examples.

    Returns:
        The examples, and what is wrong with each of those that were left out.

    Raises:
        UserError: bad examples, or none is left.
        ValueError: more examples wanted than there are.
    """
    every = read_examples(subtask, source)
    if not skip_bad:
        every.checked()
    path = examples_file(subtask, source)

    def ask(place: int, example: Example) -> Example:
        try:
            if asked:
                encode(asked, _sentences(example))
        except ValueError as error:
            raise UserError(f"{line_of(path, place)}: {error}") from error
        return example

    places = sorted((*every.records, *every.wrong))
    found = every.only(_choose(places, count, seed)).through(ask).checked(skip_bad=skip_bad)
    return found.records, tuple(found.wrong.values())


def _choose(places: Sequence[int], count: int | None, seed: int) -> Sequence[int]:
    if count is None:
        return places
    if not 0 < count <= len(places):
        raise ValueError(f"{count} examples wanted, the file has {len(places)}")
    return sorted(random.Random(seed).sample(places, count))


def _sentences(example: Example) -> tuple[Sentence, ...]:
    if isinstance(example, ConsistencyExample):
        return _fact_sentences(example)
    if isinstance(example, RelevanceExample):
        return _chain_sentences(example)
    return (Sentence(example),)


def _relation(example: Example) -> str:
    if isinstance(example, ConsistencyExample):
        return example.knowledge[1]
    return example.fact[1] if isinstance(example, RelevanceExample) else ""


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
