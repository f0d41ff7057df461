"""EMMET with equality constraints: the smallest change of a matrix that maps every key to its value exactly.

With C the keys' second moment, K [f, n] the keys and R [d, n] what is missing at them,

    Delta W = R (K^T C^-1 K)^-1 K^T C^-1

(Gupta et al. 2024, "A Unified Framework for Model Editing"). For one edit this is ROME's update with the
key of the denominator for both. The vector and its spreading are MEMIT's.

Deviations. The authors add e I to K^T C^-1 K for batches, and EasyEdit for every edit; C is weighted by w
in both. But

    R (K^T (w C)^-1 K + e I)^-1 K^T (w C)^-1 = R K^T (e w C + K K^T)^-1,

which is MEMIT on one layer with lambda = e w (``identities``). So only e = 0 is a method of its own here,
and w cancels. Where K^T C^-1 K is singular to a condition number of 1e10, as for two edits of one subject,
its pseudo-inverse takes its place, and the diagnostics report this.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from pydantic import field_validator
from torch import Tensor

from helpers.editing.key_history import KeyHistory
from helpers.editing.memit import SpreadingEditor
from helpers.editing.presets import VectorHyperparameters

_LARGEST_CONDITION = 1e10


class EmmetHyperparameters(VectorHyperparameters):
    """EMMET: MEMIT's hyperparameters of the vector; ``emmet_lambda`` is e."""

    emmet_lambda: float = 0.0

    @field_validator("emmet_lambda")
    @classmethod
    def _exact(cls, emmet_lambda: float) -> float:
        if emmet_lambda != 0:
            raise ValueError(
                "this is MEMIT with lambda = e w (emmet_lambda times mom2_update_weight); use memit"
            )
        return emmet_lambda


@dataclass
class Emmet(SpreadingEditor):
    """EMMET (e = 0) on one model."""

    hyperparameters: EmmetHyperparameters
    _conditions: dict[int, float] = field(default_factory=dict, init=False, repr=False)
    name = "emmet"

    def directions(self, layer: int, keys: Tensor) -> tuple[Tensor, float]:
        """C^-1 K, without a ridge."""
        return self.second_moments[layer].solve(keys), 0.0

    def solve_each(self, layer: int, keys: Tensor, residuals: Tensor) -> tuple[Tensor, Tensor]:
        """Factors of n edits alone."""
        self._conditions[layer] = 1.0
        return super().solve_each(layer, keys, residuals)

    def solve_jointly(
        self, layer: int, keys: Tensor, residuals: Tensor, history: KeyHistory | None = None
    ) -> tuple[Tensor, Tensor]:
        """Factors of one update that maps every key to its value, and keys of ``history`` to nothing."""
        earlier_keys = (history or {}).get(layer, keys[:, :0])
        all_keys = torch.cat([earlier_keys, keys], dim=1)
        directions, _ = self.directions(layer, all_keys)
        gram_matrix = all_keys.T @ directions
        condition = float(torch.linalg.cond(gram_matrix))
        self._conditions[layer] = condition
        if condition > _LARGEST_CONDITION:
            inverse = torch.linalg.pinv(gram_matrix, rtol=1 / _LARGEST_CONDITION, hermitian=True)
        else:
            inverse = torch.linalg.inv(gram_matrix)
        return residuals, directions @ inverse[:, -keys.shape[1] :]

    def _notes_of_layer(self, layer: int) -> dict[str, Any]:
        """The condition number of K^T C^-1 K, with a warning where keys repeat each other."""
        condition = self._conditions[layer]
        if condition <= _LARGEST_CONDITION:
            return {"condition": condition}
        warning = f"layer {layer}: keys repeat each other (condition {condition:.0e})"
        return {"condition": condition, "warning": f"{warning}, so not every value is met"}
