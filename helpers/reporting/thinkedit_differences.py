"""ThinkEdit's differences on the same edits: between methods, modes, and with APP."""

from __future__ import annotations

import pandas as pd

from helpers.metrics import thinkedit as metrics
from helpers.metrics.statistics import mean_interval
from helpers.reporting.thinkedit_tables import Evaluation, of_mode, ordered

MEASURES = ("IFR", "CKP known")


def per_edit(evaluation: Evaluation, *, mode: str) -> pd.DataFrame:
    """IFR and ``CKP known`` of every edit that has them, by (model, method, edit)."""
    keys = ["model", "method", "edit"]
    recovery = of_mode(evaluation.recovery, mode)
    overall = recovery[recovery["steps"] == metrics.OVERALL].set_index(keys)
    preservation = of_mode(evaluation.preservation, mode)
    known = preservation[preservation["kept"] > 0].set_index(keys)
    return pd.DataFrame(dict(zip(MEASURES, (overall["value"], known["value"]), strict=True)))


def difference_table(differences: pd.DataFrame) -> pd.DataFrame:
    """Means of differences of ``per_edit`` tables, such as single edits' minus the sequence's.

    Returns:
        One row per (model, method) that has any: mean difference ± half its 95 % interval, and the
        edits behind it.
    """
    rows = []
    for (model, method), part in differences.dropna(how="all").groupby(["model", "method"]):
        row = {"model": model, "method": method}
        for name in MEASURES:
            estimate = mean_interval(part[name])
            half = (estimate.high - estimate.low) / 2
            row[name] = f"{estimate.mean:+.3f} ± {half:.3f} (n={estimate.n})"
        rows.append(row)
    return ordered(pd.DataFrame(rows, columns=["model", "method", *MEASURES]))


def minus_method(values: pd.DataFrame, method: str) -> pd.DataFrame:
    """A table of ``per_edit`` minus ``method``'s values of the same edits, without its own rows.

    Empty where the method was not run.
    """
    if method not in values.index.unique("method"):
        return values[:0]
    own = values.xs(method, level="method")
    rest = values.drop(index=method, level="method")
    base = own.reindex(rest.reset_index("method").index)
    return rest - base.to_numpy()
