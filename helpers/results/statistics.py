"""Means with their uncertainty, and the paired t-test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats


@dataclass(frozen=True)
class Estimate:
    """A mean over n values with its confidence interval; NaN where it is not defined."""

    mean: float
    low: float
    high: float
    n: int

    def __neg__(self) -> Estimate:
        """The estimate of minus the mean."""
        return Estimate(-self.mean, -self.high, -self.low, self.n)


@dataclass(frozen=True)
class PairedTest:
    """Paired t-test of two methods on the same records.

    Attributes:
        difference: mean of second minus first.
        p_value: two-sided; 1 when the two never differ, NaN with fewer than two pairs.
        n: pairs with both values.
    """

    difference: float
    p_value: float
    n: int


def mean_interval(values: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """Mean over records with the Student t interval, mean ± t(n - 1) · s / sqrt(n).

    Args:
        values: one number per record, shape (n,); NaN (undefined for that record) is left out.
    """
    numbers = defined(values)
    n = len(numbers)
    if n == 0:
        return Estimate(float("nan"), float("nan"), float("nan"), 0)
    mean = float(numbers.mean())
    if n == 1:
        return Estimate(mean, float("nan"), float("nan"), 1)
    quantile = float(stats.t.ppf((1 + confidence) / 2, n - 1))
    half = quantile * float(numbers.std(ddof=1)) / n**0.5
    return Estimate(mean, mean - half, mean + half, n)


def bootstrap_interval(
    values: ArrayLike, *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Estimate:
    """Mean over records with the percentile bootstrap interval.

    Args:
        values: as in ``mean_interval``.
    """
    numbers = defined(values)
    n = len(numbers)
    if n < 2:
        return mean_interval(numbers, confidence=confidence)
    means = bootstrap_means(numbers, resamples=resamples, seed=seed)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(float(numbers.mean()), float(low), float(high), n)


def bootstrap_means(values: NDArray[np.float64], *, resamples: int, seed: int = 0) -> NDArray:
    """Means of resampled records, shape (resamples,); the values hold no NaN."""
    generator, n = np.random.default_rng(seed), len(values)
    block = max(1, 1_000_000 // n)  # keeps memory at a few megabytes
    sizes = [min(block, resamples - start) for start in range(0, resamples, block)]
    return np.concatenate([values[generator.integers(n, size=(k, n))].mean(axis=1) for k in sizes])


def welch_interval(first: ArrayLike, second: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """Mean of second minus mean of first with Welch's interval, for values of different records.

    ``n`` is the smaller number of values. NaN is left out; with fewer than two values on a side
    the interval is NaN.
    """
    first, second = defined(first), defined(second)
    n = min(len(first), len(second))
    if n == 0:
        return Estimate(float("nan"), float("nan"), float("nan"), 0)
    mean = float(second.mean() - first.mean())
    if n == 1:
        return Estimate(mean, float("nan"), float("nan"), 1)
    interval = stats.ttest_ind(second, first, equal_var=False).confidence_interval(confidence)
    return Estimate(mean, float(interval.low), float(interval.high), n)


def paired_test(first: ArrayLike, second: ArrayLike) -> PairedTest:
    """Two-sided paired t-test over records (the test behind PEAK's †).

    Args:
        first: one number per record, shape (n,), for instance the plain method's.
        second: the other method's, same records in the same order; a record where either is NaN
            is left out.

    Raises:
        ValueError: the two differ in length.
    """
    first, second = (np.asarray(values, dtype=np.float64).reshape(-1) for values in (first, second))
    if len(first) != len(second):
        raise ValueError(f"pairs need equal lengths, got {len(first)} and {len(second)}")
    differences = defined(second - first)
    n = len(differences)
    if n < 2:
        return PairedTest(float(differences.mean()) if n else float("nan"), float("nan"), n)
    mean = float(differences.mean())
    spread = float(differences.std(ddof=1))
    if spread == 0:  # every record changed by the same amount
        return PairedTest(mean, 1.0 if mean == 0 else 0.0, n)
    p_value = 2 * float(stats.t.sf(abs(mean) * n**0.5 / spread, n - 1))
    return PairedTest(mean, p_value, n)


def defined(values: ArrayLike) -> NDArray[np.float64]:
    """The values that are not NaN, flat."""
    numbers = np.asarray(values, dtype=np.float64).reshape(-1)
    return numbers[~np.isnan(numbers)]


def one_sided(observed: float, permuted: NDArray[np.floating]) -> float:
    """p of a permutation test, (1 + draws at least as high) / (1 + draws); NaN if nothing was observed.

    Args:
        permuted: the same under the null, one value per draw.
    """
    if np.isnan(observed):
        return float("nan")
    at_least = int((permuted >= observed - 1e-12).sum())
    return (1 + at_least) / (1 + len(permuted))
