"""What edits do to general abilities: perplexity of two texts, and right answers to questions about facts.

With s the mean log-probability of tokens, perplexity is exp(-s), and the answer with the highest s counts.
The exam itself: ``exam_run``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from helpers.peak.metrics import KEYS
from helpers.results.archive import Run, TableKey
from helpers.results.statistics import Contrast, Estimate, mean_interval, paired
from helpers.results.text import in_points, with_interval

EXAM_TEXTS = ("austen", "carroll")
ABILITY = "ability"  # the kind of the exam's stored tables, and their modes
ALONE = "alone"
IN_SEQUENCE = "in sequence"


def ability_table(run: Run) -> pd.DataFrame:
    """Before → after, by state: perplexity (geometric mean) and right answers.

    Intervals of edits made alone are over the edited records' relations. After a sequence of edits there is
    one edited model: its intervals are over the parts of the exam.
    """
    rows = {}
    for key in run.keys:
        if key.kind == ABILITY:
            means = mean_scores(run, key)
            row: dict[str, str] = {}
            for text in EXAM_TEXTS:
                row |= perplexity_cells(text, pd.DataFrame(means.xs(text, level="role")))
            row |= right_answer_cells(pd.DataFrame(means.xs("facts", level="role")))
            state = str(replace(key, kind=""))  # such as "rome, in sequence: 10"
            rows[state] = row
    return pd.DataFrame.from_dict(rows, orient="index")


def mean_scores(run: Run, key: TableKey) -> pd.DataFrame:
    """Mean log-probability of each answer's tokens, columns ``before`` and ``after``.

    The index has ``KEYS``, and the record's relation where that is the unit: of edits made alone.
    """
    stored = run.tables[str(key)]
    relations = stored["case_id"].astype(str).map(run.about.caption.get("relations", {}))
    levels = list(KEYS)
    if key.mode == ALONE and relations.notna().all():
        levels.append("relation")
    scores = stored.assign(relation=relations).set_index(levels)
    tokens = scores["tokens"].astype(float)
    sums = {"before": scores["sum_before"], "after": scores["sum_after"]}
    return pd.DataFrame({moment: sums[moment].astype(float) / tokens for moment in sums})


def perplexity_cells(text: str, means: pd.DataFrame) -> dict[str, str]:
    """Perplexity of a text's passages before → after, and the ratio with its interval."""
    before, after = -means["before"], -means["after"]
    return {
        f"perplexity, {text}": f"{np.exp(before.mean()):.1f} → {np.exp(after.mean()):.1f}",
        f"ratio, {text}": with_interval(perplexity_ratio(means), digits=3),
    }


def perplexity_ratio(means: pd.DataFrame) -> Estimate:
    """Perplexity of passages after edits, divided by that before."""
    change = mean_interval(means["before"] - means["after"])
    mean, low, high = np.exp([change.mean, change.low, change.high])
    return Estimate(float(mean), float(low), float(high), change.n)


def right_answer_cells(means: pd.DataFrame) -> dict[str, str]:
    """Percent of the questions whose first answer has the highest score, before → after, and the change."""
    before, after = (right_answer_shares(means, moment).mean() for moment in ("before", "after"))
    return {
        "right answers": f"{100 * before:.1f} → {100 * after:.1f}",
        "change": in_points(right_answer_change(means).difference, signed=True),
    }


def right_answer_change(means: pd.DataFrame) -> Contrast:
    """Share of right answers after edits minus that before."""
    before, after = (right_answer_shares(means, moment) for moment in ("before", "after"))
    return paired(before, after, "fraction")


def right_answer_shares(means: pd.DataFrame, moment: str) -> pd.Series:
    """Share of each record's questions that are answered right at a moment, ``before`` or ``after``."""
    record_levels = [level for level in means.index.names if level in ("case_id", "relation")]
    most_probable = means[moment].unstack("answer_index").idxmax(axis=1)
    return most_probable.eq(0).astype(float).groupby(level=record_levels).mean()
