"""A sweep in words: what it will do, and how its runs ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

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


def outcome(table: pd.DataFrame) -> Iterator[str]:
    """Lines after a sweep: the status table, then each failure with its reason and notebook."""
    shown = table[_COLUMNS].astype({"seconds": "Float64"})
    yield shown.to_string(index=False, na_rep="-")
    for row in table[table["state"] == "failed"].itertuples():
        error = str(row.error).replace("\n", "\n    ")
        yield f"failed: {row.run}: {error}\n  notebook: {row.notebook}"
    counts = table["state"].value_counts()
    yield ", ".join(f"{count} {state}" for state, count in counts.items())
