"""The keys of a sequence's edits, which later edits leave alone: AlphaEdit's cache, and accumulating MEMIT's.

With A [f, m] the keys so far, an edit is solved with A A^T among its constraints. For keys and values that
stay fixed, a sequence of such edits is then one joint edit (``identities``).

Keys of f numbers need no more than f columns: any A with the same A A^T gives the same edits. Beyond 2 f
keys the columns are the eigenvectors of A A^T, scaled, so that a sequence of any length takes 16 f^2 bytes a
layer at most (38 MB for SmolLM2's f of 1,536).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

KeyHistory = dict[int, Tensor]  # keys [f, m] of the edits made so far in one run, by layer, fp64


def history_of(memory: Mapping[str, Tensor]) -> KeyHistory:
    """The keys that a sequence's state remembers."""
    return {int(name): keys for name, keys in memory.items()}


def memory_of(history: KeyHistory) -> dict[str, Tensor]:
    """The keys by names of layers, as a sequence's state remembers them."""
    return {str(layer): keys for layer, keys in history.items()}


def remember(history: KeyHistory, layer: int, keys: Tensor) -> None:
    """Add an edit's keys [f, n] to the layer's."""
    earlier_keys = history.get(layer, keys[:, :0])
    history[layer] = compact(torch.cat([earlier_keys, keys], dim=1))


def compact(keys: Tensor) -> Tensor:
    """Keys [f, m] themselves, or where m exceeds 2 f as few columns with the same A A^T."""
    size, count = keys.shape
    if count <= 2 * size:
        return keys
    values, vectors = torch.linalg.eigh(keys @ keys.T)
    return vectors * values.clamp(min=0).sqrt()


def history_bytes(history: KeyHistory) -> int:
    """What the keys take in memory."""
    return sum(keys.numel() * keys.element_size() for keys in history.values())
