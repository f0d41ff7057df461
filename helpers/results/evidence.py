"""Claims as differences that can be tested: estimate, verdict, and what survives Holm's correction.

A claim *holds* where the 95 % interval of its difference lies on the side it describes, is
*reversed* where the interval lies on the other, and *inconclusive* in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, stats

from helpers.results.proportions import is_binary, paired_proportions, proportion_interval
from helpers.results.statistics import (
    Estimate,
    bootstrap_means,
    defined,
    mean_interval,
    paired_test,
    welch_interval,
)

LEVEL = 0.05
INCONCLUSIVE = "inconclusive"
_RESAMPLES = 10_000


@dataclass(frozen=True)
class Contrast:
    """A difference with its 95 % interval, and the two-sided p-value of its being zero.

    The interval leaves zero out where the p-value is below 0.05, and nowhere else.
    """

    difference: Estimate
    p_value: float


@dataclass(frozen=True)
class Evidence:
    """One comparison: the difference is positive where the finding says so, in fractions."""

    finding: str
    measure: str
    contrast: Contrast

    @property
    def difference(self) -> Estimate:
        """The difference and its interval."""
        return self.contrast.difference

    @property
    def verdict(self) -> str:
        """``holds``, ``reversed`` or ``inconclusive``."""
        if self.difference.low > 0:
            return "holds"
        return "reversed" if self.difference.high < 0 else INCONCLUSIVE


def paired_means(first: ArrayLike, second: ArrayLike) -> Contrast:
    """Second minus first on the same records, by the paired t-test; NaN on either side is left out."""
    one, two = _pairs(first, second)
    return Contrast(mean_interval(two - one), paired_test(one, two).p_value)


def paired_shares(first: ArrayLike, second: ArrayLike) -> Contrast:
    """The same for shares between 0 and 1.

    Newcombe's interval where every record gives 0 or 1 on both sides, else the bootstrap over
    records; where no record changes, the exact bound of how many may.
    """
    one, two = _pairs(first, second)
    differences = two - one
    if is_binary(one) and is_binary(two):
        return Contrast(paired_proportions(one, two), _newcombe_p(one, two))
    if not differences.any():
        bound = proportion_interval(np.abs(differences)).high
        return Contrast(Estimate(0.0, -bound, bound, len(differences)), 1.0)
    return _bootstrapped(differences)


def mean_above(values: ArrayLike, level: float) -> Contrast:
    """A mean over records minus a level, by the t-test."""
    return paired_means(np.full(np.shape(values), level), values)


def share_above(values: ArrayLike, level: float) -> Contrast:
    """A share over records minus a level: exact where every record gives 0 or 1, else bootstrapped."""
    numbers = defined(values)
    if not is_binary(numbers):
        return _bootstrapped(numbers - level)
    interval, ones = proportion_interval(numbers), int(numbers.sum())
    tails = (
        stats.binom.cdf(ones, len(numbers), level),
        stats.binom.sf(ones - 1, len(numbers), level),
    )
    shifted = Estimate(
        interval.mean - level, interval.low - level, interval.high - level, interval.n
    )
    return Contrast(shifted, min(1.0, 2 * float(min(tails))) if interval.n else float("nan"))


def unpaired_means(first: ArrayLike, second: ArrayLike) -> Contrast:
    """Second minus first of different records, by Welch's test."""
    one, two = defined(first), defined(second)
    enough = min(len(one), len(two)) > 1
    p_value = stats.ttest_ind(two, one, equal_var=False).pvalue if enough else np.nan
    return Contrast(welch_interval(one, two), float(p_value))


def holm(p_values: Sequence[float]) -> NDArray[np.float64]:
    """p-values corrected for their number (Holm 1979); NaN counts as no test.

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    values = np.asarray(p_values, dtype=np.float64)
    corrected = np.full(values.shape, np.nan)
    order = np.argsort(values)[: int((~np.isnan(values)).sum())]
    factors = np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(factors * values[order]))
    return corrected


def mark(contrast: Contrast, *, higher_is_better: bool) -> str:
    """``†`` where the second side is better with p < 0.05, ``‡`` where it is worse, else nothing."""
    if not contrast.p_value < LEVEL:
        return ""
    return "†" if (contrast.difference.mean > 0) == higher_is_better else "‡"


def corrected_verdicts(evidence: Sequence[Evidence]) -> list[str]:
    """The verdict that is left of each when all of them are corrected for (Holm 1979)."""
    p_values = holm([item.contrast.p_value for item in evidence])
    return [
        item.verdict if p_value < LEVEL else INCONCLUSIVE
        for item, p_value in zip(evidence, p_values, strict=True)
    ]


def findings_table(evidence: Sequence[Evidence]) -> pd.DataFrame:
    """Evidence as text, one row each.

    Returns:
        finding, measure, difference and 95 % interval in percentage points, n (records), verdict,
        and ``Holm`` (``corrected_verdicts``).
    """
    rows = [
        {
            "finding": item.finding,
            "measure": item.measure,
            "difference": in_points(item.difference, signed=True),
            "n": item.difference.n,
            "verdict": item.verdict,
            "Holm": corrected,
        }
        for item, corrected in zip(evidence, corrected_verdicts(evidence), strict=True)
    ]
    columns = ["finding", "measure", "difference", "n", "verdict", "Holm"]
    return pd.DataFrame(rows, columns=columns)


def in_points(estimate: Estimate, *, signed: bool = False) -> str:
    """A fraction in percent: ``87.6 ± 3.9``, or ``97.2 [92.2, 99.4]`` where the sides differ."""
    mean, low, high = (100 * value for value in (estimate.mean, estimate.low, estimate.high))
    if np.isnan(mean):
        return "n/a"
    sign = "+z" if signed else "z"  # z: no minus before a zero
    text = f"{mean:{sign}.1f}"
    if np.isnan(low):
        return text
    if abs((high - mean) - (mean - low)) < 0.1:
        return f"{text} ± {(high - low) / 2:.1f}"
    return f"{text} [{low:{sign}.1f}, {high:{sign}.1f}]"


def _pairs(first: ArrayLike, second: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    one, two = (np.asarray(values, dtype=np.float64).reshape(-1) for values in (first, second))
    both = ~np.isnan(one) & ~np.isnan(two)
    return one[both], two[both]


def _bootstrapped(differences: NDArray[np.float64]) -> Contrast:
    """Mean of the differences with the percentile bootstrap over records."""
    n = len(differences)
    if n < 2:
        return Contrast(mean_interval(differences), float("nan"))
    means = bootstrap_means(differences, resamples=_RESAMPLES)
    low, high = (float(value) for value in np.quantile(means, [LEVEL / 2, 1 - LEVEL / 2]))
    beyond = min(int((means <= 0).sum()), int((means >= 0).sum()))
    p_value = min(1.0, 2 * (1 + beyond) / (1 + len(means)))
    return Contrast(Estimate(float(differences.mean()), low, high, n), p_value)


def _newcombe_p(one: NDArray[np.float64], two: NDArray[np.float64]) -> float:
    """One minus the highest confidence at which Newcombe's interval leaves zero out."""
    if not len(one):
        return float("nan")
    if one.sum() == two.sum():
        return 1.0
    upwards = two.sum() > one.sum()

    def end(z: float) -> float:
        interval = paired_proportions(one, two, confidence=1 - 2 * float(stats.norm.sf(z)))
        return interval.low if upwards else -interval.high

    highest = 6.0  # p of 2e-9
    z = highest if end(highest) > 0 else float(optimize.brentq(end, 1e-6, highest))
    return 2 * float(stats.norm.sf(z))
