"""MEMIT: many edits at once, spread over layers, held back by the second moment of keys.

With C the second moment, lambda = ``mom2_update_weight``, keys K and residuals R of one layer,

    Delta W = R K^T (lambda C + K K^T)^-1

(Meng et al. 2023, eq. 14). With S = (lambda C)^-1 K this is R (I + K^T S)^-1 S^T, so no [f, f]
matrix is formed beyond one Cholesky factor of C, and one edit alone is r s^T / (1 + k . s).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor

from helpers.editing.hyperparameters import VectorHyperparameters
from helpers.editing.registry import Variety
from helpers.editing.spreading import Factors, SpreadingEditor


class MemitHyperparameters(VectorHyperparameters):
    """MEMIT: consecutive layers; ``mom2_update_weight`` (lambda) weighs the second moment."""

    mom2_update_weight: float = Field(gt=0)


@dataclass
class Memit(SpreadingEditor):
    """MEMIT on one model."""

    hyperparameters: MemitHyperparameters

    name = "memit"
    version = 1
    varieties = (Variety(name="memit", label="MEMIT", colour=1, marker="s", hatch="///"),)

    def solve_each(self, layer: int, keys: Tensor, residuals: Tensor) -> Factors:
        """r s^T / (1 + k . s) for every column."""
        solved = self._solved(layer, keys)
        return residuals / (1 + (keys * solved).sum(0)), solved

    def solve_jointly(self, layer: int, keys: Tensor, residuals: Tensor) -> Factors:
        """R (I + K^T S)^-1 and S."""
        solved = self._solved(layer, keys)
        inner = torch.eye(keys.shape[1], dtype=keys.dtype, device=keys.device) + keys.T @ solved
        return torch.linalg.solve(inner, residuals, left=False), solved

    def _solved(self, layer: int, keys: Tensor) -> Tensor:
        """S = (lambda C)^-1 K."""
        return self.second_moments[layer].solve(keys) / self.hyperparameters.mom2_update_weight
