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
from typing import Any, Literal

import torch
from torch import Tensor

from helpers.editing.deltas import LowRank
from helpers.editing.editor import diagnostics_of, failed
from helpers.editing.hyperparameters import VectorHyperparameters
from helpers.editing.keys import read_at_subjects
from helpers.editing.registry import Variety
from helpers.editing.request import EditRequest
from helpers.editing.update import Update
from helpers.editing.vector import Vector
from helpers.editing.vector_editor import VectorEditor

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
    varieties = (
        Variety(name="rome", label="ROME", colour=4, marker="v", hatch="xxx"),
        Variety(
            name="r-rome",
            label="R-ROME",
            colour=4,
            marker="<",
            hatch="x",
            values={"rome_key": "averaged"},
        ),
    )

    @property
    def needs_second_moments(self) -> bool:
        """Only where the second moment turns the key."""
        return self.hyperparameters.mom2_adjustment

    def versions(self) -> dict[str, int]:
        """With the averaged key, R-ROME's, too."""
        averaged = self.hyperparameters.rome_key == "averaged"
        return super().versions() | ({"r-rome": AVERAGED_VERSION} if averaged else {})

    @property
    def layer(self) -> int:
        """The edited block."""
        return self.hyperparameters.layers[0]

    def edit(self, requests: Sequence[EditRequest]) -> list[Update]:
        """One independent rank-one update per request."""
        layout = self.language_model.layout
        vectors = self.optimised(requests, layout.mlp(self.layer))
        module = layout.mlp_out(self.layer)
        seen = read_at_subjects(self.language_model, self.prompts(requests), inputs=[module])
        return [self._update(v, k) for v, k in zip(vectors, seen[module], strict=True)]

    def _update(self, vector: Vector, keys: Tensor) -> Update:
        """Turn an optimised vector and the keys [templates, f] into a rank-one update."""
        weights = torch.tensor(self.contexts.weights, device=keys.device)
        averaged = weights @ keys
        direction = self._direction(averaged)
        module = self.language_model.layout.mlp_out(self.layer)
        key, missing = keys[0], vector.delta
        if self.hyperparameters.rome_key == "averaged":
            key = averaged
            missing = vector.initial + vector.delta - self._value(module, averaged)
        product = key.double() @ direction
        left = (missing.double() / product).float()
        if vector.failure:
            return failed(vector)
        if not bool(torch.isfinite(keys).all()):
            return failed(vector, "the key is not finite")
        if not bool(torch.isfinite(left).all()):
            return failed(vector, "the key is orthogonal to its direction (k.u = 0)")
        deltas = {module: LowRank(left[:, None], direction.float()[:, None])}
        extra: dict[str, Any] = {"key_dot_direction": float(product)}
        return Update(deltas, diagnostics_of(self.language_model, deltas, vector, extra))

    @torch.no_grad()
    def _value(self, module: str, key: Tensor) -> Tensor:
        """What the module gives for a key [f]: its value [d]."""
        entering = key.to(self.language_model.dtype)[None, None]
        value: Tensor = self.language_model.module(module)(entering)[0, 0]
        return value.float()

    def _direction(self, averaged: Tensor) -> Tensor:
        """u, the unit vector along C^-1 k_bar (or k_bar), in fp64."""
        if not self.hyperparameters.mom2_adjustment:
            solved = averaged.double()
        else:
            solved = self.second_moments[self.layer].solve(averaged).double()
        return solved / solved.norm()
