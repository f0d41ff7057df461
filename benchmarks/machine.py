"""What the machine can do: matrix-multiply peak, CPU time, memory."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

Result = TypeVar("Result")


@dataclass(frozen=True)
class Cost:
    """Wall and CPU seconds of one call."""

    wall: float
    cpu: float


def measured(call: Callable[[], Result]) -> tuple[Cost, Result]:
    """Run once and time it, CPU seconds over all threads; also what the call returned."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu), result


def matmul_peak(dtype: torch.dtype, *, seconds: float = 1.0) -> float:
    """FLOP per CPU-second of a large matrix product, the yardstick for fractions of peak."""
    a, b = torch.randn(2048, 2048).to(dtype), torch.randn(2048, 2048).to(dtype)
    for _ in range(2):
        a @ b
    count, start, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - start < seconds:
        a @ b
        count += 1
    return count * 2 * 2048**3 / (time.process_time() - cpu)


def peak_memory() -> float:
    """Largest resident size of this process so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
