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

from helpers.editing.contexts import read_at_subjects
from helpers.editing.editor import diagnostics_of
from helpers.editing.presets import VectorHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.update import LowRank, Update
from helpers.editing.vector import Vector, VectorEditor


class RomeHyperparameters(VectorHyperparameters):
    """ROME, at one layer. ``rome_key`` is the key in the denominator: the bare prompt's (the code most
    people ran) or the averaged one (the equation; R-ROME). Without ``mom2_adjustment`` C is unused.
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
            self.parts += ("r-rome",)

    def edit(self, requests: Sequence[EditRequest]) -> list[Update]:
        """The equation, edit by edit."""
        model = self.model
        settings = self.hyperparameters
        (layer,) = settings.layers
        module = model.layout.mlp_out(layer)
        vectors = self.optimised(
            requests, model.layout.mlp(layer)
        )  # y and delta; the loss includes APP
        prompts = self.prompts(requests)  # in every context, the bare one first
        seen = read_at_subjects(model, prompts, inputs=[module])[module]
        updates = []
        for vector, keys in zip(vectors, seen, strict=True):
            k, k_bar = keys[0], self.contexts.averaged(keys)
            missing = vector.delta  # v* - y, where y is vector.initial
            if settings.rome_key == "averaged":
                k = k_bar
                with torch.no_grad():
                    entering = k_bar.to(model.dtype)[None, None]
                    value = model.module(module)(entering)[0, 0].float()  # W k_bar
                missing = vector.initial + vector.delta - value
            u = k_bar.double()
            if settings.mom2_adjustment:
                u = self.second_moments[layer].solve(k_bar).double()  # C^-1 k_bar
            u = u / u.norm()
            product = k.double() @ u
            left = (missing.double() / product).float()
            delta = LowRank(left[:, None], u.float()[:, None])
            updates.append(self._recorded(module, delta, vector, float(product)))
        return updates

    def _recorded(self, module: str, delta: LowRank, vector: Vector, product: float) -> Update:
        if vector.failure:
            return vector.failed()
        if not all(bool(factor.isfinite().all()) for factor in (delta.left, delta.right)):
            return vector.failed("the key is not finite, or orthogonal to its direction (k.u = 0)")
        noted = {"key_dot_direction": product, **vector.noted}
        return Update({module: delta}, diagnostics_of(self.model, {module: delta}, noted))
