"""A user's fact: what is to be written, what else is asked, and what is odd about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import pandas as pd

from helpers.editing.request import EditRequest, RequestError, errors_about, read_texts
from helpers.records import comparable
from helpers.results.store import content_number
from helpers.scoring.naming import mentions

TEXTS = ("subject", "prompt", "target")
LISTS = ("paraphrases", "locality", "correct", "false")


@dataclass(frozen=True)
class Fact:
    """One fact to write: the model should answer ``prompt`` with ``target``.

    Attributes:
        prompt: a text that breaks off where the answer follows, with ``{}`` for the subject.
        paraphrases: other wordings, with or without ``{}``, which the edit should reach.
        locality: prompts about other things, whose answers should stay.
        correct: answers of the fact that should remain in addition to the new one (PEAK's O).
        false: answers that should stay wrong (PEAK's O_h).

    Fields are read as those of ``EditRequest`` are: a whole number is its text, an empty cell of a table
    no texts. A ``RequestError`` names the fact and the field that cannot be read.
    """

    subject: str
    prompt: str
    target: str
    paraphrases: tuple[str, ...] = ()
    locality: tuple[str, ...] = ()
    correct: tuple[str, ...] = ()
    false: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        with errors_about(self.subject):
            read_texts(self, texts=TEXTS, lists=LISTS)
        text = self.request.text
        counts = Counter(map(comparable, (self.target, *self.correct, *self.false)))
        for answer, count in counts.items():
            if count > 1:
                raise RequestError(f"{text!r}: {answer!r} is given twice in target, correct, false")

    @property
    def case_id(self) -> int:
        """Its number by its content: what its answers are stored under, whichever line it is in."""
        return content_number(asdict(self))

    @property
    def request(self) -> EditRequest:
        """What an editor is asked."""
        return EditRequest(self.subject, self.prompt, self.target, self.correct, self.false)

    @property
    def prompts(self) -> tuple[str, ...]:
        """The prompt, its paraphrases and the locality prompts, subjects filled in."""
        texts = (self.prompt, *self.paraphrases, *self.locality)
        return tuple(text.replace("{}", self.subject) for text in texts)


def listed(facts: Sequence[Fact]) -> tuple[Fact, ...]:
    """The facts, or a ``RequestError`` for what is no list of them, such as a table or its rows."""
    if isinstance(facts, pd.DataFrame):
        raise RequestError(
            "facts are a table; make each row one: [Fact(**row) for row in table.to_dict('records')]"
        )
    is_list = isinstance(facts, Iterable) and not isinstance(facts, str | bytes)
    fact_list = tuple(facts) if is_list else ()
    if not fact_list:
        raise RequestError("give a list of facts: edit_facts(model, [Fact(subject, …)])")
    for number, fact in enumerate(fact_list, start=1):
        if not isinstance(fact, Fact):
            raise RequestError(
                f"fact {number} is a {type(fact).__name__}; give a list of facts:"
                " edit_facts(model, [Fact(subject, …)])"
            )
    return fact_list


def fact_warnings(fact: Fact, facts: Sequence[Fact], *, together: bool) -> list[str]:
    """What is odd about a fact, by itself or next to the other ``facts``, whatever the model."""
    messages = []
    if comparable(fact.target) == comparable(fact.subject):
        messages.append("the target is the subject")
    for text in fact.paraphrases:
        if comparable(text.replace("{}", fact.subject)) == comparable(fact.request.text):
            messages.append(f"the paraphrase {text!r} is the prompt")
        elif not mentions(text.replace("{}", fact.subject), [fact.subject]):
            messages.append(f"the paraphrase {text!r} does not name the subject")
    targets = [comparable(other.target) for other in facts if _asks(other) == _asks(fact)]
    if targets.count(comparable(fact.target)) > 1:
        messages.append(
            "the fact is given more than once, and its edits add up where all are written"
        )
    if together and len(set(targets)) > 1:
        messages.append(
            "facts with this prompt have other targets, and one update is to write them all"
        )
    return messages


def _asks(fact: Fact) -> str:
    return comparable(fact.request.text)
