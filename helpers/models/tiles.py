"""Attention of packed rows tile by tile, for in a prefix forest most of a dense mask is hidden.

Queries are cut into tiles of whole branches, and a tile runs against the gathered keys that any of its
queries sees. The result is that of the dense mask; a pass without tiles takes sdpa.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
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
    """Which queries meet which keys in a batch of rows, all tiles padded to one width and height."""

    queries: Tensor  # [rows, tiles, width], their columns; a short tile repeats its first one
    keys: Tensor  # [rows, tiles, height], their columns, padded with column 0
    padding: Tensor  # [rows, tiles, height], true where a key is padding
    places: Tensor  # [rows, queries], each query's index among the row's tiles x width

    @classmethod
    def of(cls, visible: Tensor) -> Tiles | None:
        """Tiles of a boolean [rows, queries, keys]; None where the dense mask is as good, and on GPUs."""
        most = WORTHWHILE * visible.numel()
        # No tiling does less than the visible pairs: most rows need not be tried.
        if visible.device.type != "cpu" or visible.shape[1] == 1 or int(visible.sum()) >= most:
            return None
        tiles = min((cls._cut(visible.numpy(), width) for width in WIDTHS), key=cls._work)
        return tiles if tiles._work() < most else None

    @classmethod
    def _cut(cls, rows: np.ndarray, width: int) -> Tiles:
        ranges = [_ranges(row, width) for row in rows]
        seen = [
            [np.flatnonzero(row[start:stop].any(axis=0)) for start, stop in cut]
            for row, cut in zip(rows, ranges, strict=True)
        ]
        count = max(len(cut) for cut in ranges)
        width = max(stop - start for cut in ranges for start, stop in cut)
        height = max(len(keys) for row in seen for keys in row)
        queries = np.zeros((len(rows), count, width), np.int64)
        keys = np.full((len(rows), count, height), -1)
        places = np.zeros(rows.shape[:2], np.int64)
        for row, (cut, columns) in enumerate(zip(ranges, seen, strict=True)):
            for tile, ((start, stop), real) in enumerate(zip(cut, columns, strict=True)):
                queries[row, tile] = start
                queries[row, tile, : stop - start] = np.arange(start, stop)
                keys[row, tile, : len(real)] = real
                places[row, start:stop] = tile * width + np.arange(stop - start)
        padding = keys < 0
        arrays = queries, np.where(padding, 0, keys), padding, places
        return cls(*(torch.from_numpy(array) for array in arrays))

    def _work(self) -> int:
        return self.keys.numel() * (self.queries.shape[2] + GATHERING)

    def visible(self, visible: Tensor) -> Tensor:
        """The tiles' part [rows * tiles, width, height] of a boolean [rows, queries, keys]."""
        row = torch.arange(len(visible))[:, None, None, None]
        part = visible[row, self.queries[..., None], self.keys[:, :, None]]
        return (part & ~self.padding[:, :, None]).flatten(0, 1)

    def scatter(self, states: Tensor) -> Tensor:
        """[rows, tiles, heads, width, size] -> [rows, queries, heads, size]."""
        rows, count, heads, width, size = states.shape
        tile = torch.arange(rows)[:, None] * count + self.places // width
        head = torch.arange(heads)
        line = (tile[..., None] * heads + head) * width + (self.places % width)[..., None]
        chosen = states.reshape(-1, size).index_select(0, line.flatten())
        return chosen.view(rows, -1, heads, size)


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
    parts = (_gather(query, tiles.queries), _gather(key, tiles.keys), _gather(value, tiles.keys))
    rows, count, heads, width, size = parts[0].shape
    # Heads that share a key head become further queries of one product.
    groups = rows * count * key.shape[1]
    queries, keys, values = (part.reshape(groups, -1, size) for part in parts)
    scores = torch.bmm(queries, keys.mT).view(rows * count, heads, width, -1)
    weights = (scores * scaling + attention_mask).softmax(-1, dtype=torch.float32)
    weights = weights.to(values.dtype).view(groups, -1, keys.shape[1])
    mixed = torch.bmm(weights, values).view(rows, count, heads, width, size)
    return tiles.scatter(mixed), None


AttentionInterface.register(TILED, attention)
AttentionMaskInterface.register(TILED, sdpa_mask)


def _gather(states: Tensor, columns: Tensor) -> Tensor:
    # Columns [rows, tiles, n] of [rows, heads, columns, size]: [rows, tiles, heads, n, size].
    rows, heads, width, size = states.shape
    head = torch.arange(rows * heads).view(rows, 1, heads, 1)
    line = head * width + columns[:, :, None]
    return states.reshape(-1, size).index_select(0, line.flatten()).view(*line.shape, size)


def _ranges(visible: np.ndarray, width: int) -> list[tuple[int, int]]:
    # A branch (tokens that each see the one before) is cut only if it is longer than width.
    count, keys = visible.shape
    follows = visible[1:].diagonal(keys - count)
    starts: Sequence[int] = [0, *(np.flatnonzero(~follows) + 1).tolist(), count]
    ranges, begin = [], 0
    for start, stop in pairwise(starts):
        if stop - begin > width and start > begin:
            ranges.append((begin, start))
            begin = start
        while stop - begin > width:
            ranges.append((begin, begin + width))
            begin += width
    return [*ranges, (begin, count)]
