"""A fact of your own: what an editor is asked, and which questions around it the model gets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from helpers.editing.request import EditRequest, RequestError
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import chat_prompt, check_prompt, several
from helpers.records import compared

_LISTS = ("paraphrases", "locality", "correct", "false")


@dataclass(frozen=True)
class Fact:
    """One fact to write: the model should answer ``prompt`` with ``target``.

    Attributes:
        prompt: a text that breaks off where the answer follows, with ``{}`` for the subject.
        paraphrases: other wordings, with or without ``{}``, which the edit should reach.
        locality: prompts about other things, whose answers should stay.
        correct: answers of the fact that should remain in addition to the new one (PEAK's O).
        false: answers that should stay wrong (PEAK's O_h); with ``correct`` they switch AFF and ANF on.
        chat: edit and score inside the model's chat template: each prompt is a user's message, and the
            answer begins the reply.
    """

    subject: str
    prompt: str
    target: str
    paraphrases: tuple[str, ...] = ()
    locality: tuple[str, ...] = ()
    correct: tuple[str, ...] = ()
    false: tuple[str, ...] = ()
    chat: bool = False

    def __post_init__(self) -> None:
        where, places = f"fact {self.prompt!r} of {self.subject!r}", dict[str, str]()
        for name in _LISTS:
            object.__setattr__(self, name, several(getattr(self, name)))
        for name in ("subject", "prompt", "target", *_LISTS):
            own = getattr(self, name)
            for text in own if name in _LISTS else (own,):
                if not isinstance(text, str) or not text.strip():
                    raise RequestError(f"{where}: {name} must be text, not blank; got {text!r}")
                if name not in ("target", "correct", "false"):
                    continue
                if other := places.get(compared(text)):
                    raise RequestError(
                        f"{where}: {text!r} in {name} is also in {other} (case, Unicode form and"
                        " outer blanks do not count); keep it in one place"
                    )
                places[compared(text)] = name
        with self.request.named():
            for prompt in self.prompts:
                check_prompt(prompt)

    @property
    def request(self) -> EditRequest:
        """What an editor is asked."""
        return EditRequest(self.subject, self.prompt, self.target, self.correct, self.false)

    @property
    def prompts(self) -> tuple[str, ...]:
        """The prompt, its paraphrases and the locality prompts, subjects filled in."""
        texts = (self.prompt, *self.paraphrases, *self.locality)
        return tuple(text.replace("{}", self.subject) for text in texts)

    def as_read(self, language_model: LanguageModel) -> Fact:
        """The fact with its prompts as the model reads them, with ``chat`` in its chat template."""
        if not self.chat:
            return self
        inside = partial(chat_prompt, language_model)
        wordings: dict[str, Any] = {n: tuple(map(inside, getattr(self, n))) for n in _LISTS[:2]}
        return replace(self, prompt=inside(self.prompt), chat=False, **wordings)
