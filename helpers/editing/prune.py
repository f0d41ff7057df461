"""PRUNE: draw in the large singular values of what a whole sequence of edits added up to.

Let D = W_N - W_0 after N edits, with singular values s, and s_max the largest singular value of the
unedited W_0. Every s >= s_max becomes log_a(s) - log_a(s_max) + s_max, the others stay (Ma et al.
2025). D is never decomposed in full: with D = A B^T, one QR of each factor leaves an N x N
problem. A single edit is usually far below s_max, where PRUNE changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from helpers.editing.deltas import Delta, Dense, LowRank
from helpers.editing.editor import diagnostics_of
from helpers.editing.hyperparameters import WrapperHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.update import Update
from helpers.editing.wrapper import Wrapper


class PruneHyperparameters(WrapperHyperparameters):
    """PRUNE: how singular values above the weight's largest one are drawn in.

    ``log`` with base a maps s to log_a(s) - log_a(s_max) + s_max, ``linear`` to (s + s_max) / 2.
    ``prune_compat="added"`` adds the restrained update to the full one, as one public port does.
    """

    base: Literal["memit", "rome", "alphaedit", "rect", "mend"] = "memit"
    restraint: Literal["log", "linear"] = "log"
    log_base: float = Field(default=math.e, gt=1)
    prune_compat: Literal["replaced", "added"] = "replaced"


@dataclass
class Prune(Wrapper):
    """PRUNE on top of another editor.

    A sequence continues from the unrestrained edits before it; each cumulative update is
    restrained only where it is yielded.
    """

    hyperparameters: PruneHyperparameters
    _largest: dict[str, float] = field(default_factory=dict, init=False, repr=False)

    name = "prune"
    version = 1

    def edit(self, requests: Sequence[EditRequest]) -> list[Update]:
        """The base editor's independent updates, each restrained."""
        return [self._restrained(update) for update in self.base.edit(requests)]

    def edit_jointly(self, requests: Sequence[EditRequest]) -> Update:
        """The base editor's joint update, restrained."""
        return self._restrained(self.base.edit_jointly(requests))

    def edit_sequentially(
        self, requests: Sequence[EditRequest], *, batch: int = 1
    ) -> Iterator[Update]:
        """The base editor's cumulative updates, each restrained as if it were the last."""
        for total in self.base.edit_sequentially(requests, batch=batch):
            yield self._restrained(total)

    def edit_after(self, earlier: Update, requests: Sequence[EditRequest]) -> Update:
        """What the base editor adds, unrestrained: only a whole sequence is restrained."""
        return self.base.edit_after(earlier, requests)

    def largest(self, module: str) -> float:
        """s_max of a module's unedited weight, found once."""
        if module not in self._largest:
            self._largest[module] = largest_singular_value(self.language_model.weight(module))
        return self._largest[module]

    def _enlarges(self, limit: float) -> bool:
        """Whether values just above the limit grow: the logarithm is steeper than 1 there."""
        settings = self.hyperparameters
        return settings.restraint == "log" and limit * math.log(settings.log_base) < 1

    def _restrained(self, update: Update) -> Update:
        deltas: dict[str, Delta] = {}
        noted: dict[str, dict[str, float]] = {}
        for name, delta in update.items():
            limit = self.largest(name)
            restrained, count = restrain(delta, limit, self.hyperparameters)
            added = self.hyperparameters.prune_compat == "added"
            deltas[name] = delta.plus(restrained) if added else restrained
            noted[name] = {"largest_singular_value": limit, "restrained": count}
            if self._enlarges(limit):
                noted[name]["enlarges"] = True
        changed: dict[str, Any] = {}
        if deltas:
            extra: dict[str, Any] = {"prune": noted}
            if all(deltas[name] is update[name] for name in deltas):
                extra["same_as"] = self.base.method
            changed = diagnostics_of(self.language_model, deltas, extra=extra)
        return Update(deltas, {**update.diagnostics, **changed})


def restrain(delta: Delta, limit: float, settings: PruneHyperparameters) -> tuple[Delta, int]:
    """A delta with its singular values above ``limit`` mapped by the restraint, and how many.

    The logarithm draws values in only where ``limit`` is at least 1 / ln(base); below, it enlarges
    those just above the limit, as the published formula does (``Prune`` notes it).
    """
    if delta.norm() < limit:  # no singular value exceeds the Frobenius norm
        return delta, 0
    left, values, right = _decomposed(delta)
    large = values >= limit
    if not bool(large.any()):
        return delta, 0
    if settings.restraint == "log":
        drawn_in = (values / limit).log() / math.log(settings.log_base) + limit
    else:
        drawn_in = (values + limit) / 2
    scaled = left * torch.where(large, drawn_in, values)
    if delta.factors() is None:
        return Dense((scaled @ right.T).float(), delta.bias_term()), int(large.sum())
    return LowRank(scaled.float(), right.float()), int(large.sum())


def _decomposed(delta: Delta) -> tuple[Tensor, Tensor, Tensor]:
    """Singular vectors (in columns) and values of a delta, through its factors where it has them."""
    factors = delta.factors()
    if factors is None:
        left, values, right = torch.linalg.svd(delta.dense().double(), full_matrices=False)
        return left, values, right.T
    (q_left, r_left), (q_right, r_right) = (torch.linalg.qr(f.double()) for f in factors)
    left, values, right = torch.linalg.svd(r_left @ r_right.T, full_matrices=False)
    return q_left @ left, values, q_right @ right.T


def largest_singular_value(
    matrix: Tensor, *, tolerance: float = 1e-9, most_steps: int = 10_000
) -> float:
    """Power iteration on W^T W from a seeded start, until the value stands still."""
    weight = matrix.float()
    generator = torch.Generator().manual_seed(0)
    vector = torch.randn(weight.shape[1], generator=generator).to(weight)
    value = 0.0
    for _ in range(most_steps):
        vector = weight.T @ (weight @ (vector / vector.norm()))
        previous, value = value, float(vector.norm()) ** 0.5
        if abs(value - previous) <= tolerance * value:
            break
    return value
