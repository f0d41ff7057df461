"""Runs a sweep file: what shards share, shards, then tables; and reports how far it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import yaml
from filelock import FileLock, Timeout
from tqdm import tqdm

from helpers import UserError
from helpers.doctor import Finding, Kind, needs_of
from helpers.execute import ROW
from helpers.paths import RUNS, write_whole, written_whole
from helpers.processes import span_in_words
from helpers.sweeps.engines import Engine, local_engine, slurm_engine
from helpers.sweeps.matrix import Group, Job, expand, read_sweep
from helpers.values import params_of

_AFTER_A_KILL = (
    "killed runs keep finished records: try again with --resume,"
    " and smaller shards, more memory or a higher timeout_min"
)


def run_file(
    file: Path,
    *,
    engine: str = "local",
    resume: bool = False,
    dry_run: bool = False,
    workers: int | None = None,
    folder: Path | None = None,
    allow_shell: bool = False,
) -> tuple[list[str], bool]:
    """Run a sweep file; returns the lines to print, and whether a run is not done.

    Args:
        engine: ``local`` or ``slurm``.
        resume: runs that are done are omitted.
        dry_run: the runs are planned and what they need is listed; nothing is run or downloaded.
        workers: processes at a time on this machine; None: one for each GPU, or one.
        folder: for all that the runs write; None: ``runs/sweeps/<file's name>``.
        allow_shell: the file's own commands for a cluster's shell may run.
    """
    sweep = read_sweep(file)
    folder = folder or RUNS / "sweeps" / file.stem
    groups = expand(sweep, source=str(file), folder=folder, download=not dry_run)
    if dry_run:
        needs = list(_lines_of_needs(file, groups, engine, workers))
        shell_lines = [f"runs in the cluster's shell: {text}" for text in sweep.shell]
        return [*status_lines(status(groups)), *needs, *shell_lines], False
    for group in groups:
        run = group.table.run
        for editor in sweep.editors:  # each is a run of its own
            params_of(run.notebook, {**run.params, "methods": [editor]}).check(file)
    device = groups[0].table.run.params["device"]
    if sweep.shell and not allow_shell:
        raise UserError(
            f"{file} has commands for a cluster's shell ({'; '.join(sweep.shell)}): read them,"
            " then --allow-shell"
        )
    if engine == "slurm":
        gpu_option = {"gpus_per_node": 1} if device.startswith("cuda") else {}
        chosen_engine = slurm_engine(folder / "slurm", {**gpu_option, **sweep.slurm})
    else:
        chosen_engine = local_engine(device, workers)
    with sole_use(folder):
        run_sweep(groups, chosen_engine, resume=resume)
        table = status(groups)
        lines = [*status_lines(table), *merged_tables(groups, folder / "tables.csv")]
    return lines, bool((table["state"] != "done").any())


def _lines_of_needs(
    file: Path, groups: Sequence[Group], engine: str, workers: int | None
) -> Iterator[str]:
    """What the doctor finds about the runs, each once; a ``UserError`` for what can run nowhere."""
    here = engine == "local"
    findings: list[Finding] = []
    for group in groups:
        run = group.table.run
        on_gpu = run.params["device"].startswith("cuda")
        copies = 1 if on_gpu else workers or 1  # of the model on one device
        params = params_of(run.notebook, run.params)
        findings += needs_of(params, here=here, copies=copies)
    distinct_findings = list(dict.fromkeys(findings))
    wrong = [finding.text for finding in distinct_findings if finding.kind is Kind.WRONG]
    if wrong:
        raise UserError(f"{file}: " + "; ".join(wrong))
    for finding in distinct_findings:
        # A plan may be for another machine: what this one lacks does not refuse it.
        yield f"before it can run here: {finding.text}" if finding.is_problem else str(finding)


def progress_of(file: Path, *, folder: Path | None = None) -> list[str]:
    """Lines about how far a sweep is, and whether it runs now; nothing is run or written."""
    folder = folder or RUNS / "sweeps" / file.stem
    groups = expand(read_sweep(file), source=str(file), folder=folder, download=False)
    if not folder.is_dir():
        return [f"{file} was never started in {folder}; start it: python -m helpers sweep {file}"]
    try:
        with sole_use(folder):
            state = "no sweep is running; resume it with --resume"
    except UserError:
        state = "a sweep is running"
    return [*status_lines(status(groups)), state]


@contextmanager
def sole_use(folder: Path) -> Iterator[None]:
    """Keep other sweeps out of a folder until the block, or the process, ends."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", blocking=False):
            yield
    except Timeout as error:
        raise UserError(
            f"another sweep is running in {folder}; wait, or choose another --folder"
        ) from error


