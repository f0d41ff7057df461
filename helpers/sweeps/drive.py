"""Runs a sweep: shards first, then tables; dead workers are tried once more; what is done stays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from helpers.sweeps.jobs import (
    Engine,
    Job,
    attempts,
    died,
    done,
    forget,
    reason,
    record_death,
    set_aside,
    write_params,
)
from helpers.sweeps.matrix import NOTEBOOK, Combination, Run

ATTEMPTS = 2


@dataclass(frozen=True)
class Group:
    """The jobs of one model and data set; ``table`` runs once all its shards are done."""

    shards: tuple[Job, ...]
    table: Job


def write_jobs(
    combinations: Iterable[Combination], folder: Path, *, notebook: Path = NOTEBOOK
) -> list[Group]:
    """The jobs of ``plan_jobs``, their params files written.

    Raises:
        OSError: the folder cannot be written.
    """
    groups = plan_jobs(combinations, folder, notebook=notebook)
    for job in (job for group in groups for job in (*group.shards, group.table)):
        write_params(job)
    return groups


def plan_jobs(
    combinations: Iterable[Combination], folder: Path, *, notebook: Path = NOTEBOOK
) -> list[Group]:
    """One job per run, with everything of its own below ``folder``; nothing is written."""

    def job(run: Run) -> Job:
        return Job(run.name, run.params, notebook, folder, run.edits)

    return [Group(tuple(map(job, each.shards)), job(each.table)) for each in combinations]


def run_sweep(groups: Sequence[Group], engine: Engine, *, resume: bool = False) -> None:
    """Run all jobs; afterwards ``status`` says how they ended.

    A table whose shards are not all done is left out: it would make the missing edits one by one.

    Args:
        groups: from ``write_jobs``.
        engine: what runs them.
        resume: leave out runs that ended well before. Without it they run again, which is quick:
            records in the store are not computed again.
    """
    _run([job for group in groups for job in group.shards], engine, resume=resume)
    ready = [group.table for group in groups if all(map(done, group.shards))]
    _run(ready, engine, resume=resume)


def _run(jobs: Sequence[Job], engine: Engine, *, resume: bool) -> None:
    pending = [job for job in jobs if not (resume and done(job))]
    for job in pending:
        forget(job)
    with tqdm(total=len(pending), unit="run", desc="sweep") as bar:
        for attempt in range(ATTEMPTS):
            if attempt:
                for job in pending:
                    forget(job)
                    set_aside(job)
            for job in engine(pending) if pending else ():
                bar.update(attempt == ATTEMPTS - 1 or not died(job))
                bar.set_postfix_str(job.name)
            pending = [job for job in pending if died(job)]
    for job in pending:
        record_death(job)


def status(groups: Sequence[Group]) -> pd.DataFrame:
    """One row per run: run, edits, state (waiting, unfinished, done, failed), attempts, seconds,
    error (what went wrong, and the remedy) and notebook (the executed one)."""
    rows = []
    for job in (job for group in groups for job in (*group.shards, group.table)):
        planned = job.planned()
        row = planned.row()
        begun = "unfinished" if planned.output.exists() else "waiting"
        rows.append(
            {
                "run": job.name,
                "edits": job.edits,
                "state": row.status if row else begun,
                "attempts": attempts(job),
                "seconds": row.seconds if row else None,
                "error": reason(row) if row else "",
                "notebook": str(planned.output),
            }
        )
    return pd.DataFrame(rows)
