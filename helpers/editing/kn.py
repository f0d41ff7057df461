"""KN: knowledge neurons are found by integrated gradients and given the new answer's embedding.

Neurons whose attribution for the old answer's probability exceeds a threshold are chosen (Dai et al. 2022),
and to each one's output weights, a column of W, the same vector is added:

    lambda_new · Σ embeddings of the new answer − lambda_old · Σ embeddings of the old answer

The attributed answer is the request's first correct one. The old answer that is subtracted is what
the model itself generates, as many tokens as the new one has. There is no loss, hence no APP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from tqdm.auto import tqdm

from helpers.editing.contexts import ContextTemplates
from helpers.editing.editor import Editor, diagnostics_of
from helpers.editing.interventions import Delta, LowRank
from helpers.editing.presets import Hyperparameters
from helpers.editing.request import EditRequest, RequestError, with_one_prompt
from helpers.editing.rows import Ids, check_record_length
from helpers.editing.weight_edit import WeightEdit
from helpers.locating.attribution import integrated_gradients
from helpers.locating.query import Query
from helpers.locating.slots import greedy_tokens
from helpers.models import LanguageModel
from helpers.models.tokens import answer_ids, prompt_ids, separator_after


class KnHyperparameters(Hyperparameters):
    """KN's hyperparameters: how neurons are attributed and chosen, and what is written.

    A prompt's coarse set holds the neurons above ``adaptive_threshold`` times the maximum over all layers,
    the refined set those in more than ``p`` of the coarse sets.
    """

    steps: int = Field(default=20, gt=0)  # of the integral; 1: the gradient at zero
    adaptive_threshold: float = Field(default=0.2, gt=0, lt=1)
    p: float = Field(default=0.4, ge=0, lt=1)
    at: Literal["activation", "gate"] = "activation"  # what is scaled: after or before the gate
    lambda_old: float = Field(default=1.0, ge=0)
    lambda_new: float = Field(default=1.0, ge=0)
    lambda_old_one_token: float | None = Field(default=None, ge=0)  # for a new answer of one token
    context_template_length_params: tuple[tuple[int, int], ...] = ()


@dataclass
class Kn(Editor):
    """Knowledge neurons on one model; ``contexts`` are the prompts that form the refined set."""

    lm: LanguageModel
    hyperparameters: KnHyperparameters
    contexts: ContextTemplates
    progress: bool = False
    name = "kn"
    versioned_parts = ("contexts", "attributions")
    app = None

    @classmethod
    def check_request(cls, request: EditRequest) -> None:
        """Refuse a request without an answer to attribute."""
        if not request.correct:
            raise RequestError(
                f"record {request.record or request.text!r}: KN attributes the answer known so far;"
                " give it as the first of `correct`"
            )

    def settings(self) -> dict[str, Any]:
        """All that the updates depend on: any editor's settings, and the context templates."""
        return super().settings() | {"contexts": [list(group) for group in self.contexts.groups]}

    def edit(self, requests: Sequence[EditRequest]) -> list[WeightEdit]:
        """One independent update of rank one per request and layer with chosen neurons."""
        bar = tqdm(with_one_prompt(requests), desc="attributing", disable=not self.progress)
        return [self._weight_edit(request) for request in bar]

    def _weight_edit(self, request: EditRequest) -> WeightEdit:
        """Add the answers' difference to the output weights of the chosen neurons."""
        lm, settings = self.lm, self.hyperparameters
        attributions, old, new = self.attributions(request)
        is_chosen = self.neurons(attributions.float())  # [layers, neurons]
        notes = {"neurons": is_chosen.nonzero().tolist(), "old_answer": list(old)}
        if not bool(is_chosen.any()):
            return WeightEdit({}, {"failure": "no attribution exceeds the threshold", **notes})
        weight_old = settings.lambda_old
        if len(new) == 1 and settings.lambda_old_one_token is not None:
            weight_old = settings.lambda_old_one_token
        embeddings = lm.network.get_input_embeddings().weight.detach()
        new_embedding = embeddings[list(new)].float().sum(0)
        old_embedding = embeddings[list(old)].float().sum(0)
        vector = settings.lambda_new * new_embedding - weight_old * old_embedding
        deltas: dict[str, Delta] = {
            lm.layout.mlp_out(layer): LowRank(vector[:, None], of_layer.to(vector)[:, None])
            for layer, of_layer in enumerate(is_chosen)
            if bool(of_layer.any())
        }
        return WeightEdit(deltas, diagnostics_of(lm, deltas, notes))

    def attributions(self, request: EditRequest) -> tuple[Tensor, Ids, Ids]:
        """How much each neuron adds to the old answer, and the tokens of the old and of the new answer.

        The attributions are [prompts, layers, neurons], averaged over the answer's tokens, each of which is
        attributed after the model's own continuation so far. The old answer's tokens are that continuation.
        """
        lm, settings = self.lm, self.hyperparameters
        record = request.record or request.text
        self.check_request(request)
        templates = (template.replace("{}", request.text) for template in self.contexts.templates)
        before = separator_after(request.text)
        with request.named():
            prompts = [prompt_ids(lm, prompt) for prompt in templates]
            attributed = answer_ids(lm, request.correct[0], before)
            new = answer_ids(lm, request.target, before)
        check_record_length(lm, record, max(map(len, prompts)) + max(len(attributed), len(new)))
        # As many tokens as either answer needs.
        continuations = greedy_tokens(lm, prompts, max(len(new), len(attributed) - 1))
        of_prompts = []
        for prompt, continuation in zip(prompts, continuations, strict=True):
            of_tokens = []  # [layers, neurons] each
            for number, token in enumerate(attributed):
                ids = (*prompt, *continuation[:number])
                query = Query("", ids, len(ids) - 1, token, None)
                of_tokens.append(
                    integrated_gradients(lm, query, steps=settings.steps, at=settings.at)
                )
            of_prompts.append(torch.stack(of_tokens).mean(0))
        return torch.stack(of_prompts), continuations[0][: len(new)], new

    def neurons(self, scores: Tensor) -> Tensor:
        """The refined set as booleans [layers, neurons] from scores [prompts, ...]."""
        settings = self.hyperparameters
        highest = scores.amax(dim=(1, 2), keepdim=True)
        coarse = (scores > settings.adaptive_threshold * highest) & (scores > 0)
        return coarse.sum(0) > settings.p * len(scores)
