"""Sentences with an answer slot, as token ids: prompt, slot, target token and subject.

A causal model predicts the answer after the prompt's last token, a masked model at a mask token. The
target is the answer's *first* token, so that a factual and a random sentence are scored alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helpers import UserError
from helpers.models import LanguageModel
from helpers.models.tokens import answer_ids, check_length, prompt_ids, separator_after
from helpers.records import without_slot


class LocatorError(UserError):
    """A sentence or a comparison that a locating method cannot work with."""


@dataclass(frozen=True)
class Sentence:
    """A cloze that ends in ``" _"``, with its answer and subject where it has them."""

    cloze: str
    answer: str | None = None
    subject: str | None = None


@dataclass(frozen=True)
class Query:
    """A sentence as token ids."""

    text: str  # for messages
    ids: tuple[
        int, ...
    ]  # tokens up to the slot (causal), or all with the mask in the slot (masked)
    slot: int  # index of the token at whose output the answer is predicted
    target: int | None  # the answer's first token
    subject: tuple[int, int] | None  # first and one past the last token

    @property
    def required_target(self) -> int:
        """The target token; a ``LocatorError`` where the sentence has none."""
        if self.target is None:
            raise LocatorError(
                f"sentence {self.text!r} has no answer; give one, or own_answers(...)"
            )
        return self.target


def encode(lm: LanguageModel, sentences: Sequence[Sentence]) -> list[Query]:
    """Token ids of sentences."""
    mask, queries = lm.tokenizer.mask_token, []
    for sentence in sentences:
        text = without_slot(sentence.cloze)
        answer, target = sentence.answer, None
        if answer is not None:
            target = answer_ids(lm, answer, separator_after(text))[0]
        text = f"{text} {mask}" if lm.masked else text
        ids = prompt_ids(lm, text)
        check_length(lm, sentence.cloze, len(ids))
        slot = len(ids) - 1
        if lm.masked:
            slot = ids.index(lm.tokenizer.mask_token_id)
        subject = sentence.subject
        span = None if subject is None else _span(lm, text, subject)
        queries.append(Query(sentence.cloze, ids, slot, target, span))
    return queries


def _span(lm: LanguageModel, text: str, subject: str) -> tuple[int, int]:
    """Tokens that overlap the subject's first occurrence, by character offsets."""
    start = text.find(subject)
    if start < 0 or not subject:
        raise LocatorError(f"subject {subject!r} is not in sentence {text!r}")
    offsets = lm.tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    end = start + len(subject)
    inside = [i for i, (a, b) in enumerate(offsets) if a < end and b > max(a, start)]
    return inside[0], inside[-1] + 1
