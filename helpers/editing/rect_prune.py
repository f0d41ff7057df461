"""RECT and PRUNE, which change the updates of another editor, MEMIT or ROME as a rule.

RECT keeps, of each Delta W, the share ``keep`` of entries with the largest |Delta W / W|; the rest is
zero (Gu et al. 2024).

PRUNE draws in the large singular values of what a whole sequence of edits added up to. Let
D = W_N - W_0 after N edits, with singular values s, and s_max the largest singular value of the
unedited W_0. Every s >= s_max becomes log_a(s) - log_a(s_max) + s_max, the others stay (Ma et al.
2025). D is never decomposed in full: with D = A B^T, one QR of each factor leaves an N x N
problem. A single edit is usually far below s_max, where PRUNE changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from helpers.editing.edit import Edit
from helpers.editing.editor import Wrapper, diagnostics_of
from helpers.editing.interventions import Delta, Dense, LowRank, Masked
from helpers.editing.presets import WrapperHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.sequence import SequenceState
from helpers.editing.weight_edit import WeightEdit


class RectHyperparameters(WrapperHyperparameters):
    """RECT: ``keep`` is the share of each matrix's entries whose change survives."""

    base: Literal["memit", "rome"] = "memit"
    keep: float = Field(default=0.4, gt=0, le=1)


@dataclass
class Rect(Wrapper):
    """RECT on top of another editor."""

    hyperparameters: RectHyperparameters
    name = "rect"

    def changed(self, edit: WeightEdit, earlier: WeightEdit | None = None) -> WeightEdit:
        """The edit masked, relative to the weights with the earlier edits in them."""
        deltas = {}
        for name, delta in edit.items():
            weight = self.lm.weight(name).float()
            if earlier and name in earlier:
                weight = weight + earlier[name].dense().to(weight)
            deltas[name] = keep_largest(delta, weight, self.hyperparameters.keep)
        if not deltas:
            return edit
        recorded = diagnostics_of(self.lm, deltas)
        return WeightEdit(deltas, {**edit.diagnostics, **recorded})

    def edit_after(self, earlier: Edit, requests: Sequence[EditRequest]) -> WeightEdit:
        """What the base editor adds, masked."""
        added = self.weights(self.base.edit_after(earlier, requests))
        return self.changed(added, self.weights(earlier))


def keep_largest(delta: Delta, weight: Tensor, share: float) -> Delta:
    """``delta`` without all entries but the ``share`` with the largest |delta / weight|; ties are kept."""
    dense = delta.dense().to(weight)
    ratio = (dense / (weight + 1e-8)).abs()  # so that a weight of zero does not divide
    dropped = int((1 - share) * ratio.numel())
    if ratio.is_cuda:  # where kthvalue is many times slower than sorting
        threshold = ratio.flatten().sort().values[dropped]
    else:
        threshold = ratio.flatten().kthvalue(dropped + 1).values
    keep = ratio >= threshold
    if isinstance(delta, LowRank):
        return Masked.from_mask(delta, keep)
    return Dense(torch.where(keep, dense, 0.0), delta.bias)


class PruneHyperparameters(WrapperHyperparameters):
    """PRUNE: ``log_base`` is the a of log_a; the paper's code takes the natural logarithm."""

    base: Literal["memit", "rome", "alphaedit", "rect", "mend"] = "memit"
    restraint: Literal["log"] = "log"
    log_base: float = Field(default=math.e, gt=1)
    prune_compat: Literal["replaced", "added"] = "replaced"  # or added to the whole, as in one port


@dataclass
class Prune(Wrapper):
    """PRUNE on top of another editor; only a whole sequence is restrained, where it is yielded."""

    hyperparameters: PruneHyperparameters
    _largest: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    name = "prune"

    def edit_sequentially(self, requests: Sequence[EditRequest]) -> Iterator[WeightEdit]:
        """The base editor's cumulative edits, which it may have, each restrained as if it were the last."""
        cumulative_edits = self.base.edit_sequentially(requests)
        return (self.changed(self.weights(total)) for total in cumulative_edits)

    def after_turn(self, state: SequenceState, requests: Sequence[EditRequest]) -> SequenceState:
        """The base editor's next turn, unrestrained."""
        return self.base.after_turn(state, requests)

    def edit_of(self, state: SequenceState) -> WeightEdit:
        """All edits so far, restrained as if the last of them ended the sequence."""
        return self.changed(self.weights(self.base.edit_of(state)))

    def edit_after(self, earlier: Edit, requests: Sequence[EditRequest]) -> Edit:
        """What the base editor adds, unrestrained."""
        return self.base.edit_after(earlier, requests)

    def changed(self, edit: WeightEdit) -> WeightEdit:
        """The edit restrained; its diagnostics name s_max and how many values exceeded it."""
        deltas: dict[str, Delta] = {}
        notes: dict[str, dict[str, float]] = {}
        for name, delta in edit.items():
            if name not in self._largest:
                weight = self.lm.weight(name).float()
                self._largest[name] = float(torch.linalg.matrix_norm(weight, 2))
            limit, base = self._largest[name], self.hyperparameters.log_base
            restrained, count = restrain(delta, limit, base)
            added = self.hyperparameters.prune_compat == "added"
            deltas[name] = delta.plus(restrained) if added else restrained
            notes[name] = {"largest_singular_value": limit, "restrained": count}
        if not deltas:
            return edit
        recorded = diagnostics_of(self.lm, deltas, {"prune": notes})
        return WeightEdit(deltas, {**edit.diagnostics, **recorded})


def restrain(delta: Delta, limit: float, log_base: float) -> tuple[Delta, int]:
    """A delta with its singular values from ``limit`` on mapped by the logarithm, and how many.

    Where ``limit`` is below 1 / ln(base), values just above it grow, as in the published formula.
    """
    if delta.norm() < limit:  # no singular value exceeds the Frobenius norm
        return delta, 0
    if isinstance(delta, LowRank):
        q_left, r_left = torch.linalg.qr(delta.left.double())
        q_right, r_right = torch.linalg.qr(delta.right.double())
        core = r_left @ r_right.T
    else:
        core = delta.dense().double()
    left, values, right = torch.linalg.svd(core, full_matrices=False)
    large = values >= limit
    if not bool(large.any()):
        return delta, 0
    lowered = (values / limit).log() / math.log(log_base) + limit
    scaled = left * torch.where(large, lowered, values)
    count = int(large.sum())
    if isinstance(delta, LowRank):
        return LowRank((q_left @ scaled).float(), (q_right @ right.T).float()), count
    return Dense((scaled @ right).float(), delta.bias), count
