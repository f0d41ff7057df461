"""Direct logit attribution: what a unit's own output adds to the answer's logit.

A neuron writes a_j · w_j into the residual stream, a layer the sum of its neurons and its bias. The
score is the drop of the answer's logit when that write is taken out of the last residual stream
*before the final norm*, everything between held fixed. The norm is computed anew each time, so
nothing is linearised. Effects through later layers do not count: that is what *direct* means.
A neuron's share of a logit is lost in the rounding of half precision: whatever the model's dtype,
the differences are taken in fp32.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from helpers.locating.locator import Granularity, Locator, Scores
from helpers.locating.masked import MaskedLanguageModel
from helpers.locating.query import LocatorError, Query
from helpers.locating.slots import slot_batch, slot_logits
from helpers.models.language_model import LanguageModel
from helpers.models.trace import record_inputs

_POST_NORM = "post_feedforward_layernorm"  # Gemma 3 normalises what an MLP writes


class LogitAttribution(Locator):
    """Drop of the answer's logit without one neuron's, or one layer's, direct write.

    Args:
        granularity: ``"neuron"`` or ``"layer"``.
    """

    at_a_time = 8

    def __init__(self, *, granularity: Granularity = "neuron") -> None:
        if granularity not in ("neuron", "layer"):
            raise LocatorError(f"logit attribution has no {granularity} granularity")
        self.granularity = granularity
        self.name = f"logit attribution ({granularity})"

    @torch.inference_mode()
    def scores(self, language_model: LanguageModel, queries: Sequence[Query]) -> Scores:
        """Logit drops, signed: [queries, layers x neurons] or [queries, layers].

        Raises:
            LocatorError: a masked model, whose residual stream is normalised at every layer.
        """
        if isinstance(language_model, MaskedLanguageModel):
            raise LocatorError("logit attribution needs a causal model with one final norm")
        layout = language_model.layout
        names = [layout.mlp_out(layer) for layer in range(layout.blocks)]
        norm_name = layout.architecture.final_norm
        batch = slot_batch(language_model, queries)
        with record_inputs(language_model, [*names, norm_name]) as recorded:
            slot_logits(language_model, batch)
        residual = batch.at_slots(recorded[norm_name]).float()
        norm = deepcopy(language_model.module(norm_name)).float()
        head = language_model.model.get_output_embeddings().weight
        rows = []
        for row, query in enumerate(queries):
            readout = head[query.required_target].float()
            whole = norm(residual[row]) @ readout
            drops = [
                whole - norm(residual[row] - self._writes(language_model, layer, a)) @ readout
                for layer, name in enumerate(names)
                for a in [batch.at_slots(recorded[name])[row]]
            ]
            rows.append(torch.cat(drops))
        return torch.stack(rows).cpu().numpy()

    def _writes(self, language_model: LanguageModel, layer: int, activation: Tensor) -> Tensor:
        """What the layer's units add to the residual stream, fp32: [neurons, hidden] or [1, hidden]."""
        name = language_model.layout.mlp_out(layer)
        whole = language_model.module(name)(activation)
        writes = whole.float()[None]
        if self.granularity == "neuron":
            writes = activation.float()[:, None] * language_model.weight(name).T.float()
        post = getattr(language_model.module(language_model.layout.block(layer)), _POST_NORM, None)
        return writes if post is None else writes * _diagonal(post, whole)


def _diagonal(norm: nn.Module, vector: Tensor) -> Tensor:
    """An RMS norm as the diagonal map it is once its scale is that of ``vector``, fp32."""
    wide = vector.float()
    return deepcopy(norm).float()(wide) / torch.where(wide == 0, torch.ones_like(wide), wide)
