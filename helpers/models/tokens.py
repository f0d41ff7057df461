"""Text to token ids, once and for all: prompts, answers, and where a subject ends.

Everything downstream concatenates ids and never tokenises concatenated text again, because
"prompt + decode(ids)" does not survive every tokenizer. The beginning-of-sequence token follows the
tokenizer's own default for prompts and never occurs inside an answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from helpers.models.language_model import LanguageModel

_ANCHOR = "a"  # answers are tokenised after this word, so that a leading blank means what it means in text


class TokenError(ValueError):
    """Raised when text cannot be turned into the token ids asked for."""


def several(texts: Iterable[str]) -> tuple[str, ...]:
    """Texts as a tuple.

    Raises:
        TypeError: a single text, which would be taken for its letters.
    """
    if isinstance(texts, str):
        raise TypeError(f"expected several texts, not {texts!r}; write ({texts!r},)")
    return tuple(texts)


@dataclass(frozen=True)
class SubjectPrompt:
    """A prompt's token ids and the index of its subject's last token."""

    ids: tuple[int, ...]
    subject_last: int


def prompt_ids(language_model: LanguageModel, prompt: str) -> tuple[int, ...]:
    """Token ids of a prompt, with the tokenizer's own special tokens.

    Raises:
        TokenError: the prompt is empty or ends with a blank (answers bring their own).
    """
    if prompt != prompt.rstrip():
        raise TokenError(f"prompt {prompt!r} ends with a blank; remove it: answers bring their own")
    if not prompt:
        raise TokenError("a prompt is empty; give at least one visible character")
    return tuple(language_model.tokenizer(prompt)["input_ids"])


def prompt_prefix(language_model: LanguageModel) -> tuple[int, ...]:
    """The special tokens that the tokenizer puts before every prompt; mostly none or one."""
    return tuple(language_model.tokenizer("")["input_ids"])


def answer_ids(language_model: LanguageModel, answer: str) -> tuple[int, ...]:
    """Token ids of ``" " + answer`` as they stand after a word, without special tokens.

    Raises:
        TokenError: the answer is blank, or the tokenizer merges it with the text before it.
    """
    if not answer.strip():
        raise TokenError("an answer is empty; give at least one visible character")
    encode = language_model.tokenizer
    anchor = encode(_ANCHOR, add_special_tokens=False)["input_ids"]
    joint = encode(f"{_ANCHOR} {answer.strip()}", add_special_tokens=False)["input_ids"]
    if joint[: len(anchor)] != anchor or len(joint) == len(anchor):
        raise TokenError(f"answer {answer!r} cannot be told apart from the text before it")
    return tuple(joint[len(anchor) :])


def subject_prompt(language_model: LanguageModel, template: str, subject: str) -> SubjectPrompt:
    """Fill ``template``'s slot and find the subject's last token by character offsets.

    The subject's last token is the last one that starts before the subject's end, so a token that
    straddles the end counts as the subject's.

    Raises:
        TokenError: not exactly one ``{}``, an empty subject, or a tokenizer without offsets.
    """
    if template.count("{}") != 1:
        raise TokenError(f"prompt {template!r} must hold exactly one {{}} for the subject")
    if not subject.strip():
        raise TokenError(f"the subject for prompt {template!r} is empty")
    end = template.index("{}") + len(subject.rstrip())
    prompt = template.replace("{}", subject)
    ids = prompt_ids(language_model, prompt)
    if not language_model.tokenizer.is_fast:
        raise TokenError(f"{language_model.name} needs a fast tokenizer (character offsets)")
    encoded = language_model.tokenizer(prompt, return_offsets_mapping=True)
    # Special tokens have empty spans and are never the subject's last token.
    inside = [i for i, (a, b) in enumerate(encoded["offset_mapping"]) if a < end and b > a]
    return SubjectPrompt(ids, inside[-1])
