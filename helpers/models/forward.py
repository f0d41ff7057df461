"""The one forward call everything goes through: packed rows, an optional cached past, any mask."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer

from helpers.models.hooks import input_hooks
from helpers.models.language_model import LanguageModel
from helpers.models.tiles import Tiles, takes_tiles


@dataclass(frozen=True)
class Past:
    """Constant tokens' keys and values, per layer [rows, heads, tokens, size], and positions."""

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    positions: Tensor

    def rows(self, index: Tensor, skip: int = 0) -> Past:
        """The rows in ``index`` (a LongTensor), without the first ``skip`` tokens."""
        return Past(
            tuple(keys[index, :, skip:] for keys in self.keys),
            tuple(values[index, :, skip:] for values in self.values),
            self.positions[index, skip:],
        )

    def columns(self, index: Tensor) -> Past:
        """The tokens in ``index`` (a LongTensor) of each row."""
        return Past(
            tuple(keys[:, :, index] for keys in self.keys),
            tuple(values[:, :, index] for values in self.values),
            self.positions[:, index],
        )

    def cache(self) -> DynamicCache:
        """A cache that begins with these tokens in every layer."""
        cache = DynamicCache()
        cache.layers = [
            _PastLayer(keys, values) for keys, values in zip(self.keys, self.values, strict=True)
        ]
        return cache


class _PastLayer(DynamicLayer):
    """A past's keys and values in one layer, which a pass reads before its own; it keeps none of its own.

    Transformers' layer would copy the past to begin with, and hold each pass's keys and values to its end.
    """

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.keys = keys
        self.values = values
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """The past's and the pass's own, [rows, heads, tokens, size] each."""
        keys = torch.cat([self.keys, key_states], dim=-2)
        values = torch.cat([self.values, value_states], dim=-2)
        return keys, values


@dataclass(frozen=True)
class Mask:
    """Which keys each query sees, as the architecture takes it; made once, it serves many passes."""

    additive: Tensor | dict[str, Tensor]  # one, or one for each kind of layer
    tiles: Tiles | None = None  # how it is cut, if it is

    @classmethod
    def of(
        cls,
        lm: LanguageModel,
        positions: Tensor,
        visible: Tensor,
        past_positions: Tensor | None = None,
    ) -> Mask:
        """The mask of a boolean [rows, queries, keys]; windows are counted in position ids."""
        config = lm.network.config
        tiles = Tiles.of(visible) if takes_tiles(lm) else None

        def additive(visible_keys: Tensor) -> Tensor:
            in_tiles = tiles.visible(visible_keys) if tiles else visible_keys
            mask = torch.zeros(in_tiles.shape, dtype=lm.dtype, device=in_tiles.device)
            lowest = torch.finfo(mask.dtype).min
            return mask.masked_fill_(~in_tiles, lowest)[:, None]  # the same for all heads

        window = getattr(config, "sliding_window", None)
        layer_types = set(getattr(config, "layer_types", None) or ())
        if window is None or (layer_types and "sliding_attention" not in layer_types):
            return cls(additive(visible), tiles)
        key_positions = positions
        if past_positions is not None:
            key_positions = torch.cat([past_positions, positions], dim=1)
        distance = positions[:, :, None] - key_positions[:, None, :]  # [rows, queries, keys]
        sliding = additive(visible & (distance < window))
        if not layer_types:
            return cls(sliding, tiles)
        by_layer_type = {"full_attention": additive(visible), "sliding_attention": sliding}
        return cls(by_layer_type, tiles)


@contextmanager
def evaluated(lm: LanguageModel) -> Iterator[None]:
    """Evaluation mode, without dropout, inside the block; modules that were training are so again after."""
    training = [module for module in lm.modules if module.training]
    try:
        for module in training:
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True


