"""A sweep in words: what it will do, how far it is, how its runs ended, and what they made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from helpers.paths import written_whole
from helpers.processes import in_words
from helpers.sweeps.drive import Group
from helpers.sweeps.jobs import TABLE, done

_COLUMNS = ["run", "edits", "state", "attempts", "seconds"]


def forecast(table: pd.DataFrame, memory: Mapping[str, str]) -> Iterator[str]:
    """Lines for a dry run: the runs, the edits in all, and in words the memory each model needs."""
    yield table[["run", "edits", "state"]].to_string(index=False)
    waiting = table[table["state"] != "done"]
    yield (
        f"{len(table)} runs, {table['edits'].sum():,d} edits;"
        f" not done yet: {len(waiting)} runs, {waiting['edits'].sum():,d} edits"
    )
    for model, needed in memory.items():
        yield f"{model}: {needed}; batches take what is free beside the weights"


def progress(table: pd.DataFrame, *, running: bool) -> Iterator[str]:
    """Lines on a sweep at any time: the runs by state, those that failed, and the time left.

    Args:
        table: of ``drive.status``.
        running: whether a sweep is handing out these runs now.
    """
    yield _counts(table["state"])
    for row in table[table["state"] == "failed"].itertuples():
        yield f"failed: {row.run}: {str(row.error).splitlines()[0]}"
    finished, left = table[table["state"] == "done"], table[table["state"] != "done"]
    if left.empty:
        return
    yield "a sweep is running" if running else "no sweep is running; go on with --resume"
    edits = left["edits"].sum()
    if not finished["edits"].sum():
        yield f"{edits:,d} edits left; the time left can be told once a shard is done"
        return
    each = finished["seconds"].sum() / finished["edits"].sum()
    line = f"{edits:,d} edits left at {each:.1f} s: {in_words(edits * each)} for one worker"
    begun = int((left["state"] == "unfinished").sum()) if running else 0
    yield f"{line}, {in_words(edits * each / begun)} for the {begun} at work" if begun > 1 else line


def outcome(table: pd.DataFrame) -> Iterator[str]:
    """Lines after a sweep: the status table, then each failure with its reason and notebook."""
    shown = table[_COLUMNS].astype({"seconds": "Float64"})
    yield shown.to_string(index=False, na_rep="-")
    for row in table[table["state"] == "failed"].itertuples():
        error = str(row.error).replace("\n", "\n    ")
        yield f"failed: {row.run}: {error}\n  notebook: {row.notebook}"
    yield _counts(table["state"])


def made_tables(groups: Sequence[Group], path: Path) -> Iterator[str]:
    """Lines with the table of each model and data set that is done; all of them go to a CSV file."""
    found = []
    for job in (group.table for group in groups if done(group.table)):
        for file in sorted(job.planned().tables.glob(f"*-{TABLE}.csv")):
            table = pd.read_csv(file, dtype=str, keep_default_na=False)
            yield f"\n{job.params['model']} on {job.params['dataset']}\n{table.to_string(index=False)}"
            table.insert(0, "model", job.params["model"])
            table.insert(1, "dataset", job.params["dataset"])
            found.append(table)
    if found:
        with written_whole(path) as scratch:
            pd.concat(found).to_csv(scratch, index=False)
        yield f"\nwritten to {path}"


def _counts(states: pd.Series[str]) -> str:
    return ", ".join(f"{count} {state}" for state, count in states.value_counts().items())
