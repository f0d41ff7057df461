"""A run as a job that any pool can carry: picklable, and its outcome is a JSON file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from helpers import __version__
from helpers.execute import ROW, ManifestRow, PlannedRun, RunError, place, record, run
from helpers.params import validate_params
from helpers.paths import written_whole

DEAD = (
    "the worker or its kernel died (killed from outside, or out of memory: see the node's log); finished"
    " records are in the store. Try again with --resume, with smaller shards or on a larger machine"
)
TABLE = "editing"  # what notebook 03 calls the table of its run
TIMED_OUT = (
    "the task ran into the cluster's time limit; finished records are in the store. Raise timeout_min or"
    " make the shards smaller, then --resume"
)
# What ends a run from outside, by the name of the exception it shows up as.
_FROM_OUTSIDE = {"DeadKernelError": DEAD, "UncompletedJobError": TIMED_OUT}
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Job:
    """One run of a sweep, small enough to send to any worker."""

    name: str
    params: dict[str, Any]
    notebook: Path
    folder: Path
    edits: int
    part: str = ""  # tag of the cells that it executes; none: all

    @property
    def params_file(self) -> Path:
        """What ``python -m helpers run`` takes as well, once it is written."""
        return self.folder / "params" / self.notebook.stem / f"{self.name}.yaml"

    @property
    def key(self) -> str:
        """What tells it from other jobs of its folder, and from itself with other parameters."""
        return self.planned().output_folder.relative_to(self.folder).as_posix()

    def planned(self) -> PlannedRun:
        """Where its outputs are."""
        file, notebook = self.params_file, self.notebook
        params = validate_params(self.params, notebook, where=str(file))
        return place(file, params, notebook=notebook, folder=self.folder)


# An engine runs jobs and yields each as it ends, however it ended.
Engine = Callable[[Sequence[Job]], Iterator[Job]]


def write_params(job: Job) -> None:
    """Write a run's params file.

    Raises:
        OSError: it cannot be written.
    """
    job.params_file.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(job.params, sort_keys=False, allow_unicode=True)
    with written_whole(job.params_file) as scratch:
        scratch.write_text(f"# Written by python -m helpers sweep.\n{text}", encoding="utf-8")


def run_job(job: Job) -> None:
    """What a worker does. The outcome is the run's row on disk, so nothing is sent back."""
    try:
        run(job.params_file, notebook=job.notebook, folder=job.folder, part=job.part)
    except RunError as error:
        print(f"{job.name}: {error}")  # for the log of a cluster's task


def done(job: Job) -> bool:
    """Whether the run has ended well, with these very parameters."""
    row = job.planned().row()
    return row is not None and row.status == "done"


def died(job: Job) -> bool:
    """Whether the run was ended from outside: the one failure that is worth another try."""
    row = job.planned().row()
    return row is None or row.error.partition(":")[0] in _FROM_OUTSIDE


def forget(job: Job) -> None:
    """Remove an earlier outcome, so that it is not taken for the next one's."""
    (job.planned().output_folder / ROW).unlink(missing_ok=True)


def set_aside(job: Job) -> None:
    """Keep the notebook of an attempt from being overwritten by the next one."""
    output = job.planned().output
    if output.exists():
        output.replace(output.with_name(f"notebook.attempt{attempts(job)}.ipynb"))


def attempts(job: Job) -> int:
    """How often the run was begun, counting those whose notebooks were set aside."""
    folder = job.planned().output_folder
    return len(list(folder.glob("notebook.attempt*.ipynb"))) + (folder / "notebook.ipynb").exists()


def record_death(job: Job) -> None:
    """Write the row that a killed worker could not write."""
    planned = job.planned()
    if planned.row() is None:
        planned.output_folder.mkdir(parents=True, exist_ok=True)
        row = ManifestRow(
            notebook=job.notebook.stem,
            params_file=str(job.params_file),
            output=str(planned.output),
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=0.0,
            status="failed",
            error=DEAD,
            helpers_version=__version__,
        )
        record(planned, row)


def reason(row: ManifestRow) -> str:
    """What a failed run said, in all its lines, or the remedy for an end from outside."""
    kind = row.error.partition(":")[0]
    if kind in _FROM_OUTSIDE:
        return _FROM_OUTSIDE[kind]
    if row.message:
        return _ANSI.sub("", row.message).strip()
    # A row of an earlier version, or of a worker's death, has the error only.
    lines = [line for line in _ANSI.sub("", row.error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
