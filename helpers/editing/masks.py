"""Masks of prompts: which inputs of a matrix are largest in a prompt, and how far two prompts share them.

The feature of a prompt is the mean of the matrix's input over its tokens, minus that of background prompts.
Its mask holds the K entries with the largest absolute values (MEMOIR's TopHash). Theirs are then put in one
random order, drawn once: it changes which columns of the memory a prompt writes to, not the overlap of two
prompts.
"""

from __future__ import annotations

from torch import Tensor

SHARE = 2 / 7  # of a matrix's inputs that MEMOIR's masks hold: 4,096 of 14,336


def mask_size(share: float, inputs: int) -> int:
    """K: how many of a matrix's inputs a mask holds."""
    return max(1, int(share * inputs + 1e-9))


def top_columns(features: Tensor, count: int) -> Tensor:
    """The mask of each feature [prompts, in]: true at its ``count`` largest absolute values."""
    columns = features.abs().topk(count, dim=-1).indices  # [prompts, count]
    return features.new_zeros(features.shape).bool().scatter(-1, columns, True)


def mask_overlap(masks: Tensor, stored: Tensor) -> Tensor:
    """|m and m_i| / K [prompts, entries], 0 to 1, of masks [prompts, in] and stored ones [entries, in]."""
    shared_columns = masks.float() @ stored.float().T  # [prompts, entries]
    return shared_columns / masks.sum(-1, keepdim=True)
