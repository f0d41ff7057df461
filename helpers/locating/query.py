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
    # Of a causal model tokens up to the slot; of a masked one all, with the mask in the slot.
    ids: tuple[int, ...]
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

    @property
    def subject_last(self) -> int:
        """Index of the subject's last token; a ``LocatorError`` where the sentence has no subject."""
        if self.subject is None:
            raise LocatorError(
                f"sentence {self.text!r} has no subject, whose last token is to be read"
            )
        return self.subject[1] - 1


def encode(lm: LanguageModel, sentences: Sequence[Sentence]) -> list[Query]:
    """Token ids of sentences."""
    return [_encode_sentence(lm, sentence) for sentence in sentences]


def _encode_sentence(lm: LanguageModel, sentence: Sentence) -> Query:
    prompt = without_slot(sentence.cloze)
    query_text = f"{prompt} {lm.tokenizer.mask_token}" if lm.masked else prompt
    target_id = None
    if sentence.answer is not None:
        target_id = answer_ids(lm, sentence.answer, separator_after(prompt))[0]
    token_ids = prompt_ids(lm, query_text)
    check_length(lm, sentence.cloze, len(token_ids))
    slot_index = token_ids.index(lm.tokenizer.mask_token_id) if lm.masked else len(token_ids) - 1
    subject_span = None
    if sentence.subject is not None:
        subject_span = _subject_tokens(lm, query_text, sentence.subject)
    return Query(sentence.cloze, token_ids, slot_index, target_id, subject_span)


def _subject_tokens(lm: LanguageModel, text: str, subject: str) -> tuple[int, int]:
    """First and one past the last of the tokens that overlap the subject's first occurrence."""
    subject_start = text.find(subject)
    if subject_start < 0 or not subject:
        raise LocatorError(f"subject {subject!r} is not in sentence {text!r}")
    offsets = lm.tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    subject_end = subject_start + len(subject)
    overlapping = [
        index
        for index, (token_start, token_end) in enumerate(offsets)
        if token_start < subject_end
        and token_end > max(token_start, subject_start)  # no empty token
    ]
    return overlapping[0], overlapping[-1] + 1
