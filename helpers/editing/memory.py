"""A memory of facts: those that are found for a prompt are put before it, and none where nothing is near.

A prompt's statements are the ``k`` with the highest scores above a threshold, the best one last, next to the
prompt. Scores are BM25 (``memory-bm25``) or cosines of the mean hidden states of a block (``memory-hidden``),
centred by those of background prompts. The threshold is the 95 % quantile of the best scores of background
prompts, which no edit is about; it is found anew whenever the memory grows. Of a fact that is edited again,
by the same prompt about the same subject, the newest statement is found; older ones are kept as ``replaced``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from helpers.editing.demonstrations import BACKGROUND, background_prompts, digest
from helpers.editing.edit import Edit, EditChain, EditError, Recognition
from helpers.editing.in_context import STATEMENT, ContextEditor, FactTemplate, statements_of
from helpers.editing.presets import Hyperparameters
from helpers.editing.request import EditRequest, with_one_prompt
from helpers.editing.retrieval import Bm25, mean_states
from helpers.models import LanguageModel
from helpers.models.tokens import messages_of


@dataclass(frozen=True)
class MemoryEdit(Edit):
    """Stored statements, of which the nearest are put before a prompt.

    ``keys`` [statements, hidden] and ``center`` [hidden] are of hidden states, those after the block
    ``layer`` of the model with this ``fingerprint``; with BM25 there are none.
    """

    statements: tuple[str, ...]
    subjects: tuple[str, ...]  # that the statements are about, which no background prompt names
    prompts: tuple[str, ...]  # that the statements answer; no two are equal
    threshold: float
    k: int
    template: str = STATEMENT
    keys: Tensor | None = None
    center: Tensor | None = None
    layer: int = -1
    fingerprint: str = ""
    replaced: tuple[str, ...] = ()  # older statements of facts that were edited again: never found
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    kind: ClassVar[str] = "memory"

    @cached_property
    def _words(self) -> Bm25:
        return Bm25(self.statements)

    def scores(self, lm: LanguageModel, prompts: Sequence[str]) -> np.ndarray:
        """How near each statement is to each prompt [prompts, statements]; none is to an empty one: -inf."""
        with_words = [number for number, prompt in enumerate(prompts) if prompt.strip()]
        shape = (len(prompts), len(self.statements))
        if not with_words:
            return np.full(shape, -np.inf)
        scores_with_words = self._scores(lm, [prompts[number] for number in with_words])
        scores = np.full(shape, -np.inf, scores_with_words.dtype)
        scores[with_words] = scores_with_words
        return scores

    def _scores(self, lm: LanguageModel, prompts: Sequence[str]) -> np.ndarray:
        if self.keys is None:
            return np.stack([self._words.scores(prompt) for prompt in prompts])
        return self.cosines(mean_states(lm, prompts, self.layer))

    def cosines(self, states: Tensor) -> np.ndarray:
        """Of prompts' mean hidden states [prompts, hidden] with the keys [prompts, statements]."""
        assert self.keys is not None
        assert self.center is not None
        queries = states - self.center.to(states)
        keys = self.keys.to(states)
        return (
            torch.nn.functional.cosine_similarity(queries[:, None], keys[None], dim=-1)
            .cpu()
            .numpy()
        )

    def found(self, lm: LanguageModel, prompts: Sequence[str]) -> list[list[int]]:
        """For each prompt the statements put before it, the best one last."""
        statements_of_prompts = []
        for of_prompt in self.scores(lm, prompts):
            nearest = sorted(range(len(of_prompt)), key=lambda i: (-of_prompt[i], i))[: self.k]
            statements_of_prompts.append(
                [i for i in reversed(nearest) if of_prompt[i] > self.threshold]
            )
        return statements_of_prompts

    def prefixes(self, lm: LanguageModel, prompts: Sequence[str]) -> list[str]:
        """The statements found for each prompt."""
        return [
            "".join(self.template.replace("{fact}", self.statements[i]) for i in of_prompt)
            for of_prompt in self.found(lm, prompts)
        ]

    def recognised(
        self, lm: LanguageModel, prompts: Sequence[str], chain: EditChain | None = None
    ) -> list[Recognition]:
        """The nearest statement, by its score; -1 where that is not above the threshold.

        Statements are found for the bare message, whatever a chat template or a ``chain`` puts around it.
        """
        scores = self.scores(lm, messages_of(lm, prompts))  # [prompts, statements]
        recognised = []
        for of_prompt in scores:
            nearest = int(of_prompt.argmax())
            entry = nearest if of_prompt[nearest] > self.threshold else -1
            recognised.append(Recognition(entry, float(of_prompt[nearest])))
        return recognised

    def check(self, lm: LanguageModel) -> None:
        """Raise ``EditError`` where the keys are another model's hidden states."""
        if self.fingerprint and not lm.has_fingerprint(self.fingerprint):
            raise EditError(f"this memory holds states of another model than {lm.name}: edit again")

    def to(self, device: str | torch.device) -> MemoryEdit:
        """The edit itself: retrieval takes its keys to the model."""
        return self

    def contents(self) -> tuple[dict[str, Tensor], Any]:
        """The keys, where there are any, and all else."""
        tensors = {}
        if self.keys is not None and self.center is not None:
            tensors = {"keys": self.keys, "center": self.center}
        fields = {
            "statements": list(self.statements),
            "subjects": list(self.subjects),
            "threshold": self.threshold,
            "k": self.k,
            "template": self.template,
            "layer": self.layer,
            "fingerprint": self.fingerprint,
            "prompts": list(self.prompts),
            "replaced": list(self.replaced),
        }
        return tensors, fields

    @classmethod
    def from_contents(
        cls, tensors: Mapping[str, Tensor], fields: Any, diagnostics: Mapping[str, Any]
    ) -> Self:
        """The edit whose ``contents`` these are."""
        return cls(
            statements=tuple(fields["statements"]),
            subjects=tuple(fields["subjects"]),
            threshold=fields["threshold"],
            k=fields["k"],
            template=fields["template"],
            keys=tensors.get("keys"),
            center=tensors.get("center"),
            layer=fields["layer"],
            fingerprint=fields["fingerprint"],
            prompts=tuple(fields["prompts"]),
            replaced=tuple(fields["replaced"]),
            diagnostics=diagnostics,
        )


