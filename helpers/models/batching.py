"""Batches sized by tokens that shrink, instead of failing, when memory runs out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch

PADDING = 0.08  # largest share of a batch that may be padding
PASS_TOKENS = 64  # a pass reads all weights, which takes about as long as this many tokens

Item = TypeVar("Item")
Result = TypeVar("Result")


def token_batches(lengths: Sequence[int], token_budget: int) -> Iterator[list[int]]:
    """Group indices of like lengths, longest first, so that rows x width stays in the budget.

    A single item longer than the budget forms a batch of its own. A batch also ends before padding is
    more than ``PADDING`` of it, unless that costs less than another pass would (``PASS_TOKENS``).

    Args:
        lengths: tokens of each item.
        token_budget: most tokens per batch, padding included.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    batch: list[int] = []
    real = 0
    for index in order:
        longest = lengths[batch[0]] if batch else lengths[index]
        area = longest * (len(batch) + 1)
        wasted = area - real - lengths[index]
        if batch and (area > token_budget or wasted > max(PADDING * area, PASS_TOKENS)):
            yield batch
            batch, real = [], 0
        batch.append(index)
        real += lengths[index]
    if batch:
        yield batch


def run_halving(items: Sequence[Item], run: Callable[[Sequence[Item]], Result]) -> list[Result]:
    """Run one batch; when memory runs out, run its halves instead, with a warning.

    Raises:
        MemoryError: a single item does not fit.
    """
    try:
        return [run(items)]
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        if len(items) == 1:
            raise MemoryError(
                "one item alone does not fit in memory; use a smaller model, a shorter prompt, or dtype"
                f" bfloat16 ({error})"
            ) from error
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    half = len(items) // 2
    warnings.warn(f"out of memory with {len(items)} items: going on with halves", stacklevel=2)
    return run_halving(items[:half], run) + run_halving(items[half:], run)


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out; CPU allocators and CUDA's libraries only say so in a RuntimeError's text."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    said = ("can't allocate memory", "out of memory", "_STATUS_ALLOC_FAILED")  # the last: cuBLAS's
    return any(words in str(error) for words in said)
