"""What carries out runs: worker processes on this machine, or Slurm's job arrays through submitit.

An engine takes jobs and yields each as it ends, however it ended.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import FailedJobError, FailedSubmissionError

from helpers import UserError
from helpers.execute import RunError, execute
from helpers.paths import write_whole
from helpers.processes import Environment, each_alone, environment, shared_cores
from helpers.sweeps.matrix import Job

Engine = Callable[[Sequence[Job]], Iterator[Job]]
POLL = 5.0  # seconds between two looks at Slurm's queue
PATIENCE = 60.0  # seconds until the outcome of a job that left it is on a shared disk


class Task(submitit.helpers.Checkpointable):
    """What a worker does; preempted or out of time, Slurm puts the same task back."""

    def __call__(self, job: Job) -> None:
        """Run the job; its outcome is the run's row on disk, so nothing is sent back."""
        try:
            execute(job.run)
        except RunError as error:
            print(f"{job.name}: {error}")  # for the log of a cluster's task


def local_engine(device: str, workers: int | None = None) -> Engine:
    """An engine that runs jobs in fresh processes: one per GPU, or as many as asked for on the CPU."""
    environments = worker_environments(device, workers)

    def run(jobs: Sequence[Job]) -> Iterator[Job]:
        for job, _ in each_alone(Task(), jobs, environments):
            yield job

    return run


def worker_environments(device: str, worker_count: int | None = None) -> list[Environment]:
    """One environment per worker: with cuda for each visible GPU, ``worker_count`` at most."""
    cpu_environments = shared_cores(1 if worker_count is None else worker_count)
    if not device.startswith("cuda"):
        return cpu_environments
    if device != "cuda":
        raise UserError(
            f"device {device!r}: a worker sees one GPU; use device: cuda, and choose GPUs with"
            " CUDA_VISIBLE_DEVICES"
        )
    import torch

    every_gpu = ",".join(map(str, range(torch.cuda.device_count())))
    visible_gpus = os.environ.get("CUDA_VISIBLE_DEVICES", every_gpu)
    gpu_names = [gpu_name for gpu_name in visible_gpus.split(",") if gpu_name.strip()]
    if not gpu_names:
        raise UserError(f"device {device!r}: torch sees no GPU; use cpu")
    if worker_count is not None and worker_count > len(gpu_names):
        raise UserError(
            f"{worker_count} workers, but {len(gpu_names)} GPUs: a GPU holds one run at a time"
        )
    return [{"CUDA_VISIBLE_DEVICES": gpu_name} for gpu_name in gpu_names[:worker_count]]


def slurm_engine(folder: Path, options: Mapping[str, Any]) -> Engine:
    """An engine that submits jobs as an array and yields each as it leaves the queue.

    Tasks outlive the command that waits. Those that an earlier command submitted and that are still in
    the queue are waited for, not submitted again. All nodes share ``folder``, for scripts and logs;
    ``options`` are submitit's parameters.
    """

    def run(jobs: Sequence[Job]) -> Iterator[Job]:
        if shutil.which("sbatch") is None:
            raise UserError("there is no sbatch on this machine; use --engine local")
        tasks_file = folder / "tasks.json"  # numbers of tasks, such as 17_0, by their job's key
        task_number_of_job: dict[str, str] = (
            json.loads(tasks_file.read_text("utf-8")) if tasks_file.exists() else {}
        )
        queued_before = _queue() or set()
        to_submit = [job for job in jobs if task_number_of_job.get(job.key) not in queued_before]
        task_numbers = _submit(to_submit, folder, options)
        for job, task_number in zip(to_submit, task_numbers, strict=True):
            task_number_of_job[job.key] = task_number
        write_whole(tasks_file, json.dumps(task_number_of_job))
        unreported_jobs = {task_number_of_job[job.key]: job for job in jobs}
        gone_since: dict[str, float] = {}
        while unreported_jobs:
            queued_now = _queue()
            checked_at = time.monotonic()
            no_longer_queued: set[str] = (
                set() if queued_now is None else unreported_jobs.keys() - queued_now
            )
            for task_number in no_longer_queued:
                seconds_gone = checked_at - gone_since.setdefault(task_number, checked_at)
                if (
                    unreported_jobs[task_number].run.outcome() is not None
                    or seconds_gone >= PATIENCE
                ):
                    yield unreported_jobs.pop(task_number)
            if unreported_jobs:
                time.sleep(POLL)

    return run


def _submit(jobs: Sequence[Job], folder: Path, options: Mapping[str, Any]) -> list[str]:
    """Submit the jobs as one array; the numbers of their tasks."""
    folder.mkdir(parents=True, exist_ok=True)
    executor = submitit.AutoExecutor(folder / "%j", cluster="slurm")
    try:
        executor.update_parameters(**{"name": "helpers-sweep", **options})
        # Else jobs would take after the one that the sweep is started in, if it is.
        slurm_configuration = os.environ.get("SLURM_CONF")
        cluster_variables = (
            {} if slurm_configuration is None else {"SLURM_CONF": slurm_configuration}
        )
        with submitit.helpers.clean_env(), environment(cluster_variables):
            submitted_tasks = executor.map_array(Task(), jobs) if jobs else []
            return [task.job_id for task in submitted_tasks]
    except (NameError, ValueError, TypeError, AssertionError) as error:
        raise UserError(
            f"options under slurm: {error} (submitit's names; Slurm's own begin with slurm_)"
        ) from error
    except (FailedJobError, FailedSubmissionError) as error:
        raise UserError(f"Slurm did not take the jobs: {error}") from error


def _queue() -> set[str] | None:
    """Numbers of this user's waiting and running tasks; None where the scheduler does not answer."""
    command = ["squeue", "--me", "--noheader", "--array", "--format=%i"]
    squeue = subprocess.run(command, capture_output=True, text=True, check=False)
    return set(squeue.stdout.split()) if squeue.returncode == 0 else None
