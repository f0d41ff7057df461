"""Runs a sweep: what shards share, shards, then tables; dead workers are tried once more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from helpers.execute import SHARED, has_part
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
    """The jobs of one model and data set.

    ``shared`` makes what all shards need, before the first of them runs; None where there is one shard
    only, or nothing is shared. ``table`` runs once all shards are done.
    """

    shards: tuple[Job, ...]
    table: Job
    shared: Job | None = None

    @property
    def jobs(self) -> tuple[Job, ...]:
        """All of them, in the order of their stages."""
        return (*((self.shared,) if self.shared else ()), *self.shards, self.table)


def write_jobs(
    combinations: Iterable[Combination], folder: Path, *, notebook: Path = NOTEBOOK
) -> list[Group]:
    """The jobs of ``plan_jobs``, their params files written.

    Raises:
        OSError: the folder cannot be written.
    """
    groups = plan_jobs(combinations, folder, notebook=notebook)
    for job in (job for group in groups for job in group.jobs):
        write_params(job)
    return groups


def plan_jobs(
    combinations: Iterable[Combination], folder: Path, *, notebook: Path = NOTEBOOK
) -> list[Group]:
    """One job per run, with everything of its own below ``folder``; nothing is written."""
    with_shared = has_part(notebook, SHARED)

    def job(run: Run) -> Job:
        return Job(run.name, run.params, notebook, folder, run.edits)

    def group(each: Combination) -> Group:
        table, shared = job(each.table), None
        if with_shared and len(each.shards) > 1:
            shared = replace(table, name=f"{table.name.removesuffix('table')}{SHARED}", part=SHARED)
        return Group(tuple(map(job, each.shards)), table, shared)

    return [group(each) for each in combinations]


def run_sweep(groups: Sequence[Group], engine: Engine, *, resume: bool = False) -> None:
    """Run all jobs; afterwards ``status`` says how they ended.

    Shards wait for what they share, and run without it where it fails: each says then what is wrong. A
    table whose shards are not all done is left out: it would make the missing edits one by one.

    Args:
        groups: from ``write_jobs``.
        engine: what runs them.
        resume: leave out runs that ended well before. Without it they run again, which is quick:
            records in the store are not computed again.
    """
    ahead = [group.shared for group in groups if group.shared and not _all_done(group, resume)]
    _run(ahead, engine, resume=resume)
    _run([job for group in groups for job in group.shards], engine, resume=resume)
    ready = [group.table for group in groups if all(map(done, group.shards))]
    _run(ready, engine, resume=resume)


def _all_done(group: Group, resume: bool) -> bool:
    return resume and all(map(done, group.shards))


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
    for job in (job for group in groups for job in group.jobs):
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
