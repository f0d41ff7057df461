"""RECT: keep only the entries of an update that change their weight most, relative to its size.

Of each Delta W the share ``keep`` with the largest |Delta W / W| survives, the rest is zero (Gu et al.
2024). Any editor's update can be so regularised; MEMIT and ROME are the usual ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from helpers.editing.deltas import Delta, Dense, LowRank, Masked
from helpers.editing.editor import diagnostics_of
from helpers.editing.hyperparameters import WrapperHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.update import Update
from helpers.editing.wrapper import Wrapper

_TINY = 1e-8  # added to W, so that a weight of zero does not divide


class RectHyperparameters(WrapperHyperparameters):
    """RECT: ``keep`` is the share of each matrix's entries whose change survives."""

    base: Literal["memit", "rome"] = "memit"
    keep: float = Field(default=0.4, gt=0, le=1)


@dataclass
class Rect(Wrapper):
    """RECT on top of another editor."""

    hyperparameters: RectHyperparameters

    name = "rect"
    version = 1

    def edit(self, requests: Sequence[EditRequest]) -> list[Update]:
        """The base editor's independent updates, each masked."""
        return [self._masked(update, Update({})) for update in self.base.edit(requests)]

    def edit_jointly(self, requests: Sequence[EditRequest]) -> Update:
        """The base editor's joint update, masked."""
        return self._masked(self.base.edit_jointly(requests), Update({}))

    def edit_after(self, earlier: Update, requests: Sequence[EditRequest]) -> Update:
        """Masked relative to the weights with the earlier updates in them."""
        return self._masked(self.base.edit_after(earlier, requests), earlier)

    def _masked(self, update: Update, earlier: Update) -> Update:
        deltas = {}
        for name, delta in update.items():
            weight = self.language_model.weight(name).float()
            if name in earlier:
                weight = weight + earlier[name].dense().to(weight)
            deltas[name] = keep_largest(delta, weight, self.hyperparameters.keep)
        changed = diagnostics_of(self.language_model, deltas) if deltas else {}
        return Update(deltas, {**update.diagnostics, **changed})


def keep_largest(delta: Delta, weight: Tensor, share: float) -> Delta:
    """``delta`` with all entries zeroed but the ``share`` with the largest |delta / weight|.

    Entries that tie with the smallest ratio kept are kept too.
    """
    dense = delta.dense().to(weight)
    ratio = (dense / (weight + _TINY)).abs()
    dropped = int((1 - share) * ratio.numel())
    if ratio.is_cuda:  # where kthvalue is many times slower than sorting
        threshold = ratio.flatten().sort().values[dropped]
    else:
        threshold = ratio.flatten().kthvalue(dropped + 1).values
    keep = ratio >= threshold
    if isinstance(delta, LowRank):
        return Masked.from_mask(delta, keep)
    return Dense(torch.where(keep, dense, 0.0), delta.bias_term())
