"""What the machine can do and what a call costs: time, arithmetic, memory, matrix-multiply peak."""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
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
    """``median_cost`` on a GPU. On a CPU one run: busy seconds rarely vary, and runs are long."""
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


# Operations of torch that only look at a tensor otherwise, or ask for memory.
_LOOKS = (
    "_local_scalar_dense _reshape_alias _unsafe_view alias as_strided chunk contiguous detach empty"
    " empty_like empty_strided expand expand_as flatten full is_nonzero item lift_fresh movedim mT narrow"
    " new_empty new_full new_zeros numpy_T permute reshape resize_ resolve_conj resolve_neg result_type"
    " select set_ slice split split_with_sizes squeeze t to transpose unbind unflatten unsqueeze view"
    " view_as zeros zeros_like"
)
_NO_KERNELS = frozenset(f"aten::{name}" for name in _LOOKS.split())
_PRODUCTS = frozenset({"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"})


@dataclass(frozen=True)
class Kernels:
    """What torch ran in a call: the share of matrix products in its time, and how many others a pass."""

    products: float
    others: float


def kernels_of(call: Call) -> Kernels:
    """Count by torch's profiler, which makes the call slower; a pass is one that embeds tokens."""
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        call()
    kernel_times: Counter[str] = Counter()
    kernel_counts: Counter[str] = Counter()
    for event in profiled.events():
        inner = (child.name for child in event.cpu_children)
        is_kernel = event.name.startswith("aten::") and event.name not in _NO_KERNELS
        kernel_times[event.name] += event.self_cpu_time_total
        if is_kernel and _NO_KERNELS.issuperset(
            name for name in inner if name.startswith("aten::")
        ):
            kernel_counts[event.name] += 1
    product_time = sum(kernel_times[name] for name in _PRODUCTS)
    product_count = sum(kernel_counts[name] for name in _PRODUCTS)
    passes = max(1, sum(event.name == "aten::embedding" for event in profiled.events()))
    others = (kernel_counts.total() - product_count) / passes
    return Kernels(product_time / kernel_times.total(), others)


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