def run_sweep(groups: Sequence[Group], engine: Engine, *, resume: bool = False) -> None:
    """Run all jobs; afterwards ``status`` tells how they ended.

    Shards wait for what they share, and run without it where it fails: each then reports what is wrong. A
    table whose shards are not all done is omitted: it would make the missing edits one by one. Without
    ``resume`` finished runs run again, which is quick: records in the store are not computed again.
    """
    for job in _jobs_of(groups):
        text = yaml.safe_dump(job.run.params, sort_keys=False, allow_unicode=True)
        job.run.params_file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(job.run.params_file, f"# Written by python -m helpers sweep.\n{text}")

    def run(jobs: Sequence[Job]) -> None:
        pending = [job for job in jobs if not (resume and job.done)]
        for job in pending:  # an earlier outcome is not this one's
            (job.run.output_folder / ROW).unlink(missing_ok=True)
            job.run.output.unlink(missing_ok=True)
        for _ in tqdm(engine(pending), total=len(pending), unit="run", desc="sweep"):
            pass

    def shards_are_done(group: Group) -> bool:
        return all(job.done for job in group.shards)

    unfinished = [group for group in groups if not (resume and shards_are_done(group))]
    run([job for group in unfinished for job in group.shared])
    run([job for group in groups for job in group.shards])
    run([group.table for group in groups if shards_are_done(group)])


def _jobs_of(groups: Sequence[Group]) -> list[Job]:
    return [job for group in groups for job in group.jobs]


def status(groups: Sequence[Group]) -> pd.DataFrame:
    """How each run is doing, a row a run.

    Columns: run, edits, state (waiting, unfinished, done, failed), seconds, error (what went wrong) and
    notebook (the executed one).
    """
    rows = []
    for job in _jobs_of(groups):
        notebook = job.run.output
        seconds: float | None = None
        error = ""
        if row := job.run.row():
            state = row.status
            seconds = row.seconds
            error = row.error
        else:
            state = "unfinished" if notebook.exists() else "waiting"
        rows.append((job.name, job.edits, state, seconds, error, str(notebook)))
    return pd.DataFrame(rows, columns=["run", "edits", "state", "seconds", "error", "notebook"])


def status_lines(table: pd.DataFrame) -> Iterator[str]:
    """The table of ``status``, each failure with its reason and notebook, and what is left."""
    shown = table[["run", "edits", "state", "seconds"]].astype({"seconds": float})
    yield shown.to_string(index=False, na_rep="-")
    for row in table[table["state"] == "failed"].itertuples():
        error = str(row.error).replace("\n", "\n    ")
        yield f"failed: {row.run}: {error}\n  notebook: {row.notebook}"
    was_killed = table["error"].str.startswith("DeadKernelError")
    if (was_killed | (table["state"] == "unfinished")).any():
        yield _AFTER_A_KILL
    counts = table["state"].value_counts()
    yield f"{len(table)} runs: " + ", ".join(f"{count} {state}" for state, count in counts.items())
    done_runs = table[table["state"] == "done"]
    edits_done = done_runs["edits"].sum()
    edits_left = table["edits"].sum() - edits_done
    last_line = f"{edits_left:,d} of {table['edits'].sum():,d} edits left"
    seconds_per_edit = done_runs["seconds"].sum() / max(1, edits_done)
    if edits_left and seconds_per_edit:
        time_left = span_in_words(edits_left * seconds_per_edit)
        last_line += f" at {seconds_per_edit:.1f} s: {time_left} for one worker"
    yield last_line


def merged_tables(groups: Sequence[Group], path: Path) -> Iterator[str]:
    """Lines with the table of each model and data set that is done; all of them go to a CSV file."""
    tables = []
    for group in groups:
        if not group.table.done:
            continue
        run = group.table.run
        model_name = run.params["model"]
        dataset = run.params["dataset"]
        # "editing" is what notebook 03 calls the table of its run.
        for file in sorted(run.tables.glob("*-editing.csv")):
            table = pd.read_csv(file, dtype=str, keep_default_na=False)
            yield f"\n{model_name} on {dataset}\n{table.to_string(index=False)}"
            table.insert(0, "model", model_name)
            table.insert(1, "dataset", dataset)
            tables.append(table)
    if tables:
        with written_whole(path) as scratch:
            pd.concat(tables).to_csv(scratch, index=False)
        yield f"\nwritten to {path}"
