"""What is asked of an editor: a fact's subject, prompt and new target, and its known answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from helpers import UserError
from helpers.models.tokens import TokenError, several


class RequestError(UserError):
    """Raised for a request that cannot be edited, naming the record and the remedy."""


@dataclass(frozen=True)
class EditRequest:
    """One edit: after ``prompt`` (with one ``{}`` for ``subject``) the model is to say ``target``.

    ``correct`` (O) and ``false`` (O_h) are the answers APP protects and holds down. ``further`` holds
    other prompts about the subject, each with its own target. One optimised vector serves all of
    them alike (the mean of their losses). So they must begin alike up to the subject, where their
    keys then agree. ``record`` names where the request comes from, for messages.

    Raises:
        RequestError: for a request that contradicts this.
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
        where = f"record {self.record}: " if self.record else ""
        for prompt, target in self.questions:
            if prompt.count("{}") != 1:
                raise RequestError(
                    f"{where}prompt {prompt!r} must hold exactly one {{}} where the subject goes"
                )
            if prompt.partition("{}")[0] != self.prompt.partition("{}")[0]:
                raise RequestError(
                    f"{where}{prompt!r} and {self.prompt!r} differ before the subject, so no vector"
                    " serves both; make them two requests"
                )
            if not target.strip():
                raise RequestError(f"{where}the target is empty; give the answer to be appended")
        if not self.subject.strip():
            raise RequestError(f"{where}the subject is empty; name the entity the fact is about")
        if self.target.strip() in {answer.strip() for answer in self.correct}:
            raise RequestError(
                f"{where}target {self.target!r} is already a correct answer; drop it from `correct` or"
                " choose another target"
            )

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


def checked_requests(
    requests: Sequence[EditRequest], *, further: bool = False
) -> Sequence[EditRequest]:
    """The requests themselves; ``further``: whether the editor takes more prompts in one.

    Raises:
        RequestError: no list, something else than requests, or further prompts where none are taken.
    """
    if isinstance(requests, EditRequest):
        raise RequestError("give a list of requests, also of one: editor.edit([request])")
    for request in requests:
        if not isinstance(request, EditRequest):
            raise RequestError(
                f"a request is an EditRequest(subject, prompt, target), not {type(request).__name__};"
                " of a dictionary with these names: EditRequest(**values)"
            )
        if request.further and not further:
            raise RequestError(
                f"record {request.record or request.text!r}: this editor takes one prompt a request;"
                " make the further ones requests of their own"
            )
    return requests
