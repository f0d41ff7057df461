"""Sentences with an answer slot, as token ids: prompt, slot, target token and subject.

A causal model predicts the answer after the prompt's last token; a masked model predicts it at a
mask token in the slot. The target is the answer's *first* token, so that a factual and a random
sentence are scored alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helpers import UserError
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import TokenError, answer_ids, prompt_ids, separator_after
from helpers.records import without_slot


class LocatorError(UserError):
    """Raised for a sentence or a comparison that a locating method cannot work with."""


@dataclass(frozen=True)
class Sentence:
    """A cloze that ends in ``" _"``, with its answer and subject where it has them."""

    cloze: str
    answer: str | None = None
    subject: str | None = None


@dataclass(frozen=True)
class Query:
    """A sentence as token ids.

    Attributes:
        text: the sentence, for messages.
        ids: tokens up to the slot (causal), or all tokens with the mask in the slot (masked).
        slot: index of the token at whose output the answer is predicted.
        target: id of the answer's first token; None where there is no answer yet.
        subject: first and one past the last token of the subject; None without a subject.
    """

    text: str
    ids: tuple[int, ...]
    slot: int
    target: int | None
    subject: tuple[int, int] | None

    @property
    def required_target(self) -> int:
        """The target token; a ``LocatorError`` where the sentence has none."""
        if self.target is None:
            raise LocatorError(
                f"sentence {self.text!r} has no answer, which this method needs; give one, or fill in"
                " the model's own prediction with own_answers(...)"
            )
        return self.target


def encode(language_model: LanguageModel, sentences: Sequence[Sentence]) -> list[Query]:
    """Token ids of sentences.

    Raises:
        UserError: no slot, a blank answer, more tokens than the context, or a subject elsewhere.
    """
    return [_encode(language_model, sentence) for sentence in sentences]


def _encode(language_model: LanguageModel, sentence: Sentence) -> Query:
    text, answer = without_slot(sentence.cloze), sentence.answer
    tokenizer, target = language_model.tokenizer, None
    if answer is not None:
        target = answer_ids(language_model, answer, separator_after(text))[0]
    if language_model.masked:
        text = f"{text} {tokenizer.mask_token}"
    ids = prompt_ids(language_model, text)
    if len(ids) > language_model.context_length:
        raise TokenError(
            f"sentence {sentence.cloze[:60]!r} has {len(ids)} tokens, beyond the context of"
            f" {language_model.context_length}; shorten it"
        )
    slot = ids.index(tokenizer.mask_token_id) if language_model.masked else len(ids) - 1
    subject = None if sentence.subject is None else _span(language_model, text, sentence.subject)
    return Query(sentence.cloze, ids, slot, target, subject)


def _span(language_model: LanguageModel, text: str, subject: str) -> tuple[int, int]:
    """Tokens that overlap the subject's first occurrence, by character offsets."""
    start = text.find(subject)
    if start < 0 or not subject:
        raise LocatorError(f"subject {subject!r} is not in sentence {text!r}")
    offsets = language_model.tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    end = start + len(subject)
    inside = [i for i, (a, b) in enumerate(offsets) if a < end and b > max(a, start)]
    return inside[0], inside[-1] + 1
