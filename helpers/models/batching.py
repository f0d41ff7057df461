"""Batches sized by tokens and by free memory, which shrink, instead of failing, when it runs out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from helpers.models.language_model import LanguageModel
from helpers.models.weights import free_bytes

PADDING = 0.08  # largest share of a batch that may be padding
PASS_TOKENS = 64  # a pass reads all weights, which takes about as long as this many tokens
_MOST_TOKENS = 16384  # of a pass
_LARGE = 48 * 2**30  # free bytes of a device on which many records are edited together

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
    """Whether memory ran out; CPU allocators and CUDA's libraries report it in a RuntimeError's text."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    reported = (
        "can't allocate memory",
        "out of memory",
        "_STATUS_ALLOC_FAILED",
    )  # the last: cuBLAS's
    return any(words in str(error) for words in reported)


def tokens_at_once(language_model: LanguageModel, usual: int, *, gradients: bool) -> int:
    """How many tokens a pass takes: the usual number, and up to 16,384 on a GPU with room.

    With gradients each block keeps a token's activations, about sixteen arrays of the hidden size
    and four of the MLP's; without, few blocks' are there at a time. Three fp32 arrays as wide as the
    vocabulary come on top. Rows are independent: other batches change results by rounding only.
    """
    if language_model.device.type == "cpu":  # a core is busy with the usual number
        return usual
    layout, vocabulary = language_model.layout, language_model.model.config.vocab_size
    of_a_block = 16 * layout.hidden_size + 4 * layout.intermediate_size
    blocks = layout.blocks if gradients else 4
    of_a_token = blocks * of_a_block * language_model.dtype.itemsize + 12 * vocabulary
    room = int(0.8 * free_bytes(language_model.device)) // of_a_token
    return max(usual, min(room, _MOST_TOKENS))


def records_at_once(device: torch.device, usual: int) -> int:
    """How many records a run edits and scores together: 128 on a GPU with room, else the usual."""
    large = device.type != "cpu" and free_bytes(device) >= _LARGE
    return max(usual, 128) if large else usual


@dataclass(frozen=True)
class PaddedTexts:
    """A batch of ordinary causal texts, padded on the right.

    Attributes:
        ids: token ids [rows, width].
        positions: position ids [rows, width].
        real: boolean [rows, width], false where a token is padding.
    """

    ids: Tensor
    positions: Tensor
    real: Tensor

    @property
    def visible(self) -> Tensor:
        """Boolean [rows, width, width]: what stands before a token, and itself, be it padding."""
        width = self.ids.shape[1]
        options: dict[str, Any] = {"dtype": torch.bool, "device": self.ids.device}
        before = torch.ones(width, width, **options).tril()
        return (before & self.real[:, None, :]) | torch.eye(width, **options)

    def last(self, values: Tensor) -> Tensor:
        """Values [rows, …] of ``values`` [rows, width, …] at each text's last real token."""
        return values[torch.arange(len(values), device=values.device), self.real.sum(1) - 1]


def padded(language_model: LanguageModel, texts: Sequence[Sequence[int]]) -> PaddedTexts:
    """Pad token ids into one batch on the model's device."""
    device = language_model.device
    width = max(map(len, texts))
    # Nothing sees padding, so any token of the vocabulary will do.
    ids = torch.tensor([[*text, *[0] * (width - len(text))] for text in texts], device=device)
    positions = torch.arange(width, device=device).expand_as(ids)
    lengths = torch.tensor([len(text) for text in texts], device=device)
    return PaddedTexts(ids, positions, positions < lengths[:, None])
