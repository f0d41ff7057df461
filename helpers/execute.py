"""Headless execution: a params file becomes an executed notebook, a log and a manifest row."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable
from contextlib import chdir
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import papermill
import yaml
from filelock import FileLock, Timeout
from papermill.exceptions import PapermillExecutionError

from helpers import __version__
from helpers.cell_times import CellTimes
from helpers.cells import write_for_run
from helpers.params import ParamsError, notebook_of, read_params
from helpers.paths import REPOSITORY, RUNS, file_name, in_one_line, written_whole
from helpers.processes import environment

MANIFEST = "manifest.jsonl"
ROW = "run.json"
_QUIET = {"TQDM_DISABLE": "1", "TOKENIZERS_PARALLELISM": "false"}


class RunError(RuntimeError):
    """Raised when a notebook fails; names the executed notebook, which is its own log."""


@dataclass(frozen=True)
class ManifestRow:
    """One line of ``runs/manifest.jsonl``, and the content of a run's own ``run.json``."""

    notebook: str
    params_file: str
    output: str
    started: str
    seconds: float
    status: str
    error: str
    helpers_version: str
    message: str = ""  # what a cell raised: its type and all it said; ``error`` has the traceback


@dataclass(frozen=True)
class PlannedRun:
    """A checked params file, its notebook, and the folder its executed notebook will be in.

    ``part`` is the tag of the cells that are executed; none: all (see ``helpers.cells``).
    """

    notebook: Path
    params_file: Path
    params: dict[str, Any]
    output_folder: Path
    part: str = ""

    @property
    def output(self) -> Path:
        """The executed notebook."""
        return self.output_folder / "notebook.ipynb"

    @property
    def figures(self) -> Path:
        """The folder of the figures that its notebook draws."""
        return self.output_folder / "figures"

    @property
    def tables(self) -> Path:
        """The folder of the tables that its notebook shows, as CSV files."""
        return self.output_folder / "tables"

    def row(self) -> ManifestRow | None:
        """How the run ended; None where it never did: it did not start, or was killed."""
        try:
            written = (self.output_folder / ROW).read_text(encoding="utf-8")
            return ManifestRow(**json.loads(written))
        except (OSError, ValueError, TypeError):  # not there, cut off, or of another version
            return None


def plan(params_file: Path, *, notebook: Path | None = None, folder: Path = RUNS) -> PlannedRun:
    """Check a params file; its output is ``folder/<notebook>/<params>-<hash>/``.

    Raises:
        ParamsError: the params file does not fit the notebook.
    """
    notebook = notebook or notebook_of(params_file)
    params = read_params(params_file, notebook)
    return place(params_file, params, notebook=notebook, folder=folder)


def place(params_file: Path, params: dict[str, Any], *, notebook: Path, folder: Path) -> PlannedRun:
    """``plan`` for checked parameters, whose params file need not be written yet."""
    output_folder = folder / notebook.stem / f"{file_name(params_file.stem)}-{_hash(params)}"
    return PlannedRun(notebook, params_file, params, output_folder)


def checked_plan(
    params_file: Path, *, notebook: Path | None = None, folder: Path = RUNS
) -> PlannedRun:
    """``plan``, with values checked that only the notebook's own modules and this machine can judge.

    Raises:
        ParamsError: the params file does not fit the notebook, holds wrong values, or names a device
            that is not here.
    """
    from helpers.models.load import (  # loads torch, which executing does not need
        ModelError,
        check_device,
    )
    from helpers.values import check_values

    planned = plan(params_file, notebook=notebook, folder=folder)
    with chdir(REPOSITORY):  # from where the notebook reads paths
        check_values(params_file, planned.params)
    try:
        check_device(planned.params.get("device", "cpu"))
    except ModelError as error:
        raise ParamsError(f"{params_file}: {error}") from error
    return planned


def run(
    params_file: Path,
    *,
    notebook: Path | None = None,
    folder: Path = RUNS,
    part: str = "",
) -> ManifestRow:
    """Check a params file and execute the notebook that it is for.

    Args:
        params_file: flat YAML.
        notebook: default: the one the params file's place names.
        folder: where executed notebooks go.
        part: tag of the cells to execute; default: all.

    Raises:
        ParamsError: the params file does not fit the notebook, or holds wrong values; nothing is run.
        RunError: see ``execute``.
    """
    planned = checked_plan(params_file, notebook=notebook, folder=folder)
    return execute(replace(planned, part=part), folder=folder)


