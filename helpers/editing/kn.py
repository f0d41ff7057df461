"""KN: knowledge neurons are found by integrated gradients and given the new answer's embedding.

Neurons whose attribution for the old answer's probability exceeds a threshold are chosen (Dai et al. 2022),
and to each one's output weights, a column of W, the same vector is added:

    lambda_new · Σ embeddings of the new answer − lambda_old · Σ embeddings of the old answer

The attributed answer is the request's first correct one. The old answer that is subtracted is what
the model itself generates, as many tokens as the new one has. There is no loss, hence no APP.

``kn-tuned`` has the values of our search (``params/models/search``) in place of the paper's code's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from tqdm.auto import tqdm

from helpers.editing.contexts import BARE, ContextTemplates
from helpers.editing.editor import Editor, diagnostics_of
from helpers.editing.presets import Hyperparameters
from helpers.editing.request import EditRequest, RequestError, checked_requests
from helpers.editing.rows import check_length
from helpers.editing.update import Delta, LowRank, Update
from helpers.locating.attribution import integrated_gradients
from helpers.locating.query import Query
from helpers.locating.slots import greedy_tokens
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import answer_ids, prompt_ids, separator_after

Ids = tuple[int, ...]
_BARE = ContextTemplates(((BARE,),))


class KnHyperparameters(Hyperparameters):
    """Knowledge neurons.

    ``steps`` is m, the points of the integral (1 is the gradient at zero, which some public code
    ships). A prompt's coarse set holds the neurons above ``adaptive_threshold`` times the maximum
    over all layers. The refined set holds those that are in more than ``p`` of the prompts' coarse
    sets; with one prompt both are the same. ``at`` names what is scaled: the neuron's
    ``activation`` (after the gate) or the ``gate``'s output before the activation function.

    An edit changes every chosen neuron's output weights: it subtracts ``lambda_old`` times the
    embeddings of the old answer and adds ``lambda_new`` times those of the new one.
    ``lambda_old_one_token`` replaces ``lambda_old`` where the new answer is a single token.
    """

    steps: int = Field(default=20, gt=0)
    adaptive_threshold: float = Field(default=0.2, gt=0, lt=1)
    p: float = Field(default=0.4, ge=0, lt=1)
    at: Literal["activation", "gate"] = "activation"
    lambda_old: float = Field(default=1.0, ge=0)
    lambda_new: float = Field(default=1.0, ge=0)
    lambda_old_one_token: float | None = Field(default=None, ge=0)
    context_template_length_params: tuple[tuple[int, int], ...] = ()


class _Texts(NamedTuple):
    """One request as token ids; ``own`` is how the model itself continues each prompt."""

    prompts: tuple[Ids, ...]
    attributed: Ids
    new: Ids
    own: list[Ids]


@dataclass
class Kn(Editor):
    """Knowledge neurons on one model; ``contexts`` are the prompts that form the refined set."""

    language_model: LanguageModel
    hyperparameters: KnHyperparameters
    contexts: ContextTemplates = _BARE
    progress: bool = False

    name = "kn"
    app = None

    def parts(self) -> tuple[str, ...]:
        """The contexts and the attributions."""
        return ("contexts", "attributions")

    def settings(self) -> dict[str, Any]:
        """Also the context templates."""
        return super().settings() | {"contexts": [list(group) for group in self.contexts.groups]}

    def edit(self, requests: Sequence[EditRequest]) -> list[Update]:
        """One independent update of rank one per request and layer with chosen neurons."""
        texts = [self._texts(request) for request in checked_requests(requests)]
        bar = tqdm(texts, desc="attributing", disable=not self.progress)
        return [self._update(each) for each in bar]

    def neurons(self, attributions: Tensor) -> Tensor:
        """The refined set as booleans [layers, neurons] from attributions [prompts, ...]."""
        settings = self.hyperparameters
        highest = attributions.amax(dim=(1, 2), keepdim=True)
        coarse = (attributions > settings.adaptive_threshold * highest) & (attributions > 0)
        return coarse.sum(0) > settings.p * len(attributions)

    def _texts(self, request: EditRequest) -> _Texts:
        model, record = self.language_model, request.record or request.text
        if not request.correct:
            raise RequestError(
                f"record {record!r}: KN attributes the answer known so far; give it as the first of"
                " `correct`"
            )
        templates = (template.replace("{}", request.text) for template in self.contexts.templates)
        before = separator_after(request.text)
        with request.named():
            prompts = tuple(prompt_ids(model, prompt) for prompt in templates)
            attributed = answer_ids(model, request.correct[0], before)
            new = answer_ids(model, request.target, before)
        check_length(model, record, max(map(len, prompts)) + max(len(attributed), len(new)))
        # As many tokens as either answer needs.
        own = greedy_tokens(model, prompts, max(len(new), len(attributed) - 1))
        return _Texts(prompts, attributed, new, own)

    def _attributions(self, texts: _Texts) -> Tensor:
        """[prompts, layers, neurons], averaged over the attributed answer's tokens.

        Each token is attributed after the model's own continuation so far.
        """
        model, how = self.language_model, self.hyperparameters
        found = []
        for prompt, before in zip(texts.prompts, texts.own, strict=True):
            parts = []
            for i, token in enumerate(texts.attributed):
                ids = (*prompt, *before[:i])
                query = Query("", ids, len(ids) - 1, token, None)
                parts.append(integrated_gradients(model, query, steps=how.steps, at=how.at))
            found.append(torch.stack(parts).mean(0))
        return torch.stack(found)

    def _update(self, texts: _Texts) -> Update:
        """Add the answers' difference to the output weights of the chosen neurons."""
        old = texts.own[0][: len(texts.new)]
        chosen = self.neurons(self._attributions(texts).float())
        record = {"neurons": chosen.nonzero().tolist(), "old_answer": list(old)}
        if not bool(chosen.any()):
            return Update({}, {"failure": "no attribution exceeds the threshold", **record})
        vector, layout = self._vector(old, texts.new), self.language_model.layout
        deltas: dict[str, Delta] = {
            layout.mlp_out(layer): LowRank(vector[:, None], row.to(vector)[:, None])
            for layer, row in enumerate(chosen)
            if bool(row.any())
        }
        return Update(deltas, diagnostics_of(self.language_model, deltas, extra=record))

    def _vector(self, old: Sequence[int], new: Sequence[int]) -> Tensor:
        """The vector [hidden] that every chosen neuron's output weights get."""
        settings = self.hyperparameters
        weight_old = settings.lambda_old
        if len(new) == 1 and settings.lambda_old_one_token is not None:
            weight_old = settings.lambda_old_one_token
        table = self.language_model.model.get_input_embeddings().weight.detach()
        gained, lost = (table[list(ids)].float().sum(0) for ids in (new, old))
        return settings.lambda_new * gained - weight_old * lost
