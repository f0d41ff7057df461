"""Batches sized by tokens and by free memory, which shrink, instead of failing, when it runs out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch

from helpers.models.language_model import LanguageModel
from helpers.models.weights import free_bytes

# A pass reads all weights, however few its tokens are: about the time that this many tokens take.
PASS_TOKENS = 64
# Largest share of a batch that may be padding; up to ``PASS_TOKENS`` of it cost less than another pass.
PADDING = 0.08
_MOST_TOKENS = 16384  # of a pass
_LARGE = 48 * 2**30  # free bytes for many records at a time
_SHORTAGE = ("can't allocate memory", "out of memory", "_STATUS_ALLOC_FAILED")

Item = TypeVar("Item")
Result = TypeVar("Result")


def token_batches(
    lengths: Sequence[int], token_budget: int, *, padded: bool = True
) -> Iterator[list[int]]:
    """Group indices of like lengths, longest first, so that rows x width stays in the budget.

    Where they are side by side, not ``padded``, it is the sum of their lengths.
    """
    batch: list[int] = []
    batch_tokens = 0  # without padding
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if batch:
            tokens = batch_tokens + lengths[index]  # with this one
            area = lengths[batch[0]] * (len(batch) + 1) if padded else tokens
            padding = area - tokens
            if area > token_budget or padding > max(PADDING * area, PASS_TOKENS):
                yield batch
                batch = []
                batch_tokens = 0
        batch.append(index)
        batch_tokens += lengths[index]
    if batch:
        yield batch


def run_halving(items: Sequence[Item], run: Callable[[Sequence[Item]], Result]) -> list[Result]:
    """Run one batch; when memory runs out, run its halves instead, with a warning."""
    try:
        return [run(items)]
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        if len(items) == 1:
            remedy = "use a smaller model, a shorter prompt, or dtype bfloat16"
            raise MemoryError(f"one item does not fit in memory; {remedy}") from error
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    half = len(items) // 2
    warnings.warn(f"out of memory with {len(items)} items: continuing with halves", stacklevel=2)
    return run_halving(items[:half], run) + run_halving(items[half:], run)


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out; CPU allocators and CUDA's libraries raise a RuntimeError."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return any(words in str(error) for words in _SHORTAGE)


def tokens_at_once(lm: LanguageModel, usual: int, *, gradients: bool) -> int:
    """How many tokens a pass takes: the usual number, and up to 16,384 on a GPU with room.

    On a CPU, where nothing is gained by more, it is fewer where memory is short.
    """
    usable_bytes = int(0.8 * free_bytes(lm.device))
    tokens_with_room = usable_bytes // bytes_of_a_token(lm, lm.dtype, gradients=gradients)
    if lm.device.type == "cpu":
        return min(usual, tokens_with_room)
    return max(usual, min(tokens_with_room, _MOST_TOKENS))


def bytes_of_a_token(lm: LanguageModel, dtype: torch.dtype, *, gradients: bool) -> int:
    """What a token of a pass takes: with gradients all blocks keep its activations, without a few do."""
    layout = lm.layout
    blocks = layout.blocks if gradients else 4
    block_values = 16 * layout.hidden_size + 4 * layout.intermediate_size
    vocabulary_bytes = 12 * int(lm.network.config.vocab_size)
    return blocks * block_values * dtype.itemsize + vocabulary_bytes


def records_at_once(device: torch.device, usual: int) -> int:
    """How many records a run edits and scores together: 128 on a GPU with room, else the usual."""
    has_room = device.type != "cpu" and free_bytes(device) >= _LARGE
    return max(usual, 128) if has_room else usual
