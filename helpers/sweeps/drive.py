"""Runs a sweep: what shards share, shards, then tables; dead workers are tried once more.

From a sweep file and the command line's options to a finished sweep, in words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from filelock import FileLock, Timeout
from tqdm import tqdm

from helpers import UserError, __version__
from helpers.execute import ROW, RunRow, record
from helpers.models.weights import memory_in_words
from helpers.params import validate_params
from helpers.paths import RUNS, write_whole, written_whole
from helpers.processes import in_words
from helpers.sweeps.engines import Engine, SlurmEngine, local_engine
from helpers.sweeps.matrix import NOTEBOOK, Group, Job, Sweep, expand, read_sweep
from helpers.values import check_values

ATTEMPTS = 2
# What ends a run from outside, by the name of the exception it shows up as, and the remedy.
FROM_OUTSIDE = {
    "DeadKernelError": "the worker or its kernel died (killed from outside, or out of memory: see the"
    " node's log); finished records are in the store. Try again with --resume, with smaller shards or on a"
    " larger machine",
    "UncompletedJobError": "the task ran into the cluster's time limit; finished records are in the store."
    " Raise timeout_min or make the shards smaller, then --resume",
}
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


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
    """Run a sweep file, or report what it would do.

    Args:
        file: a file like those in ``params/sweeps``.
        engine: ``local``, ``slurm``, or your own; ``workers`` are processes of the local one.
        resume: omit runs that ended well.
        dry_run: run and write nothing.
        folder: for this sweep's runs; default: ``runs/sweeps/<file's name>``.
        allow_shell: run what the file has for the cluster's shell; a dry run prints it.

    Returns:
        What to print, and whether a run failed.

    Raises:
        UserError: the sweep cannot be run; the message names the file and the remedy.
    """
    sweep = read_sweep(file)
    folder = folder or RUNS / "sweeps" / file.stem
    groups = expand(sweep, where=str(file), folder=folder)
    for group in groups:
        params = validate_params(group.table.params, NOTEBOOK, where=str(file))
        check_values(file, params)
    if dry_run:
        lines = [*_forecast(status(groups)), *_memory(sweep, params, engine, workers)]
        return [*lines, *(f"runs in the cluster's shell: {text}" for text in sweep.shell)], False
    if sweep.shell and not allow_shell:
        raise UserError(
            f"{file} has commands for the cluster's shell ({'; '.join(sweep.shell)}): read them, and"
            " allow them with --allow-shell"
        )
    if engine == "slurm":
        gpu = {"gpus_per_node": 1} if params["device"].startswith("cuda") else {}
        engine = SlurmEngine(folder / "slurm", {**gpu, **sweep.slurm})
    elif isinstance(engine, str):
        engine = local_engine(params["device"], workers)
    with sole_use(folder):
        run_sweep(groups, engine, resume=resume)
        table = status(groups)
        told = [*_outcome(table), *made_tables(groups, folder / "tables.csv")]
    return told, bool((table["state"] != "done").any())


def progress_of(file: Path, *, folder: Path | None = None) -> list[str]:
    """How far a sweep is, whether it runs now or not; nothing is run or written.

    Raises:
        UserError: see ``run_file``.
    """
    folder = folder or RUNS / "sweeps" / file.stem
    groups = expand(read_sweep(file), where=str(file), folder=folder)
    if not folder.is_dir():
        return [f"{file} was never started in {folder}; start it: python -m helpers sweep {file}"]
    try:
        with FileLock(folder / ".lock", blocking=False):
            running = False
    except Timeout:
        running = True
    return list(progress(status(groups), running=running))


@contextmanager
def sole_use(folder: Path) -> Iterator[None]:
    """Keep other sweeps out of a folder until the block ends, or the process, however it ends.

    Raises:
        UserError: another sweep is running in the folder, or it cannot be written.
    """
    lock = FileLock(folder / ".lock", blocking=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise UserError(
            f"another sweep is running in {folder}; wait for its end, or give this one another --folder"
        ) from error
    except OSError as error:
        raise UserError(
            f"cannot write to {folder} ({error}); free some space or give another --folder"
        ) from error
    try:
        yield
    finally:
        lock.release()


def run_sweep(groups: Sequence[Group], engine: Engine, *, resume: bool = False) -> None:
    """Run all jobs; afterwards ``status`` tells how they ended.

    Shards wait for what they share, and run without it where it fails: each then reports what is wrong. A
    table whose shards are not all done is omitted: it would make the missing edits one by one.

    Args:
        groups: from ``expand``.
        engine: what runs them.
        resume: omit runs that ended well before. Without it they run again, which is quick: records in
            the store are not computed again.
    """
    for job in (job for group in groups for job in group.jobs):
        text = yaml.safe_dump(job.params, sort_keys=False, allow_unicode=True)
        job.params_file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(job.params_file, f"# Written by python -m helpers sweep.\n{text}")
    left = [group for group in groups if not (resume and all(job.done for job in group.shards))]
    _run([job for group in left for job in group.shared], engine, resume=resume)
    _run([job for group in groups for job in group.shards], engine, resume=resume)
    ready = [group.table for group in groups if all(job.done for job in group.shards)]
    _run(ready, engine, resume=resume)


def _run(jobs: Sequence[Job], engine: Engine, *, resume: bool) -> None:
    pending = [job for job in jobs if not (resume and job.done)]
    for job in pending:
        for earlier in job.attempts:
            earlier.unlink()
    with tqdm(total=len(pending), unit="run", desc="sweep") as bar:
        for attempt in range(1, ATTEMPTS + 1):
            for job in pending:  # an earlier outcome is not the next one's
                (job.planned.output_folder / ROW).unlink(missing_ok=True)
            for job in engine(pending) if pending else ():
                bar.update(attempt == ATTEMPTS or not _died(job))
                bar.set_postfix_str(job.name)
            pending = [job for job in pending if _died(job)]
    for job in pending:
        if job.planned.row() is None:  # a killed worker could not write it
            job.planned.output_folder.mkdir(parents=True, exist_ok=True)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            places = job.notebook.stem, str(job.params_file), str(job.planned.output)
            record(
                job.planned,
                RunRow(*places, now, 0.0, "failed", "DeadKernelError", __version__),
            )


def _died(job: Job) -> bool:
    """Whether the run was ended from outside: the one failure that is worth another try."""
    row = job.planned.row()
    return row is None or row.error.partition(":")[0] in FROM_OUTSIDE


def status(groups: Sequence[Group]) -> pd.DataFrame:
    """One row per run: run, edits, state (waiting, unfinished, done, failed), attempts, seconds,
    error (what went wrong, and the remedy) and notebook (the executed one)."""
    rows = []
    for job in (job for group in groups for job in group.jobs):
        row, output, error = job.planned.row(), job.planned.output, ""
        if row:
            error = FROM_OUTSIDE.get(
                row.error.partition(":")[0], _ANSI.sub("", row.message).strip()
            )
        rows.append(
            {
                "run": job.name,
                "edits": job.edits,
                "state": row.status if row else "unfinished" if output.exists() else "waiting",
                "attempts": len(job.attempts),
                "seconds": row.seconds if row else None,
                "error": error,
                "notebook": str(output),
            }
        )
    return pd.DataFrame(rows)


def progress(table: pd.DataFrame, *, running: bool) -> Iterator[str]:
    """Lines on a sweep at any time: the runs by state, those that failed, and the time left.

    Args:
        table: of ``status``.
        running: whether a sweep is handing out these runs now.
    """
    yield _counts(table["state"])
    for row in table[table["state"] == "failed"].itertuples():
        yield f"failed: {row.run}: {str(row.error).splitlines()[0]}"
    finished, left = table[table["state"] == "done"], table[table["state"] != "done"]
    if left.empty:
        return
    yield "a sweep is running" if running else "no sweep is running; resume it with --resume"
    edits = left["edits"].sum()
    if not finished["edits"].sum():
        yield f"{edits:,d} edits left; the time left is known once a shard is done"
        return
    each = finished["seconds"].sum() / finished["edits"].sum()
    line = f"{edits:,d} edits left at {each:.1f} s: {in_words(edits * each)} for one worker"
    begun = int((left["state"] == "unfinished").sum()) if running else 0
    yield f"{line}, {in_words(edits * each / begun)} for the {begun} at work" if begun > 1 else line


def made_tables(groups: Sequence[Group], path: Path) -> Iterator[str]:
    """Lines with the table of each model and data set that is done; all of them go to a CSV file."""
    found = []
    for job in (group.table for group in groups if group.table.done):
        # "editing" is what notebook 03 calls the table of its run.
        for file in sorted(job.planned.tables.glob("*-editing.csv")):
            table = pd.read_csv(file, dtype=str, keep_default_na=False)
            yield f"\n{job.params['model']} on {job.params['dataset']}\n{table.to_string(index=False)}"
            table.insert(0, "model", job.params["model"])
            table.insert(1, "dataset", job.params["dataset"])
            found.append(table)
    if found:
        with written_whole(path) as scratch:
            pd.concat(found).to_csv(scratch, index=False)
        yield f"\nwritten to {path}"


def _forecast(table: pd.DataFrame) -> Iterator[str]:
    yield table[["run", "edits", "state"]].to_string(index=False)
    waiting = table[table["state"] != "done"]
    yield (
        f"{len(table)} runs, {table['edits'].sum():,d} edits;"
        f" not done yet: {len(waiting)} runs, {waiting['edits'].sum():,d} edits"
    )


def _memory(
    sweep: Sweep, params: dict[str, Any], engine: str | Engine, workers: int | None
) -> Iterator[str]:
    """What each model needs; compared with what is free, where the runs will be on this machine."""
    dtype, device = params["dtype"], params["device"]
    copies = 1 if device.startswith("cuda") else workers or 1  # a GPU has one worker
    for model in sweep.models:
        needed = memory_in_words(model, dtype, None)
        if engine == "local":
            needed = memory_in_words(model, dtype, device, copies=copies)
        yield f"{model}: {needed}; batches take what is free next to the weights"


def _outcome(table: pd.DataFrame) -> Iterator[str]:
    """The status table, then each failure with its reason and notebook."""
    shown = table[["run", "edits", "state", "attempts", "seconds"]].astype({"seconds": "Float64"})
    yield shown.to_string(index=False, na_rep="-")
    for row in table[table["state"] == "failed"].itertuples():
        error = str(row.error).replace("\n", "\n    ")
        yield f"failed: {row.run}: {error}\n  notebook: {row.notebook}"
    yield _counts(table["state"])


def _counts(states: pd.Series[str]) -> str:
    return ", ".join(f"{count} {state}" for state, count in states.value_counts().items())
