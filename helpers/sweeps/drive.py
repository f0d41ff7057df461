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
from helpers.execute import OUTCOME
from helpers.paths import RUNS, write_whole, written_whole
from helpers.processes import span_in_words
from helpers.sweeps.engines import Engine, local_engine, slurm_engine
from helpers.sweeps.matrix import Job, JobGroup, expand, read_sweep
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
    job_groups = expand(sweep, source=str(file), folder=folder, download=not dry_run)
    if dry_run:
        lines_of_needs = list(_lines_of_needs(file, job_groups, engine, workers))
        shell_lines = [
            f"runs in the cluster's shell: {shell_command}" for shell_command in sweep.shell
        ]
        return [*status_lines(status(job_groups)), *lines_of_needs, *shell_lines], False
    for job_group in job_groups:
        run = job_group.table_job.run
        for editor in sweep.editors:  # each is a run of its own
            params_of(run.notebook, {**run.params, "methods": [editor]}).check(file)
    device = job_groups[0].table_job.run.params["device"]
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
        run_sweep(job_groups, chosen_engine, resume=resume)
        states = status(job_groups)
        lines = [*status_lines(states), *merged_tables(job_groups, folder / "tables.csv")]
    return lines, bool((states["state"] != "done").any())


def _lines_of_needs(
    file: Path, job_groups: Sequence[JobGroup], engine: str, workers: int | None
) -> Iterator[str]:
    """What the doctor finds about the runs, each once; a ``UserError`` for what can run nowhere."""
    runs_here = engine == "local"
    findings: list[Finding] = []
    for job_group in job_groups:
        run = job_group.table_job.run
        on_gpu = run.params["device"].startswith("cuda")
        copies_of_model = 1 if on_gpu else workers or 1  # of the model on one device
        params = params_of(run.notebook, run.params)
        findings += needs_of(params, here=runs_here, copies=copies_of_model)
    distinct_findings = list(dict.fromkeys(findings))
    texts_of_wrong = [finding.text for finding in distinct_findings if finding.kind is Kind.WRONG]
    if texts_of_wrong:
        raise UserError(f"{file}: " + "; ".join(texts_of_wrong))
    for finding in distinct_findings:
        # A plan may be for another machine: what this one lacks does not refuse it.
        yield f"before it can run here: {finding.text}" if finding.is_problem else str(finding)


def progress_of(file: Path, *, folder: Path | None = None) -> list[str]:
    """Lines about how far a sweep is, and whether it runs now; nothing is run or written."""
    folder = folder or RUNS / "sweeps" / file.stem
    job_groups = expand(read_sweep(file), source=str(file), folder=folder, download=False)
    if not folder.is_dir():
        return [f"{file} was never started in {folder}; start it: python -m helpers sweep {file}"]
    try:
        with sole_use(folder):
            activity = "no sweep is running; resume it with --resume"
    except UserError:
        activity = "a sweep is running"
    return [*status_lines(status(job_groups)), activity]


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


def run_sweep(job_groups: Sequence[JobGroup], engine: Engine, *, resume: bool = False) -> None:
    """Run all jobs; afterwards ``status`` tells how they ended.

    Shards wait for what they share, and run without it where it fails: each then reports what is wrong. A
    table whose shards are not all done is omitted: it would make the missing edits one by one. Without
    ``resume`` finished runs run again, which is quick: records in the store are not computed again.
    """
    for job in _jobs_of(job_groups):
        params_yaml = yaml.safe_dump(job.run.params, sort_keys=False, allow_unicode=True)
        job.run.params_file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(job.run.params_file, f"# Written by python -m helpers sweep.\n{params_yaml}")

    def run_jobs(jobs_of_stage: Sequence[Job]) -> None:
        pending = [job for job in jobs_of_stage if not (resume and job.done)]
        for job in pending:  # an earlier outcome is not this one's
            (job.run.output_folder / OUTCOME).unlink(missing_ok=True)
            job.run.output.unlink(missing_ok=True)
        for _ in tqdm(engine(pending), total=len(pending), unit="run", desc="sweep"):
            pass

    def shards_are_done(job_group: JobGroup) -> bool:
        return all(job.done for job in job_group.shard_jobs)

    unfinished = [
        job_group for job_group in job_groups if not (resume and shards_are_done(job_group))
    ]
    run_jobs([job for job_group in unfinished for job in job_group.shared_jobs])
    run_jobs([job for job_group in job_groups for job in job_group.shard_jobs])
    run_jobs([job_group.table_job for job_group in job_groups if shards_are_done(job_group)])


