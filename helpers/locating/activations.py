"""Activation magnitude, and gradient times activation: the two one-pass neuron locators."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from helpers.locating.locator import Locator, Scores
from helpers.locating.query import Query
from helpers.locating.slots import slot_batch, slot_logits, target_probabilities, traced
from helpers.models.language_model import LanguageModel
from helpers.models.trace import record_inputs


class ActivationMagnitude(Locator):
    """|a| of every neuron at the slot; needs no answer."""

    name = "activation"
    granularity = "neuron"

    @torch.inference_mode()
    def scores(self, language_model: LanguageModel, queries: Sequence[Query]) -> Scores:
        """Absolute activations, [queries, layers x neurons]."""
        layout = language_model.layout
        names = [layout.mlp_out(layer) for layer in range(layout.blocks)]
        batch = slot_batch(language_model, queries)
        with record_inputs(language_model, names) as activations:
            slot_logits(language_model, batch)
        layers = [batch.at_slots(activations[name]).abs() for name in names]
        return _flat(layers)


class GradientActivation(Locator):
    """a · ∂p(answer)/∂a of every neuron at the slot: integrated gradients with a single step.

    Only the slot's token of a causal model runs with gradients; what stands before it cannot depend
    on its activations.
    """

    name = "gradient x activation"
    granularity = "neuron"

    def scores(self, language_model: LanguageModel, queries: Sequence[Query]) -> Scores:
        """Signed products, [queries, layers x neurons]."""
        device = language_model.device
        targets = torch.tensor([query.required_target for query in queries], device=device)
        batch = slot_batch(language_model, queries, [query.slot for query in queries])
        layout = language_model.layout
        names = [layout.mlp_out(layer) for layer in range(layout.blocks)]
        with traced(language_model, names) as (activations, _):
            total = target_probabilities(slot_logits(language_model, batch), targets).sum()
            gradients = torch.autograd.grad(total, [activations[name] for name in names])
        layers = [
            batch.at_slots(activations[name].detach() * gradient)
            for name, gradient in zip(names, gradients, strict=True)
        ]
        return _flat(layers)


def _flat(layers: Sequence[Tensor]) -> Scores:
    """One [queries, neurons] tensor per layer, joined on the CPU."""
    return torch.cat(list(layers), dim=1).float().cpu().numpy()
