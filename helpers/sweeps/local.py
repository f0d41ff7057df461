"""The local engine: one worker process per GPU, or as many as asked for on the CPU."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from helpers.processes import Environment, each_alone, shared_cores
from helpers.sweeps.jobs import Job, run_job


def worker_environments(device: str, count: int | None = None) -> list[Environment]:
    """One environment per worker.

    Args:
        device: the runs' torch device; with cuda every visible GPU gets one worker.
        count: workers instead of one on the CPU, or of one per GPU.

    Raises:
        ValueError: a count below one, more workers than GPUs, or one GPU named by its index.
    """
    on_the_cpu = shared_cores(1 if count is None else count)
    if not device.startswith("cuda"):
        return on_the_cpu
    if device != "cuda":
        raise ValueError(
            f"device {device!r}: each worker sees one GPU only; use device: cuda, and choose GPUs with"
            " CUDA_VISIBLE_DEVICES"
        )
    gpus = _visible_gpus()
    if not gpus:
        raise ValueError(f"device {device!r} was asked for, but torch sees no GPU; use device: cpu")
    if count is not None and count > len(gpus):
        raise ValueError(f"{count} workers, but {len(gpus)} GPUs: a GPU holds one run at a time")
    return [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in gpus[:count]]


def _visible_gpus() -> list[str]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [gpu for gpu in visible.split(",") if gpu.strip()]
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]


@dataclass(frozen=True)
class LocalEngine:
    """Runs jobs in fresh processes, at most one per environment at a time.

    Each job has a process of its own: papermill's working directory is one per process, and a
    killed worker takes nothing with it but its own run.
    """

    environments: Sequence[Environment]

    def __call__(self, jobs: Sequence[Job]) -> Iterator[Job]:
        """Run jobs, in order as workers become free, and yield each as it ends."""
        for job, _ in each_alone(run_job, jobs, self.environments):
            yield job
