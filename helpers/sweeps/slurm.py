"""The Slurm engine: one job array per round, submitted through submitit."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.sweeps.jobs import Job, run_job


class SlurmError(RuntimeError):
    """Raised when jobs cannot be submitted, with the scheduler's own words."""


@dataclass(frozen=True)
class SlurmEngine:
    """Submits jobs as one array and yields each as it leaves the queue.

    Attributes:
        folder: for submitit's scripts and logs; on a file system that all nodes share.
        options: submitit's parameters, e.g. ``{"timeout_min": 240, "slurm_partition": "gpu"}``.
        poll: seconds between two looks at the queue.
        patience: seconds to wait for the outcome of a job that has left the queue, for file systems
            on which it shows up late.
    """

    folder: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    poll: float = 5.0
    patience: float = 60.0

    def __call__(self, jobs: Sequence[Job]) -> Iterator[Job]:
        """Run jobs and yield each as it ends.

        Raises:
            SlurmError: there is no Slurm here, or it refuses the jobs or their options.
        """
        running = dict(zip(self._submit(jobs), jobs, strict=True))
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

    def _submit(self, jobs: Sequence[Job]) -> list[str]:
        """Submit one array; returns each task's number, such as ``17_0``."""
        import submitit

        if shutil.which("sbatch") is None:
            raise SlurmError("there is no sbatch on this machine; use --engine local")
        self.folder.mkdir(parents=True, exist_ok=True)
        executor = submitit.AutoExecutor(self.folder / "%j", cluster="slurm")
        try:
            executor.update_parameters(**{"name": "helpers-sweep", **self.options})
            return [task.job_id for task in executor.map_array(run_job, jobs)]
        except (NameError, ValueError, TypeError, AssertionError) as error:
            raise SlurmError(
                f"options under slurm: {error} (submitit's names; Slurm's own begin with slurm_)"
            ) from error
        except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError) as e:
            raise SlurmError(f"Slurm did not take the jobs: {e}") from e


def _queue() -> set[str] | None:
    """Numbers of this user's waiting and running tasks; None where the scheduler does not answer."""
    command = ["squeue", "--me", "--noheader", "--array", "--format=%i"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return set(done.stdout.split()) if done.returncode == 0 else None
