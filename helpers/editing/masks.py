"""Masks of prompts: which inputs of a matrix are largest in a prompt, how far two prompts share them, and the
gate that recognises a prompt by them (MEMOIR).

The feature of a prompt is the mean of the matrix's input over its tokens, minus that of background prompts.
Its mask holds the K entries with the largest absolute values (MEMOIR's TopHash). Theirs are then put in one
random order, drawn once: it changes which columns of the memory a prompt writes to, not the overlap of two
prompts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from helpers.editing.interventions import Gate

_LEFT_ALONE = 0.95  # share of the prompts of no edit that do not reach a measured threshold
SHARE = 2 / 7  # of a matrix's inputs that MEMOIR's masks hold: 4,096 of 14,336


def mask_size(share: float, inputs: int) -> int:
    """K: how many of a matrix's inputs a mask holds."""
    return max(1, int(share * inputs + 1e-9))


def top_columns(features: Tensor, count: int) -> Tensor:
    """The mask of each feature [prompts, in]: true at its ``count`` largest absolute values."""
    columns = features.abs().topk(count, dim=-1).indices  # [prompts, count]
    return features.new_zeros(features.shape).bool().scatter(-1, columns, True)


def shared_columns(masks: Tensor, stored: Tensor) -> Tensor:
    """|m and m_i| [prompts, entries], of masks [prompts, in] and stored ones [entries, in], as floats."""
    return masks.float() @ stored.float().T


@dataclass(frozen=True)
class BestMask(Gate):
    """Adds M (m_i o k) at all tokens of prompts, m_i the stored mask that overlaps most with a prompt's own.

    Of M and of the masks only the ``columns`` are kept that are in one of the masks.
    """

    columns: Tensor  # of the inputs, ascending [c]
    memory: Tensor  # M at them [out, c]
    masks: Tensor  # boolean [entries, c]
    center: Tensor  # the background prompts' mean [in]
    permutation: Tensor  # pi [in]
    mask_size: int  # K
    least_overlap: (
        int  # columns that a prompt's mask must share with a stored one: tau K, rounded up
    )
    reads = "mean"
    reach = "all"

    def hashed(self, queries: Tensor) -> Tensor:
        """The masks, boolean [n, in], of prompts' mean inputs [n, in]."""
        largest = top_columns(queries.float() - self.center, self.mask_size)
        masks = torch.zeros_like(largest)
        masks[:, self.permutation] = largest
        return masks

    def overlaps(self, queries: Tensor) -> Tensor:
        """How many columns each prompt's mask shares with each stored one [n, entries], as floats."""
        return shared_columns(self.hashed(queries)[:, self.columns], self.masks)

    def decide(self, queries: Tensor) -> Tensor:
        """The entry of the best mask, the oldest one of equals; -1 where it overlaps too little."""
        overlaps = self.overlaps(queries)
        return torch.where(overlaps.amax(1) >= self.least_overlap, overlaps.argmax(1), -1)

    def nearness(self, queries: Tensor) -> Tensor:
        """The best mask's overlap [n], as a share of K."""
        return self.overlaps(queries).amax(1) / self.mask_size

    def overlap_above(self, queries: Tensor) -> int:
        """The least overlap that all but 5 % of prompts, which no edit has, stay below."""
        best_overlaps = self.overlaps(queries).amax(1).cpu().numpy()
        return math.floor(np.quantile(best_overlaps, _LEFT_ALONE)) + 1

    def change(self, entering: Tensor, output: Tensor, entries: Tensor) -> Tensor:
        """W k + M (m_i o k) [n, out]."""
        masked = entering[:, self.columns].float() * self.masks[entries]
        return output + (masked @ self.memory.T).to(output.dtype)

    def dense_memory(self) -> Tensor:
        """M [out, in]."""
        memory = self.memory.new_zeros(len(self.memory), len(self.center))
        memory[:, self.columns] = self.memory
        return memory

    def with_mask(self, mask: Tensor, trained: Tensor, decay: float = 1.0) -> BestMask:
        """With M at a mask's columns ``trained`` [out, K] and ``decay`` times what it was elsewhere.

        The mask, boolean [in], is stored unless one like it is.
        """
        memory = decay * self.dense_memory()
        memory[:, mask] = trained
        masks = mask.new_zeros(len(self.masks), len(mask))
        masks[:, self.columns] = self.masks
        if not (masks == mask).all(1).any():
            masks = torch.cat([masks, mask[None]])
        columns = masks.any(0).nonzero()[:, 0]
        return replace(
            self, columns=columns, memory=memory[:, columns], masks=masks[:, columns].contiguous()
        )
