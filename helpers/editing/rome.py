"""ROME: a rank-one update of one MLP matrix that maps the subject's key to an optimised value.

With C the keys' second moment, k_bar the key averaged over context templates, u = C^-1 k_bar scaled
to unit length, k and y the bare prompt's key and value, and v* = y + delta the optimised value:

    Delta W = (v* - y) u^T / (k . u)

so that (W + Delta W) k = v* (Meng et al. 2022, eq. 2). PEAK's eq. 13 has k_bar for k throughout,
W k_bar for y included: ``rome_key="averaged"``, known as R-ROME.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from helpers.editing.contexts import read_at_subjects
from helpers.editing.editor import diagnostics_of, failed
from helpers.editing.presets import VectorHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.update import LowRank, Update
from helpers.editing.vector import VectorEditor

AVERAGED_VERSION = 1  # raise it when the averaged key gives another update


class RomeHyperparameters(VectorHyperparameters):
    """ROME (one layer). ``rome_key`` names the key in the denominator: the bare prompt's (the code
    most people ran) or the averaged one (the equation; R-ROME).
    """

    one_layer = True
    mom2_adjustment: bool = True
    rome_key: Literal["bare", "averaged"] = "bare"

    @property
    def moment_layers(self) -> tuple[int, ...]:
        """The layer, unless the key is used as it is."""
        return self.layers if self.mom2_adjustment else ()


@dataclass
class Rome(VectorEditor):
    """ROME on one model (statistics are unused with ``mom2_adjustment`` off)."""

    hyperparameters: RomeHyperparameters

    name = "rome"
    version = 1

    def versions(self) -> dict[str, int]:
        """With the averaged key, R-ROME's, too."""
        averaged = self.hyperparameters.rome_key == "averaged"
        return super().versions() | ({"r-rome": AVERAGED_VERSION} if averaged else {})

    def edit(self, requests: Sequence[EditRequest]) -> list[Update]:
        """One independent rank-one update per request."""
        (layer,), layout = self.hyperparameters.layers, self.language_model.layout
        module = layout.mlp_out(layer)
        vectors = self.optimised(requests, layout.mlp(layer))  # y and delta, APP's loss in it
        seen = read_at_subjects(self.language_model, self.prompts(requests), inputs=[module])
        updates = []
        for vector, keys in zip(vectors, seen[module], strict=True):
            averaged = self.contexts.averaged(keys)
            direction = self._direction(layer, averaged)
            key, missing = keys[0], vector.delta
            if self.hyperparameters.rome_key == "averaged":
                key = averaged
                missing = vector.initial + vector.delta - self._value(module, averaged)
            product = key.double() @ direction
            left = (missing.double() / product).float()
            if vector.failure:
                updates.append(failed(vector))
            elif not bool(torch.isfinite(keys).all()):
                updates.append(failed(vector, "the key is not finite"))
            elif not bool(torch.isfinite(left).all()):
                updates.append(failed(vector, "the key is orthogonal to its direction (k.u = 0)"))
            else:
                deltas = {module: LowRank(left[:, None], direction.float()[:, None])}
                extra = {"key_dot_direction": float(product)}
                noted = diagnostics_of(self.language_model, deltas, vector, extra)
                updates.append(Update(deltas, noted))
        return updates

    def _direction(self, layer: int, averaged: Tensor) -> Tensor:
        """u, the unit vector along C^-1 k_bar (or k_bar), in fp64."""
        solved = averaged.double()
        if self.hyperparameters.mom2_adjustment:
            solved = self.second_moments[layer].solve(averaged).double()
        return solved / solved.norm()

    @torch.no_grad()
    def _value(self, module: str, key: Tensor) -> Tensor:
        """What the module gives for a key [f]: its value [d]."""
        entering = key.to(self.language_model.dtype)[None, None]
        value: Tensor = self.language_model.module(module)(entering)[0, 0]
        return value.float()
