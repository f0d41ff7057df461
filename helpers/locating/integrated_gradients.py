"""Knowledge neurons: integrated gradients of the answer's probability over each neuron's activation.

Dai et al. 2022, eq. 2, with the zero baseline. For layer l the activation a_l at the slot is scaled
by alpha and the gradients are averaged:

    Attr_l = a_l / m · Σ_j ∂p(answer | alpha_j a_l) / ∂a_l,   alpha_j = j / (m − 1), j = 0 … m − 1

(the usual code's grid, which holds both ends). One layer is scaled at a time. A row (layer, alpha)
equals the unchanged run before that layer, and in a causal model left of the slot. Neither is
computed again: keys and values of the prefix are cached, rows branch off at their layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor

from helpers.locating.locator import Locator, Scores
from helpers.locating.query import LocatorError, Query
from helpers.locating.slots import SlotBatch, branching, slot_batch, slot_logits
from helpers.models.batching import run_halving
from helpers.models.hooks import OnOutput, input_hooks, output_hooks
from helpers.models.language_model import LanguageModel

Place = Literal["activation", "gate"]


class IntegratedGradients(Locator):
    """Knowledge neurons' attribution of every neuron.

    Args:
        steps: m, points on the path from zero to the activation (the paper's 20).
        rows: rows of one pass, which bounds memory; layers are taken in groups.
    """

    version: ClassVar[int] = 1  # raise it when the same query gets other attributions
    name = "integrated gradients"
    granularity = "neuron"
    at_a_time = 1

    def __init__(self, *, steps: int = 20, rows: int = 1024) -> None:
        if steps < 2:
            raise LocatorError(f"integrated gradients need at least 2 steps, got {steps}")
        self.steps = steps
        self._rows = rows

    def scores(self, language_model: LanguageModel, queries: Sequence[Query]) -> Scores:
        """Attributions, [queries, layers x neurons]."""
        found = [
            integrated_gradients(language_model, query, steps=self.steps, rows=self._rows)
            for query in queries
        ]
        return torch.stack(found).flatten(1).float().cpu().numpy()


def integrated_gradients(
    language_model: LanguageModel,
    query: Query,
    *,
    steps: int = 20,
    rows: int = 1024,
    at: Place = "activation",
) -> Tensor:
    """One sentence's attributions [layers, neurons].

    Args:
        query: the sentence, with its target.
        steps: m; 1 is the gradient at zero alone.
        rows: rows of one pass, which bounds memory; layers are taken in groups.
        at: scale the neuron's ``activation`` (the input of the MLP's second matrix) or the
            ``gate``'s output, before the activation function.

    Raises:
        LocatorError: the query has no target.
    """
    batch = slot_batch(language_model, [query], [query.slot])
    blocks = language_model.layout.blocks
    group = max(1, rows // steps)
    target = query.required_target

    def run(layers: Sequence[int]) -> Tensor:
        return _attribute_layers(language_model, batch, target, layers, steps, at)

    groups = (range(start, min(start + group, blocks)) for start in range(0, blocks, group))
    return torch.cat([part for layers in groups for part in run_halving(layers, run)])


def _attribute_layers(
    language_model: LanguageModel,
    batch: SlotBatch,
    target: int,
    layers: Sequence[int],
    steps: int,
    at: Place,
) -> Tensor:
    layout = language_model.layout
    names = [layout.mlp_out(i) if at == "activation" else layout.gate(i) for i in layers]
    slot = int(batch.slots[0])
    activations: dict[str, Tensor] = {}
    scaled: dict[str, Tensor] = {}

    def scale(name: str) -> Callable[[Tensor], Tensor]:
        def change(tokens: Tensor) -> Tensor:
            """Scale the newest rows' activation at the slot; it becomes a leaf of the graph."""
            own = tokens[-steps:].detach().clone()
            alphas = torch.linspace(0, 1, steps, device=own.device, dtype=own.dtype)
            activations[name] = own[0, slot].clone()
            scaled[name] = (alphas[:, None] * activations[name]).requires_grad_()
            own[:, slot] = scaled[name]
            return torch.cat([tokens[:-steps], own])

        return change

    def scaling(name: str) -> OnOutput:
        change = scale(name)
        return lambda _, tokens: change(tokens)

    if at == "activation":
        hooks = input_hooks(language_model, {name: scale(name) for name in names})
    else:
        hooks = output_hooks(language_model, {name: scaling(name) for name in names})
    with (
        torch.enable_grad(),
        branching(language_model, batch, layers=layers, copies=steps) as branched,
        hooks,
    ):
        count = 1 + steps * len(layers)
        logits = slot_logits(language_model, branched, batch.slots.expand(count))[1:]
        total = logits.log_softmax(1)[:, target].exp().sum()
        gradients = torch.autograd.grad(total, [scaled[name] for name in names])
    pairs = zip(names, gradients, strict=True)
    return torch.stack([activations[name] * gradient.mean(0) for name, gradient in pairs])
