"""What a sweep file says, and the runs it stands for.

A sweep is a matrix of models x data sets x editors, each data set cut into shards. Every run is an
ordinary params file of notebook 03. The shards of one combination have the same key in the results
store, so they meet there. A last run per model and data set covers all records and editors: it finds
everything in the store and makes the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from helpers import UserError
from helpers.editing.editors import method_label
from helpers.params import explain, parameters_model, validate_params
from helpers.paths import NOTEBOOKS, file_name
from helpers.peak.records import load_peak, part_name
from helpers.records import load_yaml

NOTEBOOK = NOTEBOOKS / "03_editing_runs.ipynb"
_SHELL = ("setup", "python", "srun_args", "additional_parameters")  # submitit's, and Slurm's own
_AXES = ("model", "dataset", "methods", "records")

Names = Annotated[list[str], Field(min_length=1)]


class SweepError(UserError):
    """Raised for a sweep that cannot be run, naming the file and the remedy."""


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
class Run:
    """One run: a name, the parameters it differs by, and how many edits it makes."""

    name: str
    params: dict[str, Any]
    edits: int


@dataclass(frozen=True)
class Combination:
    """A model and a data set: the runs that fill the store, and the one that makes the table."""

    shards: tuple[Run, ...]
    table: Run


def read_sweep(path: Path) -> Sweep:
    """Read a sweep file.

    Raises:
        SweepError: no such file, not YAML, an unknown key, or a value of the wrong type.
    """
    try:
        content = load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SweepError(
            f"no readable sweep file {path} ({error}); examples are in params/sweeps"
        ) from error
    except yaml.YAMLError as error:
        raise SweepError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise SweepError(f"{path} must be a mapping with {', '.join(Sweep.model_fields)}")
    try:
        return Sweep(**content)
    except ValidationError as error:
        lines = [explain(problem, Sweep, noun="sweep entry") for problem in error.errors()]
        raise SweepError(f"{path}: " + "; ".join(lines)) from error


def expand(sweep: Sweep, *, where: str, notebook: Path = NOTEBOOK) -> list[Combination]:
    """All runs of a sweep, every one checked against the notebook's parameters.

    Args:
        where: the sweep file, for messages.
        notebook: its parameters include model, dataset, methods and records.

    Raises:
        SweepError: an axis also in ``params``, or two runs of one name.
        UserError, EditorError: a parameter or an editor that does not exist.
        UserError, UserError: a data set that cannot be read.
    """
    double = [axis for axis in _AXES if axis in sweep.params]
    if double:
        raise SweepError(
            f"{where}: {', '.join(double)} in params; write it as models, datasets, editors or records"
        )
    for editor in sweep.editors:
        method_label(editor)
    found = list(_combinations(sweep, {**_unpublished(notebook), **sweep.params}))
    names = [run.name for each in found for run in (*each.shards, each.table)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SweepError(f"{where}: two runs would both be called {twice[0]}; drop one of the two")
    for run in (run for each in found for run in (*each.shards, each.table)):
        validate_params(run.params, notebook, where=where)
    return found


def _unpublished(notebook: Path) -> dict[str, Any]:
    """Parameters that leave out what no run of a sweep is asked for: published results, redrawn."""
    return {"published": []} if "published" in parameters_model(notebook).model_fields else {}


def _combinations(sweep: Sweep, params: dict[str, Any]) -> Iterator[Combination]:
    for dataset in sweep.datasets:
        count = len(load_peak(dataset, limit=sweep.records, strict_lists=False).records)
        for model in sweep.models:
            prefix = f"{file_name(model)}_{file_name(dataset)}"
            shards = tuple(
                Run(
                    name=f"{prefix}_{file_name(editor)}_{start:05d}",
                    params={
                        "model": model,
                        "dataset": part_name(dataset, start, min(start + sweep.shard, count)),
                        "records": None,
                        "methods": [editor],
                        **params,
                    },
                    edits=min(sweep.shard, count - start),
                )
                # Editors outside: the first one's runs score the unedited model for all others.
                for editor in sweep.editors
                for start in range(0, count, sweep.shard)
            )
            whole = {"model": model, "dataset": dataset, "records": sweep.records}
            table = Run(
                name=f"{prefix}_table",
                params={**whole, "methods": list(sweep.editors), **params},
                edits=0,
            )
            yield Combination(shards, table)