def execute(
    planned: PlannedRun,
    *,
    folder: Path = RUNS,
    tell: Callable[[str], None] | None = None,
) -> ManifestRow:
    """Execute a checked run.

    The executed notebook, its figures, the effective parameters and the manifest row go to the folder
    that ``plan`` says, never over the committed figures. ``folder/manifest.jsonl`` gets the row too,
    whether the run fails or not.

    Args:
        planned: what ``checked_plan`` returns.
        tell: gets a line for each cell that takes longer than two seconds.

    Raises:
        RunError: a cell failed, and the executed notebook up to there is kept; or the folder cannot
            be written.
    """
    try:
        planned.output_folder.mkdir(parents=True, exist_ok=True)
        with FileLock(planned.output_folder / ".lock", blocking=False):
            row = _recorded(planned, folder, tell)
    except Timeout as error:
        raise RunError(
            f"another run with these parameters writes to {planned.output_folder}: wait for its end"
        ) from error
    except OSError as error:
        raise RunError(
            f"{in_one_line(error)}: finished records are in the results store, and the next run goes on"
            " from them"
        ) from error
    if row.error:
        raise RunError(
            f"{planned.notebook.stem} failed; the notebook up to there is {planned.output}\n{row.error}"
        )
    return row


def _recorded(planned: PlannedRun, folder: Path, tell: Callable[[str], None] | None) -> ManifestRow:
    """Run the notebook, and write down how that ended."""
    _prepare(planned)
    started, clock = datetime.now(UTC), time.perf_counter()
    failure = _execute(planned, CellTimes(tell) if tell else None)
    row = ManifestRow(
        notebook=planned.notebook.stem,
        params_file=str(planned.params_file),
        output=str(planned.output),
        started=started.isoformat(timespec="seconds"),
        seconds=round(time.perf_counter() - clock, 1),
        status="failed" if failure else "done",
        error=f"{type(failure).__name__}: {str(failure).strip()[-2000:]}" if failure else "",
        helpers_version=__version__,
        message=_message(failure) if failure else "",
    )
    record(planned, row, folder)
    return row


def record(planned: PlannedRun, row: ManifestRow, folder: Path) -> None:
    """Write down how a run ended, in its own folder and in the manifest."""
    line = json.dumps(asdict(row), ensure_ascii=False)
    with written_whole(planned.output_folder / ROW) as scratch:
        scratch.write_text(line + "\n", encoding="utf-8")
    with (folder / MANIFEST).open("a", encoding="utf-8") as file:
        # One write of one line: lines of two processes do not mix.
        file.write(line + "\n")


def _prepare(planned: PlannedRun) -> None:
    """The output folder with the effective parameters, and no row of an earlier run."""
    (planned.output_folder / ROW).unlink(missing_ok=True)
    for earlier in (*planned.tables.glob("*.csv"), *planned.figures.glob("*.*")):
        earlier.unlink()
    effective = yaml.safe_dump(planned.params, sort_keys=False, allow_unicode=True)
    with written_whole(planned.output_folder / "params.yaml") as scratch:
        scratch.write_text(effective, encoding="utf-8")
    write_for_run(planned.notebook, planned.params, planned.output, part=planned.part)


def _execute(planned: PlannedRun, watch: CellTimes | None) -> Exception | None:
    """Run the notebook; returns what went wrong, if anything did."""
    # papermill takes "records: int | None" for unknown and warns; the parameters are checked already.
    logging.getLogger("papermill").setLevel(logging.ERROR)
    hooks = watch.hooks() if watch else {}
    variables = {**_QUIET, **({"HELPERS_TELL": "1"} if watch else {})}
    for name, place in (("FIGURES", planned.figures), ("TABLES", planned.tables)):
        variables[f"HELPERS_{name}"] = str(place.resolve())
    as_it_is = str(planned.output).replace("{", "{{").replace("}", "}}")  # to papermill, a template
    try:
        with environment(variables):
            papermill.execute_notebook(
                as_it_is,  # the cells of this run, executed in their place
                as_it_is,
                parameters=planned.params,
                kernel_name="python3",
                cwd=str(REPOSITORY),
                progress_bar=False,
                extra_arguments=[
                    "--log-level=ERROR"
                ],  # else it warns that it listens on this machine
                **hooks,
            )
    except Exception as failure:
        return failure
    return None


def _message(failure: Exception) -> str:
    """Type and words of what went wrong; of a cell's failure, as the kernel tells them."""
    if isinstance(failure, PapermillExecutionError):
        return f"{failure.ename}: {failure.evalue}"
    return f"{type(failure).__name__}: {failure}"


def _hash(params: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(params, sort_keys=True).encode()).hexdigest()[:8]
