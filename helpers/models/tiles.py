"""Attention of packed rows tile by tile, for in a prefix forest most of a dense mask is hidden.

Queries are cut into tiles, and a tile runs against the gathered keys that any of its queries sees. The
result is that of the dense mask; a pass without tiles takes sdpa.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

TILED = "tiled"  # the name the attention is registered under
WIDTHS = (6, 8, 10, 12, 16, 24, 32)  # queries per tile that are tried
GATHERING = 4  # queries scored in the time of gathering a key
WORTHWHILE = 0.5  # largest share of the dense work


@dataclass(frozen=True)
class Tiles:
    """Which keys each run of ``width`` queries meets, in a batch of rows; one height for all."""

    width: int  # the last tile is filled up with queries of zeros
    keys: Tensor  # [rows, tiles, height], columns; those that fill a tile up, no query of it sees

    @classmethod
    def of(cls, visible: Tensor) -> Tiles | None:
        """Tiles of a boolean [rows, queries, keys]; None where the dense mask is as good, and on GPUs."""
        most = WORTHWHILE * visible.numel()
        # No tiling does less than the visible pairs: most rows need not be tried.
        if visible.device.type != "cpu" or visible.shape[1] == 1 or int(visible.sum()) >= most:
            return None
        tiles = min((cls._cut(visible, width) for width in WIDTHS), key=cls._work)
        return tiles if tiles._work() < most else None

    @classmethod
    def _cut(cls, visible: Tensor, width: int) -> Tiles:
        seen_by_tile = cls(width, visible).split(visible).any(dim=2)  # [rows, tiles, keys]
        height = int(seen_by_tile.sum(dim=2).max())
        seen_first = seen_by_tile.sort(dim=2, descending=True, stable=True).indices
        return cls(width, seen_first[:, :, :height])

    def _work(self) -> int:
        return self.keys.numel() * (self.width + GATHERING)

    def split(self, queries: Tensor) -> Tensor:
        """[..., queries, n] -> [..., tiles, width, n]."""
        missing = -queries.shape[-2] % self.width
        return nn.functional.pad(queries, (0, 0, 0, missing)).unflatten(-2, (-1, self.width))

    def visible(self, visible: Tensor) -> Tensor:
        """The tiles' part [rows * tiles, width, height] of a boolean [rows, queries, keys]."""
        keys = self.keys[:, :, None].expand(-1, -1, self.width, -1)
        return self.split(visible).gather(-1, keys).flatten(0, 1)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    tiles: Tiles | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention as transformers' models call it: [rows, queries, heads, size], and no weights.

    ``query`` is [rows, heads, queries, size], ``key`` and ``value`` [rows, key heads, keys, size].
    """
    if tiles is None or attention_mask is None:
        options["scaling"] = scaling
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    tiled_query = tiles.split(query).transpose(1, 2)
    rows, count, heads, width, size = tiled_query.shape
    # Heads that share a key head become further queries of one product.
    groups = rows * count * key.shape[1]
    queries = tiled_query.reshape(groups, -1, size)
    keys = _gather(key, tiles.keys).reshape(groups, -1, size)
    values = _gather(value, tiles.keys).reshape(groups, -1, size)
    scores = torch.bmm(queries, keys.mT).view(rows * count, heads, width, -1)
    weights = (scores * scaling + attention_mask).softmax(-1, dtype=torch.float32)
    weights = weights.to(values.dtype).view(groups, -1, keys.shape[1])
    mixed = torch.bmm(weights, values).view(rows, count, heads, width, size)
    return mixed.transpose(2, 3).flatten(1, 2)[:, : query.shape[2]], None


AttentionInterface.register(TILED, attention)
AttentionMaskInterface.register(TILED, sdpa_mask)


def _gather(states: Tensor, columns: Tensor) -> Tensor:
    # Columns [rows, tiles, n] of [rows, heads, columns, size]: [rows, tiles, heads, n, size].
    rows, heads, width, size = states.shape
    head = torch.arange(rows * heads).view(rows, 1, heads, 1)
    line = head * width + columns[:, :, None]
    return states.reshape(-1, size).index_select(0, line.flatten()).view(*line.shape, size)
