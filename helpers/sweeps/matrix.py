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
            f"{option}: {option_value}"
            for option, option_value in self.slurm.items()
            if option.removeprefix("slurm_") in _SHELL
            or "\n" in str(option_value)
            or "\\n" in repr(option_value)
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
        outcome = self.run.outcome()
        return outcome is not None and outcome.status == "done"


@dataclass(frozen=True)
class JobGroup:
    """The runs of one model and data set.

    ``shared_jobs`` make what several shards need, before the first of them runs. ``table_job`` runs once all
    shards are done.
    """

    shared_jobs: tuple[Job, ...]
    shard_jobs: tuple[Job, ...]
    table_job: Job

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The group's jobs in the order of their stages."""
        return (*self.shared_jobs, *self.shard_jobs, self.table_job)


def read_sweep(path: Path) -> Sweep:
    """Read a sweep file; a ``UserError`` names all that is wrong with it."""
    try:
        content = read_yaml(path)
        if not isinstance(content, dict):
            raise UserError(f"{path} must be a mapping with {', '.join(Sweep.model_fields)}")
        return Sweep(**content)
    except ValidationError as error:
        faults = error_in_words(error, known=Sweep.model_fields, noun="sweep entry")
        raise UserError(f"{path}: {faults}") from error
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
) -> list[JobGroup]:
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

    def planned_job(
        job_name: str, edits: int, job_params: dict[str, Any], cell_tag: str = ""
    ) -> Job:
        # Published results are not redrawn by a sweep.
        given_params = {"published": [], **job_params, **sweep.params}
        checked_params = validate_params(given_params, notebook, source=source)
        params_file = folder / "params" / notebook.stem / f"{job_name}.yaml"
        job_run = planned_run(
            params_file, checked_params, notebook=notebook, folder=folder, cell_tag=cell_tag
        )
        return Job(job_name, edits, job_run)

    def shards_of_dataset(
        job_prefix: str, model_name: str, dataset: str, dataset_size: int
    ) -> Iterator[Job]:
        # Editors outside: the first one's runs score the unedited model for all others.
        for editor in sweep.editors:
            for first_record in range(0, dataset_size, sweep.shard):
                end_record = min(first_record + sweep.shard, dataset_size)
                job_params = {
                    "model": model_name,
                    "dataset": part_name(dataset, first_record, end_record),
                    "records": None,
                    "methods": [editor],
                }
                yield planned_job(
                    f"{job_prefix}_{file_name(editor)}_{first_record:05d}",
                    end_record - first_record,
                    job_params,
                )

    job_groups = []
    for dataset in sweep.datasets:
        with chdir(REPOSITORY):  # from where its runs read paths as well
            dataset_size = record_count(dataset, limit=sweep.records, download=download)
        for model_name in sweep.models:
            job_prefix = f"{file_name(model_name)}_{file_name(dataset)}"
            all_params: dict[str, Any] = {
                "model": model_name,
                "dataset": dataset,
                "records": sweep.records,
                "methods": list(sweep.editors),
            }
            shard_jobs = tuple(shards_of_dataset(job_prefix, model_name, dataset, dataset_size))
            shared_jobs: tuple[Job, ...] = ()
            if len(shard_jobs) > 1:
                shared_jobs = (planned_job(f"{job_prefix}_{SHARED}", 0, all_params, SHARED),)
            table_job = planned_job(f"{job_prefix}_table", 0, all_params)
            job_groups.append(JobGroup(shared_jobs, shard_jobs, table_job))
    name_counts = Counter(job.name for job_group in job_groups for job in job_group.jobs)
    if repeated_names := sorted(
        job_name for job_name, times_used in name_counts.items() if times_used > 1
    ):
        raise UserError(
            f"{source}: two runs would both be called {repeated_names[0]}; drop one of the two"
        )
    return job_groups
