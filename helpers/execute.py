"""Headless execution: a params file becomes an executed notebook, its outputs, and how it ended.

Cells have tags. ``published``: redraws published results; omitted where the parameter ``published``
names none. ``results``: sentences about the numbers of the notebook's own parameters; omitted under
others. ``shared``: makes what the shards of a sweep share, before the first of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import papermill
import yaml
from filelock import FileLock, Timeout
from papermill.exceptions import PapermillExecutionError

from helpers import UserError, __version__
from helpers.params import defaults_of, notebook_of, read_params
from helpers.paths import (
    REPOSITORY,
    RUNS,
    check_place,
    file_name,
    in_one_line,
    remove,
    write_whole,
)
from helpers.processes import PROGRESS_PREFIX, each_alone, environment, shared_cores, tell_nothing
from helpers.records import read_text

# Tags of cells.
PUBLISHED = "published"
RESULTS = "results"
SHARED = "shared"
OUTCOME = "run.json"  # the file in a run's folder that tells how it ended
_HEADLINES = re.compile(r"<!-- made by python -m tools\.headlines.*?<!-- end -->\n*", re.S)
_FOLDERS = {"results", "output"}  # parameters that change no number
USUAL_TIME = re.compile(r"^# Usual time: (.+)$", re.M)


class RunError(UserError):
    """A notebook failed; the message names the executed notebook, which is its own log."""


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended: the content of its ``run.json``; ``error`` is what a cell raised."""

    started: str
    seconds: float
    status: str
    error: str
    helpers_version: str


