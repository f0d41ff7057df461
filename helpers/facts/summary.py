"""What edits of many facts did on average: each measure with its interval, next to that of a placebo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from helpers.facts.answers import FACT_MEASURES
from helpers.results.notes import ShownTable, with_note, with_relations
from helpers.results.statistics import interval
from helpers.results.text import in_points

_NOTE = (
    "means in percent with 95 % intervals; a relation is a prompt; what was known before has no efficacy;"
    " placebo: each fact under the same editor's edit of another fact"
)


def summary_table(prompts: Sequence[str], tables: Mapping[str, pd.DataFrame]) -> ShownTable:
    """Means over facts in percent with their intervals, a row for each table that has rows.

    Facts of one of the ``prompts`` are alike: they are the relations of *docs/statistics.md*.
    """
    relations = pd.Index(prompts, name="relation")
    rows = {}
    samples: list[pd.Series] = []
    for name, table in tables.items():
        if table.empty:
            continue
        row: dict[str, object] = {"facts": len(table)}
        row["written"] = int((table["outcome"] == "written").sum())
        for measure, kind in FACT_MEASURES.items():
            if measure in table:
                values = pd.Series(table[measure].to_numpy(dtype=float), index=relations)
                estimate = interval(values, kind)
                row[measure] = f"{in_points(estimate)} (n={estimate.n})"
                samples.append(values)
        rows[name] = row
    summary = pd.DataFrame.from_dict(rows, orient="index").rename_axis("editor").astype(object)
    return with_note(with_relations(summary.where(summary.notna(), "–"), samples), _NOTE)
