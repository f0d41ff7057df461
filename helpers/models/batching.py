"""Batches sized by tokens and by free memory, which shrink, instead of failing, when it runs out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch

from helpers.models.language_model import LanguageModel
from helpers.models.weights import free_bytes

PADDING = 0.08  # largest share of a batch that may be padding, unless it is fewer tokens than
PASS_TOKENS = 64  # take as long as reading all weights
_MOST_TOKENS = 16384  # of a pass
_LARGE = 48 * 2**30  # free bytes for many records at a time
_SHORTAGE = ("can't allocate memory", "out of memory", "_STATUS_ALLOC_FAILED")

Item = TypeVar("Item")
Result = TypeVar("Result")


def token_batches(lengths: Sequence[int], token_budget: int) -> Iterator[list[int]]:
    """Group indices of like lengths, longest first, so that rows x width stays in the budget."""
    batch: list[int] = []
    real = 0
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        area = lengths[(batch or [index])[0]] * (len(batch) + 1)
        wasted = area - real - lengths[index]
        if batch and (area > token_budget or wasted > max(PADDING * area, PASS_TOKENS)):
            yield batch
            batch, real = [], 0
        batch.append(index)
        real += lengths[index]
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
    known = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return known or any(words in str(error) for words in _SHORTAGE)


def tokens_at_once(lm: LanguageModel, usual: int, *, gradients: bool) -> int:
    """How many tokens a pass takes: the usual number, and up to 16,384 on a GPU with room."""
    if lm.device.type == "cpu":  # a core is busy with the usual number
        return usual
    room = int(0.8 * free_bytes(lm.device))
    room //= bytes_of_a_token(lm, lm.dtype, gradients=gradients)
    return max(usual, min(room, _MOST_TOKENS))


def bytes_of_a_token(lm: LanguageModel, dtype: torch.dtype, *, gradients: bool) -> int:
    """What a token of a pass takes: with gradients all blocks keep its activations, without a few do."""
    layout = lm.layout
    of_a_block = 16 * layout.hidden_size + 4 * layout.intermediate_size
    of_blocks = (layout.blocks if gradients else 4) * of_a_block * dtype.itemsize
    return of_blocks + 12 * int(lm.network.config.vocab_size)


def records_at_once(device: torch.device, usual: int) -> int:
    """How many records a run edits and scores together: 128 on a GPU with room, else the usual."""
    return max(usual, 128) if device.type != "cpu" and free_bytes(device) >= _LARGE else usual
