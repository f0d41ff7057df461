"""APP, the objectives that protect a fact's neighbours while an answer is appended (PEAK, sec. 6).

With s(o) the mean-token log-probability of an answer under the current model and s0(o) before the
edit, for correct answers o_i and false answers o_hj:

    L1 = mean over pairs of max(0, M - s(o_i) + s(o_hj))       keep them apart
    L2 = mean over i of max(0, s0(o_i) - s(o_i))               keep the correct ones up
    L3 = mean over j of max(0, s(o_hj) - s0(o_hj))             keep the false ones down

and the edit's own loss grows by alpha L1 + beta L2 + gamma L3. Another objective is another field of
``App`` and another term of ``app_terms``. Tables and figures read the fields without torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from helpers.editing.request import EditRequest

OBJECTIVES = {"alpha": "L1", "beta": "L2", "gamma": "L3"}  # that each coefficient weighs
# Each field of ``App`` as tables write it.
SYMBOLS = {"alpha": "α", "beta": "β", "gamma": "γ", "margin": "M", "neighbours": "k"}


@dataclass(frozen=True)
class App:
    """Coefficients of APP. ``neighbours=k`` keeps the first k answers of each list (None: all)."""

    alpha: float = 0.2
    beta: float = 0.2
    gamma: float = 0.1
    margin: float = 2.0
    neighbours: int | None = None

    def __post_init__(self) -> None:
        if min(self.alpha, self.beta, self.gamma, self.margin, self.neighbours or 0) < 0:
            raise ValueError(f"APP's coefficients, margin, neighbours cannot be negative: {self}")

    @property
    def inert(self) -> bool:
        """Whether it adds nothing to any loss."""
        return self.neighbours == 0 or not (self.alpha or self.beta or self.gamma)

    def answers(self, request: EditRequest) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The correct and false answers of a request that enter the objectives."""
        if self.inert:
            return (), ()
        return request.correct[: self.neighbours], request.false[: self.neighbours]

    def total(self, terms: Tensor) -> Tensor:
        """alpha L1 + beta L2 + gamma L3 for terms [..., 3]."""
        apart, kept_up, kept_down = terms.unbind(-1)
        return self.alpha * apart + self.beta * kept_up + self.gamma * kept_down


@dataclass(frozen=True)
class AnswerScores:
    """Scores of padded answer lists: values [edits, answers], boolean mask of real entries."""

    values: Tensor
    real: Tensor


def app_terms(
    correct: AnswerScores,
    false: AnswerScores,
    correct_before: Tensor,
    false_before: Tensor,
    margin: float,
) -> Tensor:
    """L1, L2 and L3 of each edit, [edits, 3]; a term without answers is 0.

    ``correct`` are s(o_i), ``false`` s(o_hj), ``…_before`` the same of s0, detached; ``margin`` is M.
    """
    import torch

    gaps = margin - correct.values[:, :, None] + false.values[:, None, :]
    pairs = correct.real[:, :, None] & false.real[:, None, :]
    apart = _masked_mean(gaps.relu().flatten(1), pairs.flatten(1))
    kept_up = _masked_mean((correct_before - correct.values).relu(), correct.real)
    kept_down = _masked_mean((false.values - false_before).relu(), false.real)
    return torch.stack([apart, kept_up, kept_down], dim=-1)


def _masked_mean(values: Tensor, real: Tensor) -> Tensor:
    total = values.where(real, 0.0).sum(-1)
    return total / real.sum(-1).clamp(min=1)
