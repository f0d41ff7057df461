"""ROME: a rank-one update of one MLP matrix that maps the subject's key to an optimised value.

With C the keys' second moment, k_bar the key averaged over context templates, u = C^-1 k_bar scaled
to unit length, k and y the bare prompt's key and value, and v* = y + delta the optimised value:

    Delta W = (v* - y) u^T / (k . u)

so that (W + Delta W) k = v* (Meng et al. 2022, eq. 2). APP is part of the loss that delta minimises
(``vector``). PEAK's eq. 13 has k_bar for k throughout, W k_bar for y included:
``rome_key="averaged"``, known as R-ROME.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from helpers.editing.contexts import read_at_subjects
from helpers.editing.editor import diagnostics_of
from helpers.editing.interventions import LowRank
from helpers.editing.presets import VectorHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.vector import Vector, VectorEditor
from helpers.editing.weight_edit import WeightEdit


class RomeHyperparameters(VectorHyperparameters):
    """ROME's hyperparameters, of one layer.

    ``rome_key`` is the key in the denominator: the bare prompt's, as in the code that most people ran, or the
    one averaged over contexts, as in the equation (R-ROME). Without ``mom2_adjustment`` C is unused.
    """

    layers: tuple[int]
    mom2_adjustment: bool = True
    rome_key: Literal["bare", "averaged"] = "bare"

    @property
    def moment_layers(self) -> tuple[int, ...]:
        """The layer, unless the key is used as it is."""
        return self.layers if self.mom2_adjustment else ()


@dataclass
class Rome(VectorEditor):
    """ROME on one model: an independent rank-one update per request."""

    hyperparameters: RomeHyperparameters
    name = "rome"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hyperparameters.rome_key == "averaged":
            self.versioned_parts += ("r-rome",)

    def edit(self, requests: Sequence[EditRequest]) -> list[WeightEdit]:
        """One independent edit per request: the rank-one update of one matrix, by the equation above."""
        lm = self.lm
        (layer,) = self.hyperparameters.layers
        key_module_name = lm.layout.mlp_out(layer)
        # y and delta; the loss that delta minimises includes APP.
        vectors = self.optimised(requests, lm.layout.mlp(layer))
        prompts = self.prompts(requests)  # in every context, the bare one first
        keys_by_module = read_at_subjects(lm, prompts, inputs=[key_module_name])
        return [
            self._weight_edit(layer, keys, vector)
            for keys, vector in zip(keys_by_module[key_module_name], vectors, strict=True)
        ]

    def _weight_edit(self, layer: int, keys: Tensor, vector: Vector) -> WeightEdit:
        """One edit's update from its subject's keys [templates, f], the bare prompt's first."""
        if vector.failure:
            return vector.failed_edit()
        averaged_key = self.contexts.averaged(keys)  # k_bar [f]
        if self.hyperparameters.rome_key == "averaged":
            key = averaged_key
            # What is missing: v* - W k_bar.
            value_change = vector.initial + vector.delta - self._value(layer, averaged_key)
        else:
            key = keys[0]
            value_change = vector.delta  # v* - y, where y is vector.initial
        direction = self._direction(layer, averaged_key)  # u [f], fp64
        key_dot_direction = key.double() @ direction
        left = (value_change.double() / key_dot_direction).float()
        right = direction.float()
        if not bool(left.isfinite().all() and right.isfinite().all()):
            return vector.failed_edit(
                "the key is not finite, or orthogonal to its direction (k.u = 0)"
            )
        deltas = {self.lm.layout.mlp_out(layer): LowRank(left[:, None], right[:, None])}
        notes = {"key_dot_direction": float(key_dot_direction), **vector.notes}
        return WeightEdit(deltas, diagnostics_of(self.lm, deltas, notes))

    def _direction(self, layer: int, averaged_key: Tensor) -> Tensor:
        """u [f]: C^-1 k_bar, or k_bar itself, scaled to unit length, in fp64."""
        if self.hyperparameters.mom2_adjustment:
            direction = self.second_moments[layer].solve(averaged_key).double()
        else:
            direction = averaged_key.double()
        return direction / direction.norm()

    @torch.no_grad()
    def _value(self, layer: int, key: Tensor) -> Tensor:
        """What the unedited matrix gives for a key [f]: [d]."""
        mlp_out = self.lm.module(self.lm.layout.mlp_out(layer))
        output: Tensor = mlp_out(key.to(self.lm.dtype)[None, None])  # [1, 1, d]
        return output[0, 0].float()
