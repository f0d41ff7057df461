"""What the machine can do and what a call costs: time, arithmetic, memory, matrix-multiply peak."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

Call = Callable[[], object]
Timed = tuple[Call, int]  # and on how many units it works


@dataclass(frozen=True)
class Cost:
    """One call: wall seconds, and busy seconds (CPU seconds of all threads; on a GPU wall)."""

    wall: float
    busy: float


def measured(call: Callable[[], Any], device: torch.device | str = "cpu") -> tuple[Cost, Any]:
    """Run once and time it; also what the call returned."""
    on_gpu = torch.device(device).type == "cuda"
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    wait()
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    wait()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Cost(wall, wall if on_gpu else cpu), result


def median_cost(call: Call, device: torch.device | str = "cpu") -> Cost:
    """The middle one of three runs, after an untimed one, which loads kernels and libraries."""
    call()
    costs = (measured(call, device)[0] for _ in range(3))
    return sorted(costs, key=lambda cost: cost.busy)[1]


def cost_of(call: Call, device: torch.device | str = "cpu") -> Cost:
    """``median_cost`` on a GPU. On a CPU one run: busy seconds hardly vary, and runs are long."""
    on_gpu = torch.device(device).type == "cuda"
    return median_cost(call, device) if on_gpu else measured(call, device)[0]


def each(calls: Sequence[Call]) -> None:
    """Make all calls, one after the other."""
    for call in calls:
        call()


def reset_peak_memory(device: torch.device | str = "cpu") -> None:
    """Start ``peak_memory`` anew on a GPU; a process's own peak cannot be."""
    if torch.device(device).type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def copy_speed(device: torch.device | str = "cpu", *, gib: float = 0.25) -> float:
    """Bytes read and written per second by a copy from device memory to device memory."""
    source = torch.zeros(int(gib * 2**30), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() / median_cost(lambda: target.copy_(source), device).wall


def arithmetic(call: Call) -> float:
    """Floating-point operations of the matrix products and attention of one call."""
    counter = FlopCounterMode(display=False)
    with counter:
        call()
    return float(counter.get_total_flops())


def matmul_peak(
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    *,
    seconds: float = 1.0,
    size: int | None = None,
) -> float:
    """FLOP per busy second of a large matrix product, the yardstick for fractions of peak."""
    size = size or (2048 if torch.device(device).type == "cpu" else 8192)
    a, b, product = (torch.randn(size, size, device=device).to(dtype) for _ in range(3))

    def multiply(times: int) -> None:
        for _ in range(times):
            torch.matmul(a, b, out=product)

    multiply(1)  # the first loads the library
    count = max(2, round(seconds / measured(lambda: multiply(2), device)[0].wall))
    cost, _ = measured(lambda: multiply(count), device)
    return count * 2 * size**3 / cost.busy


def peak_memory(device: torch.device | str = "cpu") -> float:
    """Largest memory of this process so far, in GiB: resident, or allocated on the GPU."""
    if torch.device(device).type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