def _jobs_of(job_groups: Sequence[JobGroup]) -> list[Job]:
    return [job for job_group in job_groups for job in job_group.jobs]


def status(job_groups: Sequence[JobGroup]) -> pd.DataFrame:
    """How each run is doing, a row a run.

    Columns: run, edits, state (waiting, unfinished, done, failed), seconds, error (what went wrong) and
    notebook (the executed one).
    """
    rows_of_jobs = []
    for job in _jobs_of(job_groups):
        executed_notebook = job.run.output
        seconds: float | None = None
        error = ""
        if outcome := job.run.outcome():
            state = outcome.status
            seconds = outcome.seconds
            error = outcome.error
        else:
            state = "unfinished" if executed_notebook.exists() else "waiting"
        rows_of_jobs.append((job.name, job.edits, state, seconds, error, str(executed_notebook)))
    return pd.DataFrame(
        rows_of_jobs, columns=["run", "edits", "state", "seconds", "error", "notebook"]
    )


def status_lines(states: pd.DataFrame) -> Iterator[str]:
    """The table of ``status``, each failure with its reason and notebook, and what is left."""
    shown_columns = states[["run", "edits", "state", "seconds"]].astype({"seconds": float})
    yield shown_columns.to_string(index=False, na_rep="-")
    for failed_run in states[states["state"] == "failed"].itertuples():
        indented_error = str(failed_run.error).replace("\n", "\n    ")
        yield f"failed: {failed_run.run}: {indented_error}\n  notebook: {failed_run.notebook}"
    was_killed = states["error"].str.startswith("DeadKernelError")
    if (was_killed | (states["state"] == "unfinished")).any():
        yield _AFTER_A_KILL
    runs_by_state = states["state"].value_counts()
    yield f"{len(states)} runs: " + ", ".join(
        f"{count} {state}" for state, count in runs_by_state.items()
    )
    done_runs = states[states["state"] == "done"]
    edits_done = done_runs["edits"].sum()
    edits_left = states["edits"].sum() - edits_done
    last_line = f"{edits_left:,d} of {states['edits'].sum():,d} edits left"
    seconds_per_edit = done_runs["seconds"].sum() / max(1, edits_done)
    if edits_left and seconds_per_edit:
        time_left = span_in_words(edits_left * seconds_per_edit)
        last_line += f" at {seconds_per_edit:.1f} s: {time_left} for one worker"
    yield last_line


def merged_tables(job_groups: Sequence[JobGroup], csv_file: Path) -> Iterator[str]:
    """Lines with the table of each model and data set that is done; all of them go to a CSV file."""
    editing_tables = []
    for job_group in job_groups:
        if not job_group.table_job.done:
            continue
        table_run = job_group.table_job.run
        model_name = table_run.params["model"]
        dataset = table_run.params["dataset"]
        # "editing" is what notebook 03 calls the table of its run.
        for table_file in sorted(table_run.tables.glob("*-editing.csv")):
            editing_table = pd.read_csv(table_file, dtype=str, keep_default_na=False)
            yield f"\n{model_name} on {dataset}\n{editing_table.to_string(index=False)}"
            editing_table.insert(0, "model", model_name)
            editing_table.insert(1, "dataset", dataset)
            editing_tables.append(editing_table)
    if editing_tables:
        with written_whole(csv_file) as scratch:
            pd.concat(editing_tables).to_csv(scratch, index=False)
        yield f"\nwritten to {csv_file}"
