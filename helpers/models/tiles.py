"""Attention of packed rows tile by tile, for in a prefix forest most of a dense mask is hidden.

Queries are cut into tiles, and a tile runs against the gathered keys that any of its queries sees. The
result is that of the dense mask; a pass without tiles takes sdpa.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from helpers.models.language_model import LanguageModel

TILED = "tiled"  # the name the attention is registered under
WIDTHS = (6, 8, 10, 12, 16, 24, 32)  # queries per tile that are tried
GATHERING = 4  # queries scored in the time of gathering a key
WORTHWHILE = 0.5  # largest share of the dense work


@dataclass(frozen=True)
class Tiles:
    """Which keys each run of ``width`` queries meets, in a batch of rows; one height for all."""

    width: int  # the last tile is filled up with queries that nobody reads
    keys: Tensor  # [rows, tiles, height], columns; those that fill a tile up, no query of it sees
    _lines: dict[tuple[int, ...], Lines] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, visible: Tensor) -> Tiles | None:
        """Tiles of a boolean [rows, queries, keys]; None where the dense mask is as good."""
        most_work = WORTHWHILE * visible.numel()
        # No tiling does less than the visible pairs: most rows need not be tried.
        if visible.shape[1] == 1 or int(visible.sum()) >= most_work:
            return None
        tiles = min((cls._cut(visible, width) for width in WIDTHS), key=cls._work)
        return tiles if tiles._work() < most_work else None

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

    def lines(self, query: Tensor, key: Tensor) -> Lines:
        """Where queries and keys of these shapes go; found once for all blocks and passes of a batch."""
        shapes = (*query.shape[1:3], *key.shape[1:3])
        if shapes not in self._lines:
            self._lines[shapes] = Lines.of(self, *shapes)
        return self._lines[shapes]


def takes_tiles(lm: LanguageModel) -> bool:
    """Whether a model's attention goes by tiles: on a CPU, where its architecture takes ours."""
    return lm.device.type == "cpu" and lm.network.config._attn_implementation == TILED


class Lines(NamedTuple):
    """Which vectors [n, size] the tiles hold, [rows, tiles, key heads, vectors of a tile].

    Queries of all heads that share a key head, [heads, width], are multiplied with its keys at once.
    """

    queries: Tensor  # index of each in the queries [rows, queries, heads]
    keys: Tensor  # index of each in the keys [rows, key heads, keys]
    # Of each key, then of each value: index in their gradients [2, rows, keys, key heads].
    sums: Tensor
    places: Tensor  # index of each of the queries [rows, queries, heads] in the tiles
    products: int  # rows x tiles x key heads

    @classmethod
    def of(cls, tiles: Tiles, heads: int, queries: int, key_heads: int, keys: int) -> Lines:
        """The lines of a batch with this many heads, and queries and keys in each row."""
        rows, count, _ = tiles.keys.shape
        row = torch.arange(rows).view(rows, 1, 1, 1)
        head = torch.arange(heads).view(heads, 1)
        query = torch.arange(count * tiles.width).view(count, 1, tiles.width).clamp(max=queries - 1)
        query_lines = (row * queries + query) * heads + head  # [rows, tiles, heads, width]
        key_head = torch.arange(key_heads).view(key_heads, 1)
        columns = tiles.keys[:, :, None]  # [rows, tiles, 1, height]
        key_lines = (row * key_heads + key_head) * keys + columns  # [rows, tiles, heads, height]
        key_sums = ((row * keys + columns) * key_heads + key_head).flatten()
        sums = torch.cat([key_sums, rows * keys * key_heads + key_sums])
        query = torch.arange(queries).view(queries, 1)
        tile = row[..., 0] * count + query // tiles.width
        places = (tile * heads + head[:, 0]) * tiles.width + query % tiles.width
        products = rows * count * key_heads
        return cls(query_lines.flatten(), key_lines.flatten(), sums, places.flatten(), products)


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
    lines = tiles.lines(query, key)
    size = query.shape[-1]
    mixed = _TiledAttention.apply(
        query.transpose(1, 2).reshape(-1, size),
        key,
        value,
        attention_mask,
        lines,
        scaling,
    )
    return mixed.view(len(query), -1, query.shape[1], size), None


class _TiledAttention(torch.autograd.Function):
    """softmax(scaling Q K^T + mask) V in every tile, with its gradient written out.

    Queries and what is returned are [n, size], keys and values [rows, key heads, keys, size]. Torch's own
    gradient fills a matrix of zeros for each way of picking and cutting.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor,
        lines: Lines,
        scaling: float,
    ) -> Tensor:
        size = query.shape[-1]
        queries = query.index_select(0, lines.queries).view(lines.products, -1, size)
        keys = key.reshape(-1, size).index_select(0, lines.keys).view(lines.products, -1, size)
        values = value.reshape(-1, size).index_select(0, lines.keys).view(lines.products, -1, size)
        products = torch.bmm(queries, keys.mT)
        tiles, _, width, height = mask.shape
        scores = torch.add(mask, products.view(tiles, -1, width, height), alpha=scaling)
        weights = scores.softmax(-1, dtype=torch.float32).to(value.dtype).view_as(products)
        ctx.save_for_backward(queries, keys, values, weights)
        ctx.lines = lines
        ctx.scaling = scaling
        ctx.key_shape = key.shape
        return torch.bmm(weights, values).view(-1, size).index_select(0, lines.places)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys, values, weights = ctx.saved_tensors
        lines = ctx.lines
        size = queries.shape[-1]
        # Queries that only fill a tile up are nobody's: their gradient stays zero.
        mixed_gradient = gradients[0].new_zeros(lines.queries.shape[0], size)
        mixed_gradient = mixed_gradient.index_copy_(0, lines.places, gradients[0]).view_as(queries)
        weight_gradient = torch.bmm(mixed_gradient, values.mT)
        score_gradient = torch.ops.aten._softmax_backward_data(
            weight_gradient, weights, -1, weights.dtype
        )
        score_gradient.mul_(ctx.scaling)
        query_gradient = (
            torch.bmm(score_gradient, keys).view(-1, size).index_select(0, lines.places)
        )

        gradients_of_lines = keys.new_empty(2, *keys.shape)  # of keys, then of values
        torch.bmm(score_gradient.mT, queries, out=gradients_of_lines[0])
        torch.bmm(weights.mT, mixed_gradient, out=gradients_of_lines[1])
        rows, heads, count, _ = ctx.key_shape
        sums = keys.new_zeros(2 * rows * count * heads, size)
        index = lines.sums[:, None].expand(-1, size)
        sums.scatter_add_(0, index, gradients_of_lines.view(-1, size))
        # The heads of a key lie side by side, as its matrix wants them.
        key_gradient, value_gradient = sums.view(2, rows, count, heads, size).transpose(2, 3)
        return query_gradient, key_gradient, value_gradient, None, None, None


AttentionInterface.register(TILED, attention)
AttentionMaskInterface.register(TILED, sdpa_mask)
