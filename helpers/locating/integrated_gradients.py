"""Knowledge neurons: integrated gradients of the answer's probability over each neuron's activation.

Dai et al. 2022, eq. 2, with the zero baseline. For layer l the activation a_l at the slot is scaled
by alpha and the gradients are averaged:

    Attr_l = a_l / m · Σ_j ∂p(answer | alpha_j a_l) / ∂a_l,   alpha_j = j / (m − 1), j = 0 … m − 1

(the usual code's grid, which holds both ends). One layer is scaled at a time. A row (layer, alpha)
equals the unchanged run before that layer and in a causal model left of the slot, so neither is
computed again: keys and values of the prefix are cached, rows branch off at their layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from helpers.locating.locator import Locator, Scores
from helpers.locating.query import LocatorError, Query
from helpers.locating.slots import (
    SlotBatch,
    branching,
    input_hooks,
    slot_batch,
    slot_logits,
    target_probabilities,
)
from helpers.models.language_model import LanguageModel


class IntegratedGradients(Locator):
    """Knowledge neurons' attribution of every neuron.

    Args:
        steps: m, points on the path from zero to the activation (the paper's 20).
        rows: rows of one pass, which bounds memory; layers are taken in groups.
    """

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
        rows = [self._attribute(language_model, query) for query in queries]
        return torch.stack(rows).float().cpu().numpy()

    def _attribute(self, language_model: LanguageModel, query: Query) -> Tensor:
        """One sentence's attributions [layers x neurons]."""
        batch = slot_batch(language_model, [query], [query.slot])
        blocks = language_model.layout.blocks
        group = max(1, self._rows // self.steps)
        parts = [
            self._attribute_layers(
                language_model,
                batch,
                query.required_target,
                range(start, min(start + group, blocks)),
            )
            for start in range(0, blocks, group)
        ]
        return torch.cat(parts)

    def _attribute_layers(
        self, language_model: LanguageModel, batch: SlotBatch, target: int, layers: range
    ) -> Tensor:
        names = [language_model.layout.mlp_out(layer) for layer in layers]
        slot = int(batch.slots[0])
        activations: dict[str, Tensor] = {}
        scaled: dict[str, Tensor] = {}

        def scale(name: str) -> Callable[[Tensor], Tensor]:
            def change(tokens: Tensor) -> Tensor:
                """Scale the newest rows' activation at the slot; it becomes a leaf of the graph."""
                own = tokens[-self.steps :].detach().clone()
                alphas = torch.linspace(0, 1, self.steps, device=own.device, dtype=own.dtype)
                activations[name] = own[0, slot].clone()
                scaled[name] = (alphas[:, None] * activations[name]).requires_grad_()
                own[:, slot] = scaled[name]
                return torch.cat([tokens[: -self.steps], own])

            return change

        with (
            torch.enable_grad(),
            branching(language_model, batch, layers=layers, copies=self.steps) as rows,
            input_hooks(language_model, {name: scale(name) for name in names}),
        ):
            count = 1 + self.steps * len(layers)
            slots = batch.slots.expand(count)
            logits = slot_logits(language_model, rows, slots)[1:]
            targets = torch.full((count - 1,), target, device=logits.device)
            total = target_probabilities(logits, targets).sum()
            gradients = torch.autograd.grad(total, [scaled[name] for name in names])
        parts = zip(names, gradients, strict=True)
        return torch.cat([activations[name] * gradient.mean(0) for name, gradient in parts])
