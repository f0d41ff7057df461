"""What a sweep file holds, and the runs it makes.

A sweep is a matrix of models x data sets x editors, each data set cut into shards. Every run is an
ordinary params file of notebook 03. The shards of one combination have the same key in the results
store, so they meet there. A last run per model and data set covers all records and editors: it finds
everything in the store and makes the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from helpers import UserError
from helpers.editing.editors import method_label
from helpers.execute import SHARED, PlannedRun, has_part, place
from helpers.params import parameters_model, validate_params
from helpers.paths import NOTEBOOKS, file_name
from helpers.peak.records import load_peak, part_name
from helpers.records import in_words, load_yaml

NOTEBOOK = NOTEBOOKS / "03_editing_runs.ipynb"
_SHELL = ("setup", "python", "srun_args", "additional_parameters")  # submitit's, and Slurm's own
_AXES = ("model", "dataset", "methods", "records")

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
        """What of ``slurm`` a shell would execute: submitit copies it into the script it submits."""
        return [
            f"{name}: {value}"
            for name, value in self.slurm.items()
            if name.removeprefix("slurm_") in _SHELL or "\n" in str(value) or "\\n" in repr(value)
        ]


@dataclass(frozen=True)
class Job:
    """One run of a sweep, small enough to send to any worker; its outcome is a file.

    ``edits`` is how many it makes; ``part`` the tag of the cells that it executes, empty for all.
    """

    name: str
    params: dict[str, Any]
    edits: int
    folder: Path
    notebook: Path
    part: str = ""

    @property
    def params_file(self) -> Path:
        """What ``python -m helpers run`` also takes, once it is written."""
        return self.folder / "params" / self.notebook.stem / f"{self.name}.yaml"

    @cached_property
    def planned(self) -> PlannedRun:
        """Where its outputs are."""
        file = self.params_file
        params = validate_params(self.params, self.notebook, where=str(file))
        return place(file, params, notebook=self.notebook, folder=self.folder)

    @property
    def key(self) -> str:
        """What distinguishes it from other jobs of its folder, and from itself with other parameters."""
        return self.planned.output_folder.name

    @property
    def done(self) -> bool:
        """Whether the run has ended well, with these very parameters."""
        row = self.planned.row()
        return row is not None and row.status == "done"

    @property
    def attempts(self) -> list[Path]:
        """The notebooks that were begun."""
        return sorted(self.planned.output_folder.glob("notebook*.ipynb"))


@dataclass(frozen=True)
class Group:
    """The runs of one model and data set.

    ``shared`` makes what all shards need, before the first of them runs; none where there is one shard
    only, or nothing is shared. ``table`` runs once all shards are done.
    """

    shared: tuple[Job, ...]
    shards: tuple[Job, ...]
    table: Job

    @property
    def jobs(self) -> tuple[Job, ...]:
        """All of them, in the order of their stages."""
        return (*self.shared, *self.shards, self.table)


def read_sweep(path: Path) -> Sweep:
    """Read a sweep file; a ``UserError`` names all that is wrong with it."""
    try:
        content = load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"no readable sweep file {path} ({error}); examples are in params/sweeps"
        ) from error
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise UserError(f"{path} must be a mapping with {', '.join(Sweep.model_fields)}")
    try:
        return Sweep(**content)
    except ValidationError as error:
        lines = in_words(error, known=Sweep.model_fields, noun="sweep entry")
        raise UserError(f"{path}: {lines}") from error


def expand(sweep: Sweep, *, where: str, folder: Path, notebook: Path = NOTEBOOK) -> list[Group]:
    """All runs of a sweep, each checked against the notebook's parameters; nothing is written.

    Args:
        where: the sweep file, for messages.
        folder: for all that the runs write.
        notebook: its parameters include model, dataset, methods and records.

    Raises:
        UserError: an axis also in ``params``, two runs of one name, a parameter or an editor that does not
            exist, or a data set that cannot be read.
    """
    if double := [axis for axis in _AXES if axis in sweep.params]:
        raise UserError(
            f"{where}: {', '.join(double)} in params; write it as models, datasets, editors or records"
        )
    for editor in sweep.editors:
        method_label(editor)
    groups = list(_groups(sweep, folder, notebook))
    counts = Counter(job.name for group in groups for job in group.jobs)
    if twice := sorted(name for name, count in counts.items() if count > 1):
        raise UserError(f"{where}: two runs would both be called {twice[0]}; drop one of the two")
    for job in (job for group in groups for job in group.jobs):
        validate_params(job.params, notebook, where=where)
    return groups


def _groups(sweep: Sweep, folder: Path, notebook: Path) -> Iterator[Group]:
    # Published results are not redrawn by a sweep.
    plain = "published" in parameters_model(notebook).model_fields
    params = {**({"published": []} if plain else {}), **sweep.params}
    with_shared = has_part(notebook, SHARED)
    for dataset in sweep.datasets:
        count = len(load_peak(dataset, limit=sweep.records, strict_lists=False).records)
        for model in sweep.models:
            prefix = f"{file_name(model)}_{file_name(dataset)}"
            shards = tuple(
                Job(
                    f"{prefix}_{file_name(editor)}_{start:05d}",
                    {
                        "model": model,
                        "dataset": part_name(dataset, start, min(start + sweep.shard, count)),
                        "records": None,
                        "methods": [editor],
                        **params,
                    },
                    min(sweep.shard, count - start),
                    folder,
                    notebook,
                )
                # Editors outside: the first one's runs score the unedited model for all others.
                for editor in sweep.editors
                for start in range(0, count, sweep.shard)
            )
            whole: dict[str, Any] = {"model": model, "dataset": dataset, "records": sweep.records}
            whole |= {"methods": list(sweep.editors), **params}
            table = Job(f"{prefix}_table", whole, 0, folder, notebook)
            shared = replace(table, name=f"{prefix}_{SHARED}", part=SHARED)
            yield Group((shared,) if with_shared and len(shards) > 1 else (), shards, table)
