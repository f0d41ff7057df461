"""ENCORE: MEMIT that accumulates, with updates and vectors that are held short.

With C the keys' second moment, K_t and R_t the keys and residuals of a sequence's turn t,

    Delta W_t = R_t K_t^T (lambda C + sum over i <= t of K_i K_i^T + lambda_n I)^-1,

where lambda_n is the weight of ||Delta W||^2 in MEMIT's objective (Gupta et al. 2025, "Lifelong Sequential
Knowledge Editing without Model Degradation", 2502.01636). With lambda_n = 0 it is ``memit-seq``.

The optimisation of a vector ends early: at evaluation number ``top_evaluations`` of those at which every
token of the target is the most probable one in all contexts (the paper's most-probable early stopping), if no
other stop was before.

Deviations. The code compares the number of *tokens* that are the most probable with 5, the number of its
sampled contexts, so that a target of two tokens stops half-way or never; and it omits the bare prompt,
the first of its rows. Here every token counts, in every context. The keys of a turn are read on the model
after the turn, as AlphaEdit's are; the code keeps those of its solve, read before later layers were written.
They are kept for one sequence, not for as long as the program runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field
from torch import Tensor

from helpers.editing.memit import Memit, MemitHyperparameters


class EncoreHyperparameters(MemitHyperparameters):
    """ENCORE: MEMIT's hyperparameters; ``update_norm_lambda`` is lambda_n."""

    accumulate: bool = True
    update_norm_lambda: float = Field(ge=0)


@dataclass
class Encore(Memit):
    """ENCORE on one model."""

    hyperparameters: EncoreHyperparameters
    name = "encore"

    def directions(self, layer: int, keys: Tensor) -> tuple[Tensor, float]:
        """(lambda C + lambda_n I)^-1 K."""
        settings = self.hyperparameters
        if not settings.update_norm_lambda:
            return super().directions(layer, keys)
        ridge = settings.update_norm_lambda / settings.mom2_update_weight
        moment = self.second_moments[layer].with_ridge(ridge)
        return moment.solve(keys) / settings.mom2_update_weight, 1.0
