"""Means and shares over records with their 95 % intervals, and tests of their differences."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, stats

Numbers = NDArray[np.float64]
LEVEL = 0.05


@dataclass(frozen=True)
class Estimate:
    """A mean over n values with its confidence interval; NaN where it is not defined."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Contrast:
    """A difference with its 95 % interval, which excludes zero where the two-sided p-value is below 0.05."""

    difference: Estimate
    p_value: float


def mean_interval(values: ArrayLike) -> Estimate:
    """Mean over records with the Student t interval, mean ± t(n - 1) · s / sqrt(n); NaN is omitted."""
    numbers = defined(values)
    n = len(numbers)
    mean = float(numbers.mean()) if n else np.nan
    if n < 2:
        return Estimate(mean, np.nan, np.nan, n)
    half = stats.t.ppf(1 - LEVEL / 2, n - 1) * numbers.std(ddof=1) / n**0.5
    return Estimate(mean, mean - float(half), mean + float(half), n)


def fraction_interval(values: ArrayLike) -> Estimate:
    """Mean of values between 0 and 1 with Student's t interval, cut at 0 and 1."""
    found = mean_interval(values)
    low, high = (float(np.clip(end, 0.0, 1.0)) for end in (found.low, found.high))
    return Estimate(found.mean, low, high, found.n)


def bootstrap_interval(values: ArrayLike, *, resamples: int = 10_000, seed: int = 0) -> Estimate:
    """Mean over records with the percentile bootstrap interval."""
    return _bootstrapped(defined(values), resamples, seed).difference


def share_interval(values: ArrayLike) -> Estimate:
    """Mean share over records: the exact interval of Clopper and Pearson where every record gives 0 or
    1, else the bootstrap over records.
    """
    numbers = defined(values)
    if len(numbers) and is_binary(numbers):
        return Estimate(*_binomial(numbers, 1 - LEVEL, "exact"), len(numbers))
    return bootstrap_interval(numbers, resamples=2_000)


def paired_proportions(
    first: ArrayLike, second: ArrayLike, *, confidence: float = 0.95
) -> Estimate:
    """Second minus first share of the same records, each 0 or 1 (Newcombe 1998, method 10).

    Built from Wilson's intervals of both shares, so that it has a width where no record changes.
    """
    one, two = _pairs(first, second)
    if not len(one):
        return mean_interval(one)
    a, a_low, a_high = _binomial(two, confidence, "wilson")
    b, b_low, b_high = _binomial(one, confidence, "wilson")
    # The correlation of both, with Newcombe's continuity correction; 0 where a side is constant.
    n, ones, twos = len(one), one.sum(), two.sum()
    excess = n * (one * two).sum() - ones * twos  # ad - bc of the fourfold table
    scale = (ones * (n - ones) * twos * (n - twos)) ** 0.5
    phi = min(excess, max(excess - n / 2, 0.0)) / (scale or 1.0)

    def length(x: float, y: float) -> float:
        return float((x**2 - 2 * phi * x * y + y**2) ** 0.5)

    low = length(a - a_low, b_high - b)
    high = length(a_high - a, b - b_low)
    return Estimate(a - b, a - b - low, a - b + high, n)


def paired_means(first: ArrayLike, second: ArrayLike) -> Contrast:
    """Second minus first by the two-sided paired t-test over records (the test behind PEAK's †).

    A record where either is NaN is omitted. The p-value is 1 where the two never differ.
    """
    one, two = _pairs(first, second)
    changes = two - one
    if len(changes) < 2:
        p_value = np.nan
    elif np.ptp(changes) <= 1e-12 * np.abs(changes).max():  # all by the same amount
        p_value = float(changes[0] == 0)
    else:
        p_value = float(stats.ttest_rel(two, one).pvalue)
    return Contrast(mean_interval(changes), p_value)


def paired_shares(first: ArrayLike, second: ArrayLike) -> Contrast:
    """The same for shares: Newcombe's interval where every record gives 0 or 1 on both sides, else the
    bootstrap over records (below ten the t-test); where none changes, the exact bound of how many may.
    """
    one, two = _pairs(first, second)
    changes = two - one
    if is_binary(one) and is_binary(two):
        return Contrast(paired_proportions(one, two), _newcombe_p(one, two))
    if not changes.any():
        bound = share_interval(np.abs(changes)).high
        return Contrast(Estimate(0.0, -bound, bound, len(changes)), 1.0)
    return _bootstrapped(changes) if len(changes) >= 10 else paired_means(one, two)


