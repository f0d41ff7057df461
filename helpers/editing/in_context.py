"""Editing in context: the fact is stated before every prompt, and no weight changes.

    in-context   one statement, "Imagine that {prompt} {target}." (the in-context baseline of RippleEdits,
                 Cohen et al. 2024)
    ike          k demonstrations of what such a statement changes and what not, then the statement (Zheng
                 et al. 2023): "New Fact: {prompt} {target}", then "Prompt: {probe}"

IKE's demonstrations are of three kinds, in the ratio 1 : 3 : 4 (4, 12 and 16 of 32): *copy* repeats the
fact's own prompt, *update* asks in other words, *retain* asks for another fact, whose answer stays. Each
comes from a record of its own. Where the authors choose records by a sentence model, these are the ones with
the highest BM25 against the statement, the nearest last; and the further demonstration of the edit itself,
which shows the prompt and the answer that is then asked for, is omitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Self

import torch
from pydantic import AfterValidator, Field
from torch import Tensor

from helpers.editing.demonstrations import digest, nearest_demonstrations
from helpers.editing.edit import Edit, EditError
from helpers.editing.editor import Editor
from helpers.editing.presets import Hyperparameters
from helpers.editing.request import EditRequest, with_one_prompt
from helpers.editing.weight_edit import WeightEdit
from helpers.models import LanguageModel
from helpers.models.tokens import messages_of

STATEMENT = "Imagine that {fact}.\n"


@dataclass(frozen=True)
class ContextEdit(Edit):
    """A text that is put before every prompt."""

    text: str
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    kind: ClassVar[str] = "context"

    def prefixes(self, lm: LanguageModel, prompts: Sequence[str]) -> list[str]:
        """The text, whatever the prompt is."""
        return [self.text] * len(prompts)

    def to(self, device: str | torch.device) -> ContextEdit:
        """The edit itself, which holds no tensor."""
        return self

    def contents(self) -> tuple[dict[str, Tensor], Any]:
        """No tensor, and the text."""
        return {}, {"text": self.text}

    @classmethod
    def from_contents(
        cls, tensors: Mapping[str, Tensor], fields: Any, diagnostics: Mapping[str, Any]
    ) -> Self:
        """The edit whose ``contents`` these are."""
        return cls(fields["text"], diagnostics)


def statements_of(lm: LanguageModel, requests: Sequence[EditRequest]) -> list[str]:
    """The facts as texts: the prompt with its subject, and the new answer.

    Of a prompt in the model's chat template this is the message alone.
    """
    messages = messages_of(lm, [request.text for request in requests])
    return [
        f"{message} {request.target}" for message, request in zip(messages, requests, strict=True)
    ]


class ContextEditor(Editor):
    """An editor whose edits are texts before a prompt; what was edited earlier has no influence on them."""

    app = None

    def edit_after(self, earlier: Edit, requests: Sequence[EditRequest]) -> Edit:
        """The texts of the requests, in their order."""
        total: Edit = WeightEdit({})
        for edit in self.edit(requests):
            total = total.then(edit)
        return total


def _with_place_for_fact(template: str) -> str:
    if "{fact}" not in template:
        raise ValueError("write {fact} where the fact is to be stated")
    return template


FactTemplate = Annotated[str, AfterValidator(_with_place_for_fact)]


class InContextHyperparameters(Hyperparameters):
    """``template`` holds ``{fact}`` where the fact is stated; it ends where the prompt begins."""

    template: FactTemplate = STATEMENT


@dataclass
class InContext(ContextEditor):
    """The fact stated before every prompt. Facts of a sequence are all stated, the latest last."""

    lm: LanguageModel
    hyperparameters: InContextHyperparameters
    name = "incontext"

    def edit(self, requests: Sequence[EditRequest]) -> list[Edit]:
        """A statement for each request."""
        template = self.hyperparameters.template
        return [
            ContextEdit(template.replace("{fact}", statement))
            for statement in statements_of(self.lm, with_one_prompt(requests))
        ]


class IkeHyperparameters(Hyperparameters):
    """``k`` demonstrations precede the statement."""

    k: int = Field(default=32, gt=0)


@dataclass
class Ike(ContextEditor):
    """IKE: demonstrations, then the fact stated before every prompt."""

    lm: LanguageModel
    hyperparameters: IkeHyperparameters
    name = "ike"
    version = 2  # records are excluded by whole words

    def settings(self) -> dict[str, Any]:
        """Also which records the demonstrations are from."""
        return super().settings() | {"demonstrations": digest()}

    def edit(self, requests: Sequence[EditRequest]) -> list[Edit]:
        """The nearest demonstrations and a statement for each request."""
        statements = statements_of(self.lm, with_one_prompt(requests))
        return [
            self._in_context(request, statement)
            for request, statement in zip(requests, statements, strict=True)
        ]

    def edit_on(self, earlier: Edit, requests: Sequence[EditRequest]) -> Edit:
        """The edit of one request, of the unedited model: demonstrations are of one fact."""
        is_first = isinstance(earlier, WeightEdit) and not earlier
        if not is_first or len(requests) != 1:
            raise EditError(
                "IKE's demonstrations are of one fact: use in-context or a memory for several"
            )
        return super().edit_on(earlier, requests)

    def _in_context(self, request: EditRequest, statement: str) -> ContextEdit:
        demonstrations = nearest_demonstrations(request, statement, self.hyperparameters.k)
        return ContextEdit("".join([*demonstrations, f"New Fact: {statement}\nPrompt: "]))
