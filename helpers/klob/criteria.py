"""KLoB's criteria per locator, from the evaluation's long tables.

*similarities* has one row per example with columns locator, subtask, granularity, share, candidate
(Sim_cand), mean_scores and pairwise (both Sim_all); *sentences* has one row per sentence with
locator, subtask, granularity, deviation and magnitude; *null* has one row per permutation null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from typing import Literal

import pandas as pd

from helpers.klob.metrics import relative_similarity, relative_standard_deviation
from helpers.klob.unit_sets import DEFAULT_SHARE
from helpers.results.statistics import Estimate, bootstrap_interval

Baseline = Literal["mean_scores", "pairwise"]

ESTIMATE = ["mean", "low", "high", "n"]


def with_rsim(similarities: pd.DataFrame) -> pd.DataFrame:
    """The table with unclipped RSim under both baselines, ``rsim_mean_scores``, ``rsim_pairwise``."""
    added = {
        f"rsim_{baseline}": relative_similarity(similarities["candidate"], similarities[baseline])
        for baseline in ("mean_scores", "pairwise")
    }
    return similarities.assign(**added)


def rsim_table(
    similarities: pd.DataFrame,
    *,
    baseline: Baseline = "mean_scores",
    by: Sequence[str] = ("locator", "granularity", "subtask", "share"),
    seed: int = 0,
) -> pd.DataFrame:
    """Mean unclipped RSim with its bootstrap interval over examples.

    Args:
        similarities: see the module's description.
        baseline: the paper's shortcut ``"mean_scores"``, or the exact ``"pairwise"``.
        by: columns that separate rows.

    Returns:
        One row per group: the columns of ``by``, then mean, low, high, n.
    """
    rows = [
        (*keys, *astuple(bootstrap_interval(part[f"rsim_{baseline}"], resamples=2_000, seed=seed)))
        for keys, part in with_rsim(similarities).groupby(list(by), sort=False)
    ]
    return pd.DataFrame(rows, columns=[*by, *ESTIMATE])


def rsd_table(sentences: pd.DataFrame, *, relative: bool = False, seed: int = 0) -> pd.DataFrame:
    """Unclipped RSD per locator and granularity: factual are c and r, non-factual u.

    Args:
        sentences: see the module's description.
        relative: divide each sentence's standard deviation by its mean |score| first, so that
            scores that merely shrink on random words do not count (ours).

    Returns:
        Columns locator, granularity, mean, low, high, n; NaN where one kind of sentence is missing
        or factual scores do not vary.
    """
    rows = []
    for keys, part in sentences.groupby(["locator", "granularity"], sort=False):
        spread = part["deviation"] / part["magnitude"] if relative else part["deviation"]
        random = part["subtask"] == "unbiasedness"
        try:
            estimate = relative_standard_deviation(spread[~random], spread[random], seed=seed)
        except ValueError:
            estimate = Estimate(float("nan"), float("nan"), float("nan"), 0)
        rows.append((*keys, *astuple(estimate)))
    return pd.DataFrame(rows, columns=["locator", "granularity", *ESTIMATE])


def criteria_table(
    similarities: pd.DataFrame,
    sentences: pd.DataFrame,
    *,
    granularity: str,
    share: float = DEFAULT_SHARE,
    baseline: Baseline = "mean_scores",
) -> pd.DataFrame:
    """All three criteria at one granularity in long form.

    Returns:
        Columns locator, criterion (consistency, relevance, unbiasedness), mean, low, high, n; means
        are unclipped.
    """
    at_share = similarities.query("granularity == @granularity and share == @share")
    rsim = rsim_table(at_share, baseline=baseline, by=("locator", "subtask"))
    rsim = rsim.rename(columns={"subtask": "criterion"})
    rsd = rsd_table(sentences.query("granularity == @granularity"))
    rsd = rsd.drop(columns="granularity").assign(criterion="unbiasedness")
    columns = ["locator", "criterion", *ESTIMATE]
    return pd.concat([rsim[columns], rsd[columns]], ignore_index=True)


def baseline_gap(similarities: pd.DataFrame, *, share: float = DEFAULT_SHARE) -> pd.DataFrame:
    """Mean Sim_all and RSim under both baselines, and their differences, per locator and subtask."""
    table = with_rsim(similarities.query("share == @share"))
    columns = ["mean_scores", "pairwise", "rsim_mean_scores", "rsim_pairwise"]
    means = table.groupby(["locator", "granularity", "subtask"], sort=False)[columns].mean()
    means["gap"] = means["rsim_mean_scores"] - means["rsim_pairwise"]
    return means.reset_index()
