"""The one forward call everything goes through: packed rows, an optional cached past, any mask."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer

from helpers.models.hooks import input_hooks
from helpers.models.language_model import LanguageModel
from helpers.models.tiles import TILED, Tiles


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

    @cached_property
    def constant(self) -> Cache:
        """A transformers cache of these keys and values that passes read and none adds to."""
        return Cache(layers=[_Constant(*pair) for pair in zip(self.keys, self.values, strict=True)])


class _Constant(DynamicLayer):
    """A layer that puts a pass's keys and values behind its own and does not keep them."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.lazy_initialization(keys, values)
        self.keys, self.values = keys, values

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        return torch.cat([self.keys, keys], dim=-2), torch.cat([self.values, values], dim=-2)


@dataclass(frozen=True)
class Mask:
    """Which keys each query sees, as the architecture takes it; made once, it serves many passes."""

    additive: Tensor | dict[str, Tensor]  # one, or one for each kind of layer
    tiles: Tiles | None = None  # how it is cut, if it is

    @classmethod
    def of(
        cls,
        language_model: LanguageModel,
        positions: Tensor,
        visible: Tensor,
        past_positions: Tensor | None = None,
    ) -> Mask:
        """The mask of a boolean [rows, queries, keys]; windows are counted in position ids."""
        config = language_model.model.config
        tiles = Tiles.of(visible) if config._attn_implementation == TILED else None

        def additive(seen: Tensor) -> Tensor:
            seen = tiles.visible(seen) if tiles else seen
            mask = torch.zeros(seen.shape, dtype=language_model.dtype, device=seen.device)
            return mask.masked_fill_(~seen, torch.finfo(mask.dtype).min)[:, None]

        window = getattr(config, "sliding_window", None)
        kinds = set(getattr(config, "layer_types", None) or ())
        if window is None or (kinds and "sliding_attention" not in kinds):
            return cls(additive(visible), tiles)
        keys = positions if past_positions is None else torch.cat([past_positions, positions], 1)
        sliding = additive(visible & (positions[:, :, None] - keys[:, None, :] < window))
        both = {"full_attention": additive(visible), "sliding_attention": sliding}
        return cls(both if kinds else sliding, tiles)


def hidden_states(
    language_model: LanguageModel,
    ids: Tensor,
    positions: Tensor,
    visible: Tensor | Mask,
    past: Past | Cache | None = None,
) -> Tensor:
    """Final hidden states (after the final norm) of packed rows, [rows, queries, hidden].

    ``visible`` is boolean [rows, queries, past + queries]. A ``Past`` stays, a cache takes the tokens.
    """
    if isinstance(visible, Tensor):
        before = past.positions if isinstance(past, Past) else None
        visible = Mask.of(language_model, positions, visible, before)
    output = language_model.model.base_model(
        input_ids=ids,
        position_ids=positions,
        attention_mask=visible.additive,
        past_key_values=past.constant if isinstance(past, Past) else past,
        use_cache=past is not None,
        **({"tiles": visible.tiles} if visible.tiles else {}),
    )
    return output.last_hidden_state


def prefill(
    language_model: LanguageModel, ids: Tensor, positions: Tensor, visible: Tensor
) -> tuple[Tensor, Past]:
    """Run constant tokens once: their final hidden states and their keys and values."""
    cache = DynamicCache()
    hidden = hidden_states(language_model, ids, positions, visible, cache)
    keys = tuple(layer.keys for layer in cache.layers)
    return hidden, Past(keys, tuple(layer.values for layer in cache.layers), positions)


@contextmanager
def resumed(language_model: LanguageModel, layer: int, hidden: Tensor) -> Iterator[None]:
    """Start forward passes at block ``layer``, whose input is ``hidden`` [rows, queries, hidden].

    Only valid while nothing below ``layer`` differs, and constant tokens come from a ``Past``.
    """
    blocks = [language_model.module(language_model.layout.block(i)) for i in range(layer)]
    in_tuple = language_model.layout.architecture.tuple_output
    first = language_model.layout.block(layer)
    try:
        for block in blocks:
            block.forward = lambda entering, *_, **__: (entering,) if in_tuple else entering
        with input_hooks(language_model, {first: lambda _: hidden}):
            yield
    finally:
        for block in blocks:
            del block.forward


def vocabulary_scores(
    language_model: LanguageModel,
    hidden: Tensor,
    place: Tensor,
    tokens: Tensor,
    whole: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of tokens [n], and distributions [m, vocabulary]; fp32, natural logarithm.

    Args:
        hidden: final hidden states [places, hidden], each of which passes the head once.
        place: for each of the predicted ``tokens`` [n] the row of ``hidden`` it is read from.
        whole: rows of ``hidden`` whose distributions are returned [m]; default: none.
    """
    head = language_model.model.get_output_embeddings()
    return _Scores.apply(hidden, head, place, tokens, place[:0] if whole is None else whole)


class _Scores(torch.autograd.Function):
    """``scores[place, tokens]`` and ``scores[whole]`` of ``scores = head(hidden).log_softmax(-1)``.

    The gradient is one array as wide as the vocabulary; autograd would fill one for each, and add them.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, head: nn.Linear, place: Tensor, tokens: Tensor, whole: Tensor
    ) -> tuple[Tensor, Tensor]:
        logits = head(hidden)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        shifted = logits.sub_(logits.amax(-1, keepdim=True))
        of_tokens, of_whole = shifted[place, tokens], shifted[whole]
        unscaled = shifted.exp_()
        total = unscaled.sum(-1, keepdim=True)
        log_total = total.log()
        ctx.save_for_backward(place, tokens, whole, unscaled, total)
        ctx.head = head
        return of_tokens - log_total[place, 0], of_whole - log_total[whole]

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, of_tokens: Tensor, of_whole: Tensor
    ) -> tuple[Tensor, None, None, None, None]:
        """d log p_i / d logit_j = [i = j] - p_j."""
        place, tokens, whole, unscaled, total = ctx.saved_tensors
        weights = of_tokens.new_zeros(len(total)).index_add_(0, place, of_tokens)
        weights.index_add_(0, whole, of_whole.sum(-1))
        found = unscaled * (-weights[:, None] / total)
        found.index_put_((place, tokens), of_tokens, accumulate=True)
        found.index_add_(0, whole, of_whole)
        return found.to(ctx.head.weight.dtype) @ ctx.head.weight, None, None, None, None
