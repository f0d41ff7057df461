"""What is asked of an editor: a fact's subject, prompt and new target, and its known answers."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from helpers import UserError
from helpers.editing.icd import PROBE_KINDS
from helpers.models.tokens import TokenError
from helpers.records import comparable, plain_signs

_GIVE = {
    "the subject": "name the entity the fact is about",
    "the target": "give the answer to be appended",
}


class RequestError(UserError):
    """A request that cannot be edited; names the record and the remedy."""


def text_of(field_words: str, value: object) -> str:
    """The text that a field holds: a text as it is, a whole number as it is written (1999).

    Anything else is a ``RequestError``: what is missing (None, NaN), blank, or not one text (true, 3.0).
    """
    if isinstance(value, str):
        text = str.__str__(value)  # without NumPy's type
    elif isinstance(value, int | np.integer) and not isinstance(value, bool):
        text = str(int(value))
    elif _is_missing(value):
        raise RequestError(
            f"{field_words} is missing ({value}); {_GIVE.get(field_words, 'give a text')}"
        )
    else:
        raise RequestError(
            f"{field_words} is {value!r:.60}, of type {type(value).__name__}; write it as a text"
        )
    if any(unicodedata.category(character) == "Cs" for character in text):
        raise RequestError(
            f"{field_words} {text!r:.60} holds half of a sign; write it again in UTF-8"
        )
    if not plain_signs(text).strip():
        raise RequestError(f"{field_words} is empty; {_GIVE.get(field_words, 'give a text')}")
    return text


def texts_of(field: str, values: object) -> tuple[str, ...]:
    """The texts of a field that holds several, such as ``correct``; none where it is missing.

    A ``RequestError`` for one text, which would be taken for its letters, for a set, which has no order,
    and for whatever ``text_of`` refuses.
    """
    if _is_missing(values):  # an empty cell of a table
        return ()
    if isinstance(values, str):
        raise RequestError(f"{field} takes several texts, not {values!r:.60}; put it into a list")
    if isinstance(values, bytes | Set | Mapping) or not isinstance(values, Iterable):
        raise RequestError(f"{field} is of type {type(values).__name__}; give a list of texts")
    numbered = enumerate(values, start=1)
    return tuple(text_of(f"text {number} of {field}", value) for number, value in numbered)


def read_texts(item: Any, *, texts: Sequence[str], lists: Sequence[str]) -> None:
    """Replace fields of a frozen dataclass by their ``text_of`` and ``texts_of``."""
    for field in texts:
        object.__setattr__(item, field, text_of(f"the {field}", getattr(item, field)))
    for field in lists:
        object.__setattr__(item, field, texts_of(field, getattr(item, field)))


def _is_missing(value: Any) -> bool:
    return bool(pd.api.types.is_scalar(value) and pd.isna(value))


@dataclass(frozen=True)
class TrainingProbe:
    """An answer after a prompt that the objective ``icd`` trains on, and what its teacher reads before it.

    ``kind`` is one of ``PROBE_KINDS``. ``prompt`` may hold one ``{}`` where the request's subject goes;
    without it the probe is about something else, and no vector at the subject can be optimised for it.
    The teacher reads each of the ``contexts`` in a paragraph of its own before the prompt, and its
    probabilities are averaged; an empty context is none.
    """

    kind: str
    prompt: str
    answer: str
    contexts: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        if self.kind not in PROBE_KINDS:
            raise RequestError(
                f"a training probe is of no kind {self.kind!r}: give one of {', '.join(PROBE_KINDS)}"
            )
        read_texts(self, texts=("prompt", "answer"), lists=())
        object.__setattr__(self, "contexts", tuple(self.contexts))
        if not self.contexts or self.prompt.count("{}") > 1:
            raise RequestError(
                f"training probe {self.prompt!r:.60}: give one context at least, and at most one {{}}"
            )

    @property
    def is_about_subject(self) -> bool:
        """Whether its prompt has a place for the request's subject."""
        return "{}" in self.prompt

    def text(self, subject: str) -> str:
        """The prompt with the subject filled in."""
        return self.prompt.replace("{}", subject)


@dataclass(frozen=True)
class EditRequest:
    """One edit: after ``prompt`` (with one ``{}`` for ``subject``) the model is to answer ``target``.

    ``correct`` (O) and ``false`` (O_h) are the answers APP protects and holds down. ``further`` holds
    other prompts about the subject, each with its own target: one optimised vector serves them all (the
    mean of their losses), so they begin alike up to the subject. ``probes`` are further texts that icd may
    train on: none of them is scored. ``record`` is named in messages. Texts are read by ``text_of`` and
    ``texts_of``.
    """

    subject: str
    prompt: str
    target: str
    correct: tuple[str, ...] = ()
    false: tuple[str, ...] = ()
    record: str = ""
    further: tuple[tuple[str, str], ...] = ()
    probes: tuple[TrainingProbe, ...] = ()

    def __post_init__(self) -> None:
        with errors_about(self.subject, self.record):
            read_texts(self, texts=("subject", "prompt", "target"), lists=("correct", "false"))
            further = [
                (text_of("the prompt", p), text_of("the target", t)) for p, t in self.further
            ]
            object.__setattr__(self, "further", tuple(further))
            object.__setattr__(self, "probes", tuple(self.probes))
            self._check_prompts()
            if comparable(self.target) in map(comparable, self.correct):
                raise RequestError(
                    f"target {self.target!r} is already a correct answer; drop it from `correct`"
                    " or choose another target"
                )

    def __repr__(self) -> str:
        """All fields, but no ``probes`` where there are none: stored results are known by this text."""
        described = [field.name for field in fields(self) if field.name != "probes" or self.probes]
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in described)
        return f"{type(self).__qualname__}({values})"

    def _check_prompts(self) -> None:
        text_before_subject = self.prompt.partition("{}")[0]
        for prompt, _ in self.prompts_with_targets:
            if prompt.count("{}") != 1:
                raise RequestError(
                    f"prompt {prompt!r} must hold exactly one {{}} where the subject goes"
                )
            if prompt.partition("{}")[0] != text_before_subject:
                raise RequestError(
                    f"{prompt!r} and {self.prompt!r} differ before the subject; make two requests of"
                    " them"
                )

    @contextmanager
    def named(self) -> Iterator[None]:
        """What cannot be tokenised in the block becomes an error that names this record."""
        try:
            yield
        except TokenError as error:
            raise RequestError(f"record {self.record or self.text!r}: {error}") from error

    @property
    def prompts_with_targets(self) -> tuple[tuple[str, str], ...]:
        """Every prompt with its target, the request's own first."""
        return ((self.prompt, self.target), *self.further)

    @property
    def text(self) -> str:
        """The prompt with the subject filled in."""
        return self.prompt.replace("{}", self.subject)


@contextmanager
def errors_about(subject: object, record: str = "") -> Iterator[None]:
    """What is refused in the block becomes an error that names the record, or the fact's subject."""
    try:
        yield
    except RequestError as error:
        whose = f"record {record}" if record else f"fact about {subject!r:.60}"
        raise RequestError(f"{whose}: {error}") from error


def with_one_prompt(requests: Sequence[EditRequest]) -> Sequence[EditRequest]:
    """The requests themselves, for an editor that takes no further prompts."""
    for request in requests:
        if request.further:
            raise RequestError(
                f"record {request.record or request.text!r}: this editor takes one prompt a request;"
                " make a request of its own of each further prompt"
            )
    return requests
