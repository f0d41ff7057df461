"""A fact of one's own: what an editor is asked, and which questions around it the model gets."""

from __future__ import annotations

from dataclasses import dataclass

from helpers.editing.request import EditRequest
from helpers.models.tokens import several


@dataclass(frozen=True)
class Fact:
    """One fact to write: after ``prompt`` the model is to say ``target``.

    Attributes:
        subject: the entity that the fact is about.
        prompt: a text that breaks off where the answer follows, with ``{}`` for the subject.
        target: the new answer.
        paraphrases: other wordings, with or without ``{}``, which the edit should reach.
        locality: prompts about other things, whose answers should stay.
        correct: answers of the fact that are to stay beside the new one (PEAK's O).
        false: answers that are to stay wrong (PEAK's O_h); with ``correct`` they switch AFF and ANF on.

    Raises:
        RequestError: see ``EditRequest``.
        TypeError: a single text where several belong.
    """

    subject: str
    prompt: str
    target: str
    paraphrases: tuple[str, ...] = ()
    locality: tuple[str, ...] = ()
    correct: tuple[str, ...] = ()
    false: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("paraphrases", "locality", "correct", "false"):
            object.__setattr__(self, name, several(getattr(self, name)))
        _ = self.request

    @property
    def request(self) -> EditRequest:
        """What an editor is asked."""
        return EditRequest(self.subject, self.prompt, self.target, self.correct, self.false)

    @property
    def prompts(self) -> tuple[str, ...]:
        """The prompt, its paraphrases and the locality prompts, subjects filled in."""
        texts = (self.prompt, *self.paraphrases, *self.locality)
        return tuple(text.replace("{}", self.subject) for text in texts)
