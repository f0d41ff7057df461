"""Forgetting and noise in what a model says, from the answers its sampled responses name.

With B and A the distinct known answers named before and after an edit (correct ones C, false ones F,
the appended one among A's others), and shares over all samples of a record:

    list forgetting   |C_B - C_A| / |C_B|                 correct answers no longer named
    list noise        |F_A - F_B| / |A|                   newly named false answers in the list
    share forgetting  max(0, 1 - c_A / c_B)               c: share of samples naming a correct answer
    share noise       max(0, f_A - f_B)                   f: share of samples naming a false answer

These are this project's own; AFF and ANF (PEAK, Equations 5 and 6) are about the probabilities of
given answers, these about what comes out.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

NOTHING = ("none", -1)  # list and answer_index of a sample that names no known answer
FALSE = ("hard", "random")
MEASURES = ("list_forgetting", "list_noise", "share_forgetting", "share_noise", "target_share")


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's coefficient over n pairs, with its two-sided p-value; NaN below three pairs."""

    rho: float
    p_value: float
    n: int


def said_metrics(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """The measures above of every record in both tables, as fractions.

    Args:
        before: answers named by the unedited model: case_id, sample, list, answer_index; at least
            one row per sample (``NOTHING`` where no known answer is named).
        after: the same after each record's edit.

    Returns:
        Index case_id; ``MEASURES`` (``target_share``: samples that name the appended answer) and
        ``named_before``, the number of distinct correct answers. Forgetting is NaN where the
        unedited model names no correct answer, list noise where the edited one names nothing.
    """
    common = sorted(set(before["case_id"]) & set(after["case_id"]))
    grouped = [dict(iter(table.groupby("case_id"))) for table in (before, after)]
    rows = {case_id: _record(grouped[0][case_id], grouped[1][case_id]) for case_id in common}
    columns = [*MEASURES, "named_before"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("case_id")


def rank_correlation(first: ArrayLike, second: ArrayLike) -> RankCorrelation:
    """Spearman's rank correlation of two measures over the records that have both.

    Raises:
        ValueError: the two differ in length.
    """
    pairs = np.array([first, second], dtype=np.float64)
    pairs = pairs[:, ~np.isnan(pairs).any(axis=0)]
    n = pairs.shape[1]
    if n < 3 or (np.ptp(pairs, axis=1) == 0).any():  # no ranks to compare
        return RankCorrelation(float("nan"), float("nan"), n)
    result = stats.spearmanr(*pairs)
    return RankCorrelation(float(result.statistic), float(result.pvalue), n)


def _record(before: pd.DataFrame, after: pd.DataFrame) -> dict[str, float]:
    correct = [_distinct(table, ("correct",)) for table in (before, after)]
    false = [_distinct(table, FALSE) for table in (before, after)]
    everything = _distinct(after, ("target", "correct", *FALSE))
    right = [_share(table, ("correct",)) for table in (before, after)]
    wrong = [_share(table, FALSE) for table in (before, after)]
    return {
        "list_forgetting": _ratio(len(correct[0] - correct[1]), len(correct[0])),
        "list_noise": _ratio(len(false[1] - false[0]), len(everything)),
        "share_forgetting": max(0.0, 1 - right[1] / right[0]) if right[0] else float("nan"),
        "share_noise": max(0.0, wrong[1] - wrong[0]),
        "target_share": _share(after, ("target",)),
        "named_before": len(correct[0]),
    }


def _distinct(table: pd.DataFrame, lists: tuple[str, ...]) -> set[tuple[str, int]]:
    """The distinct answers of these lists that are named."""
    chosen = table[table["list"].isin(lists)]
    return set(zip(chosen["list"], chosen["answer_index"], strict=True))


def _share(table: pd.DataFrame, lists: tuple[str, ...]) -> float:
    """Share of samples that name an answer of these lists."""
    named = table.loc[table["list"].isin(lists), "sample"].nunique()
    return named / table["sample"].nunique()


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
