"""What a sweep file holds, and the runs it makes.

A sweep is a matrix of models x data sets x editors, each data set cut into shards. Every run is an
ordinary params file of notebook 03. The shards of one combination have the same key in the results
store, so they meet there. A last run per model and data set covers all records and editors: it finds
everything in the store and makes the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from helpers import UserError
from helpers.editing.editors import method_label
from helpers.execute import SHARED, PlannedRun, planned_run
from helpers.params import validate_params
from helpers.paths import NOTEBOOKS, REPOSITORY, file_name
from helpers.peak.records import part_name, record_count
from helpers.records import error_in_words, read_yaml

NOTEBOOK = NOTEBOOKS / "03_editing_runs.ipynb"
_SHELL = ("setup", "python", "srun_args", "additional_parameters")  # submitit's, and Slurm's own
_AXES = ("model", "dataset", "methods", "records", "keep")

Names = Annotated[list[str], Field(min_length=1)]


class Sweep(BaseModel):
    """A sweep file's content."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    models: Names
    datasets: Names
    editors: Names
    records: int | None = Field(default=None, gt=0)  # of each data set, the first ones
    shard: int = Field(default=200, gt=0)  # records per run
    params: dict[str, Any] = {}  # further parameters, the same in all runs
    slurm: dict[str, Any] = {}  # submitit's parameters, such as timeout_min and partition

    @property
    def shell(self) -> list[str]:
        """The entries of ``slurm`` that a shell would execute: submitit copies them into its script."""
        return [
            f"{name}: {value}"
            for name, value in self.slurm.items()
            if name.removeprefix("slurm_") in _SHELL or "\n" in str(value) or "\\n" in repr(value)
        ]


@dataclass(frozen=True)
class Job:
    """One run of a sweep and how many edits it makes; its outcome is a file."""

    name: str
    edits: int
    run: PlannedRun

    @property
    def key(self) -> str:
        """What distinguishes the job from others of its folder, and from itself with other parameters."""
        return self.run.output_folder.name

    @property
    def done(self) -> bool:
        """Whether the run has ended well, with these very parameters."""
        row = self.run.row()
        return row is not None and row.status == "done"


@dataclass(frozen=True)
class Group:
    """The runs of one model and data set.

    ``shared`` makes what several shards need, before the first of them runs. ``table`` runs once all
    shards are done.
    """

    shared: tuple[Job, ...]
    shards: tuple[Job, ...]
    table: Job

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The group's jobs in the order of their stages."""
        return (*self.shared, *self.shards, self.table)


def read_sweep(path: Path) -> Sweep:
    """Read a sweep file; a ``UserError`` names all that is wrong with it."""
    try:
        content = read_yaml(path)
        if not isinstance(content, dict):
            raise UserError(f"{path} must be a mapping with {', '.join(Sweep.model_fields)}")
        return Sweep(**content)
    except ValidationError as error:
        lines = error_in_words(error, known=Sweep.model_fields, noun="sweep entry")
        raise UserError(f"{path}: {lines}") from error
    except OSError as error:
        raise UserError(
            f"no readable sweep file {path} ({' '.join(str(error).split())}); see params/sweeps"
        ) from error


def expand(
    sweep: Sweep,
    *,
    source: str,
    folder: Path,
    notebook: Path | None = None,
    download: bool = True,
) -> list[Group]:
    """All runs of a sweep, each checked against the notebook's parameters; nothing is written.

    Args:
        source: what messages call the sweep's file.
        folder: for all that the runs write.
        notebook: its parameters include those of notebook 03, which it is by default.
        download: whether data sets that are not here are downloaded; else their published numbers of
            records are planned with.
    """
    notebook = notebook or NOTEBOOK
    if axes_in_params := [axis for axis in _AXES if axis in sweep.params]:
        raise UserError(
            f"{source}: {', '.join(axes_in_params)} in params, which a sweep sets itself"
        )
    for editor in sweep.editors:
        method_label(editor)  # refuses an unknown one

    def job(name: str, edits: int, params: dict[str, Any], cell_tag: str = "") -> Job:
        # Published results are not redrawn by a sweep.
        all_values = {"published": [], **params, **sweep.params}
        values = validate_params(all_values, notebook, source=source)
        file = folder / "params" / notebook.stem / f"{name}.yaml"
        run = planned_run(file, values, notebook=notebook, folder=folder, cell_tag=cell_tag)
        return Job(name, edits, run)

    def shards(prefix: str, model_name: str, dataset: str, count: int) -> Iterator[Job]:
        # Editors outside: the first one's runs score the unedited model for all others.
        for editor in sweep.editors:
            for start in range(0, count, sweep.shard):
                end = min(start + sweep.shard, count)
                params = {
                    "model": model_name,
                    "dataset": part_name(dataset, start, end),
                    "records": None,
                    "methods": [editor],
                }
                yield job(f"{prefix}_{file_name(editor)}_{start:05d}", end - start, params)

    groups = []
    for dataset in sweep.datasets:
        with chdir(REPOSITORY):  # from where its runs read paths as well
            count = record_count(dataset, limit=sweep.records, download=download)
        for model_name in sweep.models:
            prefix = f"{file_name(model_name)}_{file_name(dataset)}"
            all_params: dict[str, Any] = {
                "model": model_name,
                "dataset": dataset,
                "records": sweep.records,
                "methods": list(sweep.editors),
            }
            shard_jobs = tuple(shards(prefix, model_name, dataset, count))
            shared_jobs: tuple[Job, ...] = ()
            if len(shard_jobs) > 1:
                shared_jobs = (job(f"{prefix}_{SHARED}", 0, all_params, SHARED),)
            table_job = job(f"{prefix}_table", 0, all_params)
            groups.append(Group(shared_jobs, shard_jobs, table_job))
    counts = Counter(planned.name for group in groups for planned in group.jobs)
    if repeated := sorted(name for name, number in counts.items() if number > 1):
        raise UserError(
            f"{source}: two runs would both be called {repeated[0]}; drop one of the two"
        )
    return groups