def mean_above(values: ArrayLike, level: float) -> Contrast:
    """A mean over records minus a level, by the t-test."""
    return paired_means(np.full(np.shape(values), level), values)


def share_above(values: ArrayLike, level: float) -> Contrast:
    """A share over records minus a level: exact where every record gives 0 or 1, else bootstrapped."""
    numbers = defined(values)
    if not is_binary(numbers):
        return _bootstrapped(numbers - level)
    found = share_interval(numbers)
    ones = int(numbers.sum())
    below = stats.binom.cdf(ones, len(numbers), level)
    above = stats.binom.sf(ones - 1, len(numbers), level)
    shifted = Estimate(found.mean - level, found.low - level, found.high - level, found.n)
    return Contrast(shifted, min(1.0, 2 * float(min(below, above))) if found.n else np.nan)


def unpaired_means(first: ArrayLike, second: ArrayLike) -> Contrast:
    """Second minus first of different records, by Welch's test; ``n`` is the smaller number of values."""
    one, two = (np.round(defined(values), 12) for values in (first, second))  # 1 - 1e-16 is 1
    n = min(len(one), len(two))
    mean = float(two.mean() - one.mean()) if n else np.nan
    if n < 2:
        return Contrast(Estimate(mean, np.nan, np.nan, n), np.nan)
    with warnings.catch_warnings(action="ignore"):  # of equal values, which have no test
        test = stats.ttest_ind(two, one, equal_var=False)
    low, high = test.confidence_interval(1 - LEVEL)
    return Contrast(Estimate(mean, float(low), float(high), n), float(test.pvalue))


def defined(values: ArrayLike) -> Numbers:
    """The values that are not NaN, flat."""
    numbers = np.asarray(values, dtype=np.float64).reshape(-1)
    return numbers[~np.isnan(numbers)]


def _pairs(first: ArrayLike, second: ArrayLike) -> tuple[Numbers, Numbers]:
    one, two = (np.asarray(values, dtype=np.float64).reshape(-1) for values in (first, second))
    both = ~np.isnan(one) & ~np.isnan(two)
    return one[both], two[both]


def is_binary(values: Numbers) -> bool:
    """Whether every value is 0 or 1."""
    return bool(np.isin(values, (0.0, 1.0)).all())


def _binomial(values: Numbers, confidence: float, method: str) -> tuple[float, float, float]:
    ones, n = int(values.sum()), len(values)
    found = stats.binomtest(ones, n).proportion_ci(confidence, method=method)
    return ones / n, float(found.low), float(found.high)


def _bootstrapped(values: Numbers, resamples: int = 10_000, seed: int = 0) -> Contrast:
    n = len(values)
    if n < 2:
        return Contrast(mean_interval(values), np.nan)
    found = stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=resamples,
        batch=max(1, 1_000_000 // n),  # keeps memory at a few megabytes
        confidence_level=1 - LEVEL,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    low, high = found.confidence_interval
    means = found.bootstrap_distribution
    beyond = min(int((means <= 0).sum()), int((means >= 0).sum()))
    p_value = min(1.0, 2 * (1 + beyond) / (1 + resamples))
    return Contrast(Estimate(float(values.mean()), float(low), float(high), n), p_value)


def _newcombe_p(one: Numbers, two: Numbers) -> float:
    # One minus the highest confidence at which Newcombe's interval excludes zero.
    if not len(one):
        return np.nan
    if one.sum() == two.sum():
        return 1.0

    def outside(z: float) -> float:
        """Positive where zero is outside of the interval, whose ends are then of one sign."""
        interval = paired_proportions(one, two, confidence=1 - 2 * float(stats.norm.sf(z)))
        return interval.low * interval.high

    z = 6.0 if outside(6.0) > 0 else float(optimize.brentq(outside, 1e-6, 6.0))  # p of 2e-9 or more
    return 2 * float(stats.norm.sf(z))


def holm(p_values: ArrayLike) -> Numbers:
    """p-values corrected for their number (Holm 1979); NaN counts as no test."""
    ordered = pd.Series(p_values, dtype=float).sort_values()
    steps: pd.Series = ordered.mul(ordered.count() - np.arange(len(ordered)))
    return steps.cummax().clip(upper=1.0).sort_index().to_numpy(dtype=np.float64)