def hidden_states(
    lm: LanguageModel,
    ids: Tensor,
    positions: Tensor,
    visible: Tensor | Mask,
    past: Past | Cache | None = None,
) -> Tensor:
    """Final hidden states (after the final norm) of packed rows, [rows, queries, hidden].

    Args:
        ids: of the tokens [rows, queries].
        positions: of the tokens in their texts [rows, queries].
        visible: which keys each query sees, boolean [rows, queries, past + queries], or its mask.
        past: tokens that come before: a ``Past``, which stays as it is, or a cache, which takes the
            new tokens.
    """
    past_positions = None
    cache = past
    if isinstance(past, Past):
        past_positions = past.positions
        cache = past.cache()
    if isinstance(visible, Tensor):
        visible = Mask.of(lm, positions, visible, past_positions)
    with evaluated(lm):
        output = lm.network.base_model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=visible.additive,
            past_key_values=cache,
            use_cache=cache is not None,
            **({"tiles": visible.tiles} if visible.tiles else {}),
        )
    return output.last_hidden_state


def prefill(
    lm: LanguageModel, ids: Tensor, positions: Tensor, visible: Tensor
) -> tuple[Tensor, Past]:
    """Run constant tokens once: their final hidden states and their keys and values."""
    cache = DynamicCache()
    hidden = hidden_states(lm, ids, positions, visible, cache)
    keys = tuple(layer.keys for layer in cache.layers)
    values = tuple(layer.values for layer in cache.layers)
    return hidden, Past(keys, values, positions)


@contextmanager
def resumed(lm: LanguageModel, layer: int, hidden: Tensor) -> Iterator[None]:
    """Start forward passes at block ``layer``, whose input is ``hidden`` [rows, queries, hidden].

    Only valid while nothing below ``layer`` differs, and constant tokens come from a ``Past``.
    """
    blocks = [lm.module(lm.layout.block(i)) for i in range(layer)]
    in_tuple = lm.layout.architecture.tuple_output
    first = lm.layout.block(layer)
    try:
        for block in blocks:
            block.forward = lambda entering, *_, **__: (entering,) if in_tuple else entering
        with input_hooks(lm, {first: lambda _: hidden}):
            yield
    finally:
        for block in blocks:
            del block.forward


def vocabulary_scores(
    lm: LanguageModel,
    hidden: Tensor,
    token_rows: Tensor,
    tokens: Tensor,
    distribution_rows: Tensor | slice = slice(0),
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of tokens [n], and distributions [m, vocabulary]; fp32, natural logarithm.

    Args:
        hidden: final hidden states [positions, hidden], each of which passes the head once.
        token_rows: for each of the predicted ``tokens`` [n] the row of ``hidden`` it is read from.
        tokens: ids of the predicted tokens [n].
        distribution_rows: rows of ``hidden`` whose distributions are returned [m]; default: none.
    """
    logits = lm.logits(hidden)  # [positions, vocabulary]
    wide_logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    of_tokens, distributions = _LogProbabilities.apply(
        wide_logits, token_rows, tokens, distribution_rows
    )
    return of_tokens, distributions


class _LogProbabilities(torch.autograd.Function):
    """The log-softmax of logits [positions, vocabulary], read at single tokens and in whole rows.

    With p = exp(scores) and g what arrives at a row's entries, the gradient is g - p * sum(g). Torch's own
    fills and adds up a matrix of zeros for each way of reading. Here there is one matrix, the largest of a
    pass: the logits, which nobody else reads, become the scores.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, token_rows: Tensor, tokens: Tensor, distribution_rows: Any
    ) -> tuple[Tensor, Tensor]:
        scores = torch.log_softmax(logits, -1, out=logits)
        ctx.save_for_backward(scores, token_rows, tokens)
        ctx.distribution_rows = torch.arange(len(scores), device=scores.device)[distribution_rows]
        return scores[token_rows, tokens], scores[distribution_rows]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        of_tokens, of_distributions = gradients
        scores, token_rows, tokens = ctx.saved_tensors
        sums = scores.new_zeros(len(scores))
        sums.index_add_(0, token_rows, of_tokens)
        sums.index_add_(0, ctx.distribution_rows, of_distributions.sum(-1))
        gradient = scores.exp().mul_(-sums[:, None])
        gradient.index_put_((token_rows, tokens), of_tokens, accumulate=True)
        gradient.index_add_(0, ctx.distribution_rows, of_distributions)
        return gradient, None, None, None
