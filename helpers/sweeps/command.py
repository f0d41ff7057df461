"""From a sweep file and the command line's options to a finished sweep."""

from __future__ import annotations

from pathlib import Path

from helpers.data.fetch import FetchError
from helpers.data.peak_record import RecordError
from helpers.paths import RUNS
from helpers.runs.methods import MethodError
from helpers.runs.params import ParamsError, validate_params
from helpers.sweeps.drive import run_sweep, status, write_jobs
from helpers.sweeps.jobs import Engine
from helpers.sweeps.local import LocalEngine, worker_environments
from helpers.sweeps.matrix import NOTEBOOK, Sweep, SweepError, expand, read_sweep
from helpers.sweeps.report import forecast, outcome
from helpers.sweeps.slurm import SlurmEngine, SlurmError

ERRORS = (SweepError, ParamsError, MethodError, RecordError, FetchError, SlurmError)


def run_file(
    file: Path,
    *,
    engine: str = "local",
    resume: bool = False,
    dry_run: bool = False,
    workers: int | None = None,
    folder: Path | None = None,
) -> tuple[list[str], bool]:
    """Run a sweep file, or say what it would do.

    Args:
        file: a file like those in ``params/sweeps``.
        engine: ``local`` or ``slurm``.
        resume: leave out runs that ended well.
        dry_run: run nothing.
        workers: processes of the local engine; default: one per GPU, or one on the CPU.
        folder: for this sweep's runs; default: ``runs/sweeps/<file's name>``.

    Returns:
        What to print, and whether a run failed.

    Raises:
        SweepError, ParamsError, MethodError, RecordError, FetchError, SlurmError: the sweep cannot be
            run; the message names the file and the remedy.
    """
    sweep = read_sweep(file)
    combinations = expand(sweep, where=str(file))
    folder = folder or RUNS / "sweeps" / file.stem
    params = validate_params(combinations[0].table.params, NOTEBOOK, where=str(file))
    try:
        groups = write_jobs(combinations, folder)
    except OSError as error:
        raise SweepError(
            f"cannot write to {folder} ({error}); free some space or give another --folder"
        ) from error
    if dry_run:
        return list(forecast(status(groups), sweep, params["dtype"])), False
    run_sweep(groups, _engine(engine, sweep, params["device"], workers, folder), resume=resume)
    table = status(groups)
    return list(outcome(table)), bool((table["state"] != "done").any())


def _engine(name: str, sweep: Sweep, device: str, count: int | None, folder: Path) -> Engine:
    if name == "slurm":
        gpu = {"gpus_per_node": 1} if device.startswith("cuda") else {}
        return SlurmEngine(folder / "slurm", {**gpu, **sweep.slurm})
    try:
        return LocalEngine(worker_environments(device, count))
    except ValueError as error:
        raise SweepError(str(error)) from error
