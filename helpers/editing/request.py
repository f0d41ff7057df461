"""What is asked of an editor: a fact's subject, prompt and new target, and its known answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from helpers import UserError
from helpers.models.tokens import TokenError, several


class RequestError(UserError):
    """A request that cannot be edited; names the record and the remedy."""


@dataclass(frozen=True)
class EditRequest:
    """One edit: after ``prompt`` (with one ``{}`` for ``subject``) the model is to answer ``target``.

    ``correct`` (O) and ``false`` (O_h) are the answers APP protects and holds down. ``further`` holds
    other prompts about the subject, each with its own target: one optimised vector serves them all (the
    mean of their losses), so they begin alike up to the subject. ``record`` is named in messages.
    """

    subject: str
    prompt: str
    target: str
    correct: tuple[str, ...] = ()
    false: tuple[str, ...] = ()
    record: str = ""
    further: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for name in ("correct", "false"):
            object.__setattr__(self, name, several(getattr(self, name)))
        before = self.prompt.partition("{}")[0]
        if not self.subject.strip():
            self._refuse("the subject is empty; name the entity the fact is about")
        for prompt, target in self.questions:
            if prompt.count("{}") != 1:
                self._refuse(f"prompt {prompt!r} must hold exactly one {{}} where the subject goes")
            if prompt.partition("{}")[0] != before:
                self._refuse(
                    f"{prompt!r} and {self.prompt!r} differ before the subject; make them two"
                )
            if not target.strip():
                self._refuse("the target is empty; give the answer to be appended")
        if self.target.strip() in {answer.strip() for answer in self.correct}:
            self._refuse(
                f"target {self.target!r} is already a correct answer; drop it there or choose"
                " another target"
            )

    def _refuse(self, reason: str) -> None:
        raise RequestError((f"record {self.record}: " if self.record else "") + reason)

    @contextmanager
    def named(self) -> Iterator[None]:
        """What cannot be tokenised in the block becomes an error that names this record."""
        try:
            yield
        except TokenError as error:
            raise RequestError(f"record {self.record or self.text!r}: {error}") from error

    @property
    def questions(self) -> tuple[tuple[str, str], ...]:
        """Every prompt with its target, the request's own first."""
        return ((self.prompt, self.target), *self.further)

    @property
    def text(self) -> str:
        """The prompt with the subject filled in."""
        return self.prompt.replace("{}", self.subject)


def with_one_prompt(requests: Sequence[EditRequest]) -> Sequence[EditRequest]:
    """The requests themselves, for an editor that takes no further prompts."""
    for request in requests:
        if request.further:
            raise RequestError(
                f"record {request.record or request.text!r}: this editor takes one prompt a request;"
                " make one of each further prompt"
            )
    return requests