class MemoryHyperparameters(Hyperparameters):
    """``k`` statements at most; ``threshold`` 0.95 is the share of background prompts that find none.

    ``relative_layer`` is the block whose output the hidden states are, as a share of all blocks.
    """

    retriever: Literal["bm25", "hidden"] = "bm25"
    k: int = Field(default=4, gt=0)
    threshold: float = Field(default=0.95, ge=0, lt=1)
    template: FactTemplate = STATEMENT
    relative_layer: float = Field(default=0.5, ge=0, lt=1)


States = dict[tuple[str, str], Tensor]


@dataclass
class Memory(ContextEditor):
    """A memory of facts on one model."""

    lm: LanguageModel
    hyperparameters: MemoryHyperparameters
    # By the model's fingerprint and the text.
    _background_states: States = field(default_factory=dict, init=False, repr=False)
    _statement_states: States = field(default_factory=dict, init=False, repr=False)
    name = "memory"

    def settings(self) -> dict[str, Any]:
        """Also which records the background prompts are from."""
        return super().settings() | {"background": [digest(), BACKGROUND]}

    def edit(self, requests: Sequence[EditRequest]) -> list[MemoryEdit]:
        """A memory of one statement for each request."""
        fingerprint = self._fingerprint()
        return [self._memory(None, [request], fingerprint) for request in with_one_prompt(requests)]

    def edit_on(self, earlier: Edit, requests: Sequence[EditRequest]) -> Edit:
        """One memory of all facts where ``earlier`` is a memory; else a chain."""
        requests = with_one_prompt(requests)
        if not isinstance(earlier, MemoryEdit):
            return earlier.then(self._memory(None, requests, self._fingerprint()))
        earlier.check(self.lm)
        return self._memory(earlier, requests, earlier.fingerprint or self._fingerprint())

    def _fingerprint(self) -> str:
        """The model's where a memory holds its states; else none."""
        return self.lm.fingerprint if self.hyperparameters.retriever == "hidden" else ""

    def _memory(
        self, earlier: MemoryEdit | None, requests: Sequence[EditRequest], fingerprint: str
    ) -> MemoryEdit:
        settings = self.hyperparameters
        statements = tuple(statements_of(self.lm, requests))
        subjects = tuple(request.subject for request in requests)
        prompts = tuple(messages_of(self.lm, [request.text for request in requests]))
        replaced: tuple[str, ...] = ()
        if earlier is not None:
            statements = earlier.statements + statements
            subjects = earlier.subjects + subjects
            prompts = earlier.prompts + prompts
            replaced = earlier.replaced
        latest = {prompt: number for number, prompt in enumerate(prompts)}
        replaced += tuple(
            statement
            for prompt, statement in zip(prompts, statements, strict=True)
            if statement != statements[latest[prompt]]
        )
        latest_numbers = sorted(latest.values())
        statements = tuple(statements[number] for number in latest_numbers)
        subjects = tuple(subjects[number] for number in latest_numbers)
        prompts = tuple(prompts[number] for number in latest_numbers)
        keys = None
        center = None
        layer = -1
        background = background_prompts(subjects)
        if settings.retriever == "hidden":
            layer = int(settings.relative_layer * self.lm.layout.blocks)
            background_states = self._states_of(background, layer, fingerprint)
            center = background_states.mean(0)
            keys = self._states_one_by_one(statements, layer, fingerprint) - center
        memory = MemoryEdit(
            statements=statements,
            subjects=subjects,
            prompts=prompts,
            threshold=0.0,
            k=settings.k,
            template=settings.template,
            keys=keys,
            center=center,
            layer=layer,
            fingerprint="" if keys is None else fingerprint,
            replaced=replaced,
        )
        by_words = settings.retriever == "bm25"
        scores = (
            memory.scores(self.lm, background) if by_words else memory.cosines(background_states)
        )
        best_scores = scores.max(axis=1)
        threshold = float(np.quantile(best_scores, settings.threshold))
        neutral = float((best_scores > threshold).mean())
        diagnostics = {"threshold": threshold, "neutral": neutral, "replaced": len(replaced)}
        return replace(memory, threshold=threshold, diagnostics=diagnostics)

    def _states_one_by_one(self, statements: Sequence[str], layer: int, fingerprint: str) -> Tensor:
        """The statements' mean states [statements, hidden], each found once and alone.

        So a memory that grows turn by turn costs one pass a statement, and is the same bit for bit as one
        that is made anew.
        """
        keys = [(fingerprint, statement) for statement in statements]
        for key in keys:
            if key not in self._statement_states:
                self._statement_states[key] = mean_states(self.lm, [key[1]], layer)[0]
        return torch.stack([self._statement_states[key] for key in keys])

    def _states_of(self, prompts: Sequence[str], layer: int, fingerprint: str) -> Tensor:
        """The background prompts' mean states [prompts, hidden], each found once."""
        keys = [(fingerprint, prompt) for prompt in prompts]
        missing = [key for key in keys if key not in self._background_states]
        if missing:
            states = mean_states(self.lm, [prompt for _, prompt in missing], layer)
            self._background_states.update(zip(missing, states, strict=True))
        return torch.stack([self._background_states[key] for key in keys])
