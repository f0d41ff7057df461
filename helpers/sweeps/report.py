"""A sweep in words: what it will do, and how its runs ended."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from helpers.runs.estimate import weight_bytes
from helpers.sweeps.matrix import Sweep

_COLUMNS = ["run", "edits", "state", "attempts", "seconds"]


def forecast(table: pd.DataFrame, sweep: Sweep, dtype: str) -> Iterator[str]:
    """Lines for a dry run: the runs, the edits in all, and the memory each model needs."""
    yield table[["run", "edits", "state"]].to_string(index=False)
    waiting = table[table["state"] != "done"]
    yield (
        f"{len(table)} runs, {table['edits'].sum():,d} edits;"
        f" not done yet: {len(waiting)} runs, {waiting['edits'].sum():,d} edits"
    )
    for model in sweep.models:
        size = weight_bytes(model, dtype)
        known = f"{size / 2**30:.1f} GiB" if size is not None else "unknown until it is fetched"
        yield f"{model}: weights in {dtype} {known}; batches take what is free beside them"


def outcome(table: pd.DataFrame) -> Iterator[str]:
    """Lines after a sweep: the status table, then each failure with its reason and notebook."""
    shown = table[_COLUMNS].astype({"seconds": "Float64"})
    yield shown.to_string(index=False, na_rep="-")
    for row in table[table["state"] == "failed"].itertuples():
        error = str(row.error).replace("\n", "\n    ")
        yield f"failed: {row.run}: {error}\n  notebook: {row.notebook}"
    counts = table["state"].value_counts()
    yield ", ".join(f"{count} {state}" for state, count in counts.items())
