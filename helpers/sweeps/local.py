"""The local engine: one worker process per GPU, or as many as asked for on the CPU."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass

from helpers.sweeps.jobs import Job, run_job

Environment = dict[str, str]


def worker_environments(device: str, count: int | None = None) -> list[Environment]:
    """One environment per worker.

    Args:
        device: the runs' torch device; with cuda every visible GPU gets one worker.
        count: workers instead of one on the CPU, or of one per GPU.

    Raises:
        ValueError: a count below one, more workers than GPUs, or one GPU named by its index.
    """
    if count is not None and count < 1:
        raise ValueError(f"--workers must be at least 1, got {count}")
    if not device.startswith("cuda"):
        number = count or 1
        threads = max(1, (os.cpu_count() or 1) // number)
        shared = {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": str(threads)}
        return [shared] * number
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
        waiting = deque(jobs)
        idle = list(self.environments)
        running: dict[Future[None], tuple[Job, ProcessPoolExecutor, Environment]] = {}
        try:
            while waiting or running:
                while waiting and idle:
                    job, environment = waiting.popleft(), idle.pop()
                    pool = _one_process(environment)
                    running[pool.submit(run_job, job)] = (job, pool, environment)
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    job, pool, environment = running.pop(future)
                    pool.shutdown()
                    idle.append(environment)
                    yield job
        finally:
            for _, pool, _ in running.values():
                pool.shutdown(wait=False, cancel_futures=True)


def _one_process(environment: Environment) -> ProcessPoolExecutor:
    # Spawned, not forked: CUDA and torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(
        1, mp_context=context, initializer=_set_environment, initargs=(environment,)
    )


def _set_environment(environment: Environment) -> None:
    os.environ.update(environment)
