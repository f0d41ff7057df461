"""Keys and values of constant tokens, computed once and read by many forward passes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer


@dataclass(frozen=True)
class Past:
    """Keys and values of constant tokens, per layer [rows, heads, tokens, head size].

    ``positions`` [rows, tokens] are the position ids of those tokens.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    positions: Tensor

    def rows(self, index: Tensor, skip: int = 0) -> Past:
        """Keep the rows in ``index`` (a LongTensor), without the first ``skip`` tokens."""
        return Past(
            tuple(keys[index, :, skip:] for keys in self.keys),
            tuple(values[index, :, skip:] for values in self.values),
            self.positions[index, skip:],
        )

    @cached_property
    def constant(self) -> Cache:
        """A transformers cache of these keys and values that passes read and none adds to."""
        return Cache(layers=[_Constant(*pair) for pair in zip(self.keys, self.values, strict=True)])

    def cache(self) -> DynamicCache:
        """A fresh transformers cache that starts from these keys and values and grows."""
        cache = DynamicCache()
        for layer, (keys, values) in enumerate(zip(self.keys, self.values, strict=True)):
            cache.update(keys, values, layer)
        return cache


class _Constant(DynamicLayer):
    """A layer whose new keys and values are put behind its own for one pass, and not kept."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.lazy_initialization(keys, values)
        self.keys, self.values = keys, values

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """All keys and values of this pass."""
        keys = torch.cat([self.keys, key_states], dim=-2)
        return keys, torch.cat([self.values, value_states], dim=-2)
