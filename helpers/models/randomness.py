"""Random numbers from a seed, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Torch draws from ``seed``, on the CPU and on ``device``; the caller's state comes back after.

    >>> with seeded(0, language_model.device):
    ...     language_model.model.generate(...)
    """
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
