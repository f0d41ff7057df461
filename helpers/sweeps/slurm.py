"""The Slurm engine: job arrays, submitted through submitit; tasks outlive the command that waits."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers import UserError
from helpers.paths import written_whole
from helpers.sweeps.jobs import Job, run_job, set_aside

_TASKS = "tasks.json"
_ARRAY_SIZE = re.compile(r"^MaxArraySize\s*=\s*(\d+)$", re.M)
_USUAL_ARRAY_SIZE = 1001  # Slurm's own default


class SlurmError(UserError):
    """Raised when jobs cannot be submitted, with the scheduler's own words."""


@dataclass(frozen=True)
class Task:
    """What a task does; submitit asks ``checkpoint`` when it is preempted or out of time."""

    run: Callable[[Job], None]

    def __call__(self, job: Job) -> None:
        """Run the job."""
        self.run(job)

    def checkpoint(self, job: Job) -> Any:
        """The same once more, as the same task: finished records are in the store."""
        from submitit.helpers import DelayedSubmission

        set_aside(job)
        return DelayedSubmission(self, job)


@dataclass(frozen=True)
class SlurmEngine:
    """Submits jobs as arrays and yields each as it leaves the queue.

    Tasks that an earlier command submitted and that are still in the queue are waited for, not
    submitted again.

    Attributes:
        folder: for submitit's scripts and logs; on a file system that all nodes share.
        options: submitit's parameters, e.g. ``{"timeout_min": 240, "slurm_partition": "gpu"}``.
        poll: seconds between two looks at the queue.
        patience: seconds to wait for the outcome of a job that has left the queue, for file systems
            on which it shows up late.
        run: what a task does with its job.
    """

    folder: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    poll: float = 5.0
    patience: float = 60.0
    run: Callable[[Job], None] = run_job

    def __call__(self, jobs: Sequence[Job]) -> Iterator[Job]:
        """Run jobs and yield each as it ends.

        Raises:
            SlurmError: there is no Slurm here, or it refuses the jobs or their options.
        """
        running = self._submitted_before(jobs)
        attached = {job.key for job in running.values()}
        waiting = [job for job in jobs if job.key not in attached]
        running |= zip(self._submit(waiting), waiting, strict=True)
        gone_since: dict[str, float] = {}
        while running:
            queued = _queue()
            now = time.monotonic()
            for number in running.keys() - (running.keys() if queued is None else queued):
                waited = now - gone_since.setdefault(number, now)
                if running[number].planned().row() is not None or waited >= self.patience:
                    yield running.pop(number)
            if running:
                time.sleep(self.poll)

    def _submitted_before(self, jobs: Sequence[Job]) -> dict[str, Job]:
        """Jobs by the number of their task, of those that are in the queue already."""
        tasks = self._tasks()
        queued = (_queue() or set()) if tasks else set()
        numbers = {name: number for name, number in tasks.items() if number in queued}
        return {numbers[job.key]: job for job in jobs if job.key in numbers}

    def _submit(self, jobs: Sequence[Job]) -> list[str]:
        """Submit arrays as large as Slurm takes them; returns each task's number, such as ``17_0``."""
        import submitit

        if shutil.which("sbatch") is None:
            raise SlurmError("there is no sbatch on this machine; use --engine local")
        self.folder.mkdir(parents=True, exist_ok=True)
        size = _largest_array()
        arrays = [jobs[start : start + size] for start in range(0, len(jobs), size)]
        executor = submitit.AutoExecutor(self.folder / "%j", cluster="slurm")
        numbers: list[str] = []
        try:
            executor.update_parameters(**{"name": "helpers-sweep", **self._shared(len(arrays))})
            for array in arrays:
                numbers += [task.job_id for task in executor.map_array(Task(self.run), array)]
                self._remember(dict(zip((job.key for job in jobs), numbers, strict=False)))
        except (NameError, ValueError, TypeError, AssertionError) as error:
            raise SlurmError(
                f"options under slurm: {error} (submitit's names; Slurm's own begin with slurm_)"
            ) from error
        except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError) as e:
            raise SlurmError(f"Slurm did not take the jobs: {e}") from e
        return numbers

    def _shared(self, arrays: int) -> dict[str, Any]:
        """The options, with the limit of tasks at a time dealt among the arrays."""
        limit = "slurm_array_parallelism"
        if arrays < 2 or limit not in self.options:
            return dict(self.options)
        return {**self.options, limit: max(1, self.options[limit] // arrays)}

    def _tasks(self) -> dict[str, str]:
        """Numbers of the tasks that were submitted last, by their job's key."""
        try:
            found: dict[str, str] = json.loads((self.folder / _TASKS).read_text(encoding="utf-8"))
        except (OSError, ValueError):  # none yet
            return {}
        return found

    def _remember(self, tasks: Mapping[str, str]) -> None:
        with written_whole(self.folder / _TASKS) as scratch:
            scratch.write_text(json.dumps({**self._tasks(), **tasks}), encoding="utf-8")


def _queue() -> set[str] | None:
    """Numbers of this user's waiting and running tasks; None where the scheduler does not answer."""
    done = _asked("squeue", "--me", "--noheader", "--array", "--format=%i")
    return set(done.stdout.split()) if done.returncode == 0 else None


def _largest_array() -> int:
    """Tasks that one array may have."""
    found = _ARRAY_SIZE.search(_asked("scontrol", "show", "config").stdout)
    return int(found[1]) if found else _USUAL_ARRAY_SIZE


def _asked(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)
