"""From a sweep file and the command line's options to a finished sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers.models.weights import memory_in_words, weights_in_words
from helpers.params import validate_params
from helpers.paths import RUNS
from helpers.sweeps.drive import plan_jobs, run_sweep, status, write_jobs
from helpers.sweeps.jobs import Engine
from helpers.sweeps.local import LocalEngine, worker_environments
from helpers.sweeps.lock import in_use, sole_use, unwritable
from helpers.sweeps.matrix import NOTEBOOK, Sweep, SweepError, expand, read_sweep
from helpers.sweeps.report import forecast, made_tables, outcome, progress
from helpers.sweeps.slurm import SlurmEngine
from helpers.values import check_values


def run_file(
    file: Path,
    *,
    engine: str | Engine = "local",
    resume: bool = False,
    dry_run: bool = False,
    workers: int | None = None,
    folder: Path | None = None,
    allow_shell: bool = False,
) -> tuple[list[str], bool]:
    """Run a sweep file, or say what it would do.

    Args:
        file: a file like those in ``params/sweeps``.
        engine: ``local``, ``slurm``, or an engine of your own.
        resume: leave out runs that ended well.
        dry_run: run and write nothing.
        workers: processes of the local engine; default: one per GPU, or one on the CPU.
        folder: for this sweep's runs; default: ``runs/sweeps/<file's name>``.
        allow_shell: run what the file has for the cluster's shell; a dry run prints it.

    Returns:
        What to print, and whether a run failed.

    Raises:
        UserError: the sweep cannot be run; the message names the file and the remedy.
    """
    sweep = read_sweep(file)
    combinations = expand(sweep, where=str(file))
    folder = folder or RUNS / "sweeps" / file.stem
    for each in combinations:
        params = validate_params(each.table.params, NOTEBOOK, where=str(file))
        check_values(file, params)
    if dry_run:
        memory = {model: _memory(model, params, engine, workers) for model in sweep.models}
        lines = forecast(status(plan_jobs(combinations, folder)), memory)
        return [*lines, *(f"runs in the cluster's shell: {text}" for text in sweep.shell)], False
    if sweep.shell and not allow_shell:
        raise SweepError(
            f"{file} has commands for the cluster's shell ({'; '.join(sweep.shell)}): read them, and"
            " allow them with --allow-shell"
        )
    chosen = _engine(engine, sweep, params["device"], workers, folder)
    with sole_use(folder):
        try:
            groups = write_jobs(combinations, folder)
        except OSError as error:
            raise unwritable(folder, error) from error
        run_sweep(groups, chosen, resume=resume)
        table = status(groups)
        told = [*outcome(table), *made_tables(groups, folder / "tables.csv")]
    return told, bool((table["state"] != "done").any())


def progress_of(file: Path, *, folder: Path | None = None) -> list[str]:
    """How far a sweep is, whether it runs just now or not; nothing is run or written.

    Raises:
        UserError: see ``run_file``.
    """
    folder = folder or RUNS / "sweeps" / file.stem
    jobs = plan_jobs(expand(read_sweep(file), where=str(file)), folder)
    if not folder.is_dir():
        return [f"{file} was never started in {folder}; start it: python -m helpers sweep {file}"]
    return list(progress(status(jobs), running=in_use(folder)))


def _memory(model: str, params: dict[str, Any], engine: str | Engine, count: int | None) -> str:
    """What a model needs; against what is free, where the runs will be on this machine."""
    dtype, device = params["dtype"], params["device"]
    if engine != "local":
        return weights_in_words(model, dtype)
    copies = 1 if device.startswith("cuda") else count or 1  # a GPU has one worker
    return memory_in_words(model, dtype, device, copies=copies)


def _engine(
    engine: str | Engine, sweep: Sweep, device: str, count: int | None, folder: Path
) -> Engine:
    if not isinstance(engine, str):
        return engine
    if engine == "slurm":
        gpu = {"gpus_per_node": 1} if device.startswith("cuda") else {}
        return SlurmEngine(folder / "slurm", {**gpu, **sweep.slurm})
    try:
        return LocalEngine(worker_environments(device, count))
    except ValueError as error:
        raise SweepError(str(error)) from error