@dataclass(frozen=True)
class PlannedRun:
    """A checked params file, its notebook, and the folder its executed notebook will be in."""

    notebook: Path
    params_file: Path
    params: dict[str, Any]
    output_folder: Path
    cell_tag: str = ""  # of the cells that are executed; none: all are

    @property
    def output(self) -> Path:
        """The executed notebook."""
        return self.output_folder / "notebook.ipynb"

    @property
    def tables(self) -> Path:
        """The folder of the tables that its notebook shows, as CSV files."""
        return self.output_folder / "tables"

    def outcome(self) -> RunOutcome | None:
        """How the run ended; None where it never did: it did not start, or was killed."""
        try:
            return RunOutcome(**json.loads((self.output_folder / OUTCOME).read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return None


def planned_run(
    params_file: Path, params: dict[str, Any], *, notebook: Path, folder: Path, cell_tag: str = ""
) -> PlannedRun:
    """A run of checked parameters; its output is ``folder/<notebook>/<params>-<hash>/``.

    ``cell_tag`` restricts it to the cells with this tag.
    """
    params_digest = hashlib.sha256(json.dumps(params, sort_keys=True).encode()).hexdigest()[:8]
    output_folder = folder / notebook.stem / f"{file_name(params_file.stem)}-{params_digest}"
    return PlannedRun(notebook, params_file, params, output_folder, cell_tag)


def checked_plan(params_file: Path, *, folder: Path = RUNS) -> PlannedRun:
    """A run of a params file whose names, types and values are right, on a device that is here."""
    # These load torch, which executing does not need.
    from helpers.models.weights import check_device
    from helpers.values import params_of

    notebook = notebook_of(params_file)
    params = read_params(params_file, notebook)
    with chdir(REPOSITORY):
        params_of(notebook, params).check(params_file)
    try:
        check_device(params.get("device", "cpu"))
        if "results" in params:
            # Some file of the store, which is written only after a model is loaded.
            check_place(REPOSITORY / params["results"] / "settings.json")
    except UserError as error:
        raise UserError(f"{params_file}: {error}") from error
    return planned_run(params_file, params, notebook=notebook, folder=folder)


def run_files(
    params_files: Sequence[Path], *, folder: Path, workers: int, tell: Callable[[str], None]
) -> bool:
    """Execute the notebooks of params files, each in a process of its own; none stops another.

    They begin in this order, ``workers`` at a time, after all of them were checked. Returns whether all
    ended well; ``tell`` gets the lines that no process prints itself.
    """
    environments = shared_cores(workers)
    planned_runs = [checked_plan(file, folder=folder) for file in params_files]
    failed_notebooks = []
    for planned, exit_code in each_alone(_run_and_tell, planned_runs, environments):
        notebook_name = planned.notebook.stem
        if exit_code < 0:
            tell(
                f"error: {notebook_name}: its process was killed (signal {-exit_code}), maybe out of memory"
            )
        if exit_code:
            failed_notebooks.append(notebook_name)
    run_count = len(planned_runs)
    if run_count > 1:
        names_of_failed = f"; failed: {', '.join(failed_notebooks)}" if failed_notebooks else ""
        tell(
            f"{run_count - len(failed_notebooks)} of {run_count} notebooks ended well{names_of_failed}"
        )
    return not failed_notebooks


def _run_and_tell(planned: PlannedRun) -> None:
    """Execute a run in a process of its own, which prints lines and exits with 1 where a cell fails."""

    def tell(line: str) -> None:
        print(f"{planned.notebook.stem}: {line}", flush=True)

    usual_time = USUAL_TIME.search(read_text(planned.params_file))
    tell(f"started, usually {usual_time[1]}" if usual_time else "started")
    try:
        outcome = execute(planned, tell=tell)
    except RunError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        raise SystemExit(1) from error
    tell(
        f"{outcome.status} in {outcome.seconds:.0f} s -> {planned.output}, with figures and tables"
    )


def execute(planned: PlannedRun, *, tell: Callable[[str], None] = tell_nothing) -> RunOutcome:
    """Execute a checked run; ``tell`` gets lines about its progress.

    The executed notebook, its figures and tables, the effective parameters and the outcome go to its folder,
    also where a cell fails, which is a ``RunError``.
    """
    try:
        planned.output_folder.mkdir(parents=True, exist_ok=True)
        with FileLock(planned.output_folder / ".lock", blocking=False):
            remove(planned.tables)
            remove(planned.output_folder / "figures")
            (planned.output_folder / OUTCOME).unlink(missing_ok=True)
            params_yaml = yaml.safe_dump(planned.params, sort_keys=False, allow_unicode=True)
            write_whole(planned.output_folder / "params.yaml", params_yaml)
            write_for_run(
                planned.notebook, planned.params, planned.output, cell_tag=planned.cell_tag
            )
            outcome = _run_cells(planned, tell)
            write_whole(
                planned.output_folder / OUTCOME, json.dumps(asdict(outcome), ensure_ascii=False)
            )
    except Timeout as error:
        raise RunError(
            f"another run of these parameters writes to {planned.output_folder}: wait"
        ) from error
    except OSError as error:
        raise RunError(in_one_line(error)) from error
    if outcome.error:
        raise RunError(f"{planned.notebook.stem} failed, see {planned.output}\n{outcome.error}")
    return outcome


def _run_cells(planned: PlannedRun, tell: Callable[[str], None]) -> RunOutcome:
    """Execute the notebook that is written to the run's output, in place; an error is in the outcome."""
    variables = {
        "TQDM_DISABLE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HELPERS_FIGURES": str(planned.output_folder.resolve() / "figures"),
        "HELPERS_TABLES": str(planned.tables.resolve()),
        "HELPERS_TELL": "1",
    }
    started = datetime.now(UTC)
    clock_at_start = time.perf_counter()
    error = ""
    try:
        with _kernel_of_this_python() as kernel, environment(variables | kernel):
            papermill.execute_notebook(
                str(planned.output),  # the cells of this run, executed in their place
                str(planned.output),
                parameters=planned.params,
                kernel_name="python3",
                cwd=str(REPOSITORY),
                progress_bar=False,
                extra_arguments=["--log-level=ERROR"],  # else it warns that it listens here
                stderr_file=_NotebookProgress(tell),
            )
    except PapermillExecutionError as failure:  # in the kernel's words
        error = f"{failure.ename}: {failure.evalue}"
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"
    seconds = round(time.perf_counter() - clock_at_start, 1)
    status = "failed" if error else "done"
    return RunOutcome(started.isoformat(timespec="seconds"), seconds, status, error, __version__)


@contextmanager
def _kernel_of_this_python() -> Iterator[dict[str, str]]:
    """Variables under which the kernel ``python3`` is this interpreter, without a user's start-up files.

    Jupyter takes a kernel's name from the first folder that has it, and people have several.
    """
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel_spec = {"argv": command, "display_name": "Python 3", "language": "python"}
    with tempfile.TemporaryDirectory() as jupyter_folder:
        kernel_file = Path(jupyter_folder, "kernels", "python3", "kernel.json")
        kernel_file.parent.mkdir(parents=True)
        kernel_file.write_text(json.dumps(kernel_spec), "utf-8")
        search_path = jupyter_folder  # of kernels, before the user's folders
        if users_path := os.environ.get("JUPYTER_PATH"):
            search_path += os.pathsep + users_path
        yield {"JUPYTER_PATH": search_path, "IPYTHONDIR": str(Path(jupyter_folder, "ipython"))}


def write_for_run(
    notebook: Path, params: Mapping[str, Any], executed_notebook: Path, *, cell_tag: str = ""
) -> None:
    """Write the notebook as a run with all these parameters executes it, or its cells of one tag."""
    notebook_content = json.loads(notebook.read_text("utf-8"))
    cells = notebook_content["cells"]
    if cell_tag:
        cells = [cell for cell in cells if {cell_tag, "parameters"} & tags(cell)]
    if "published" in params and not params["published"]:
        cells = [cell for cell in cells if PUBLISHED not in tags(cell)]
    defaults = defaults_of(notebook)
    if any(params[name] != defaults[name] for name in params.keys() - _FOLDERS):
        cells = [cell for cell in cells if RESULTS not in tags(cell)]
        for cell in cells:  # the box of ``tools.headlines``
            if cell["cell_type"] == "markdown":
                cell["source"] = _HEADLINES.sub("", "".join(cell["source"]))
    write_whole(
        executed_notebook, json.dumps({**notebook_content, "cells": cells}, ensure_ascii=False)
    )


def tags(cell: Mapping[str, Any]) -> set[str]:
    """A notebook cell's tags."""
    return set(cell["metadata"].get("tags", []))


@dataclass
class _NotebookProgress:
    """What cells write to stderr, of which lines of progress are reported."""

    tell: Callable[[str], None]

    def write(self, text: str) -> None:
        for line in text.splitlines():
            if line.startswith(PROGRESS_PREFIX):
                self.tell(line.removeprefix(PROGRESS_PREFIX))

    def flush(self) -> None:
        pass
