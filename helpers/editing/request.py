"""What is asked of an editor: a fact's subject, prompt and new target, and its known answers."""

from __future__ import annotations

from dataclasses import dataclass

from helpers.models.tokens import several


class RequestError(ValueError):
    """Raised for a request that cannot be edited, naming the record and the remedy."""


@dataclass(frozen=True)
class EditRequest:
    """One edit: after ``prompt`` (with one ``{}`` for ``subject``) the model is to say ``target``.

    ``correct`` (O) and ``false`` (O_h) are the answers APP protects and holds down. ``record`` names
    where the request comes from, for messages.

    Raises:
        RequestError: no or several ``{}``, an empty subject or target, or a target among the
            correct answers.
    """

    subject: str
    prompt: str
    target: str
    correct: tuple[str, ...] = ()
    false: tuple[str, ...] = ()
    record: str = ""

    def __post_init__(self) -> None:
        for name in ("correct", "false"):
            object.__setattr__(self, name, several(getattr(self, name)))
        where = f"record {self.record}: " if self.record else ""
        if self.prompt.count("{}") != 1:
            raise RequestError(
                f"{where}prompt {self.prompt!r} must hold exactly one {{}} where the subject goes"
            )
        if not self.subject.strip():
            raise RequestError(f"{where}the subject is empty; name the entity the fact is about")
        if not self.target.strip():
            raise RequestError(f"{where}the target is empty; give the answer to be appended")
        # Blanks around an answer do not change its tokens.
        if self.target.strip() in {answer.strip() for answer in self.correct}:
            raise RequestError(
                f"{where}target {self.target!r} is already a correct answer; drop it from `correct` or"
                " choose another target"
            )

    @property
    def text(self) -> str:
        """The prompt with the subject filled in."""
        return self.prompt.replace("{}", self.subject)
