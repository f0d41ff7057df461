"""What KnowGIC holds, beside the paper: Tables 4, 7, 8 and 9."""

from __future__ import annotations

import pandas as pd

from helpers.paths import PACKAGED
from helpers.results.text import published_table

_METRICS = (
    ("Efficacy", "the new object at the edit prompt", "no", "no"),
    ("Generalisation", "the new object at paraphrases", "no", "no"),
    ("Specificity", "other subjects' objects", "no", "in part: unrelated facts"),
    ("Fluency", "text that does not repeat itself", "no", "no"),
    ("Consistency", "text in line with the new object", "in part: direct only", "no"),
    ("IFR", "the old object at the end of chains", "yes", "no"),
    ("CKP", "known facts around the edited one", "no", "yes"),
)


def chain_length_table() -> pd.DataFrame:
    """Chains by length: the paper's Table 4, and the two published files.

    Returns:
        One row per source (paper, 2025-06, latest), a column per number of steps, and ``all``.
    """
    rows = published_table("thinkedit_table_4").astype({"value": int})
    table = rows.pivot(index="metric", columns="steps", values="value")
    table.index = (
        table.index.str.removeprefix("chains").str.strip().to_series().replace("", "paper")
    )
    table = table.loc[["paper", "2025-06", "latest"]].rename_axis(index="source", columns=None)
    return table.assign(all=table.sum(axis=1))


def base_questions() -> pd.DataFrame:
    """The paper's 21 facts: category, question (``[subject]`` in it: Table 8), and triplet (Table 7)."""
    return pd.read_csv(PACKAGED / "thinkedit" / "base_questions.csv")


def metric_table() -> pd.DataFrame:
    """What each metric asks, and whether it sees deduction and context (Table 9, in our words)."""
    return pd.DataFrame(_METRICS, columns=["metric", "asks for", "deduction", "context"])
