"""Intervals of shares: records that give 0 or 1, and records that give a share between them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from helpers.results.statistics import Estimate, bootstrap_interval, defined, mean_interval


def proportion_interval(values: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """Share of records that give 1, with the exact interval of Clopper and Pearson.

    Args:
        values: 0 or 1 per record, shape (n,); NaN is left out.
        confidence: least coverage of the interval.

    Raises:
        ValueError: a value is neither 0 nor 1.
    """
    numbers = defined(values)
    if not is_binary(numbers):
        raise ValueError("an exact interval needs records that give 0 or 1; see share_interval")
    n, ones = len(numbers), int(numbers.sum())
    if n == 0:
        return mean_interval(numbers)
    interval = stats.binomtest(ones, n).proportion_ci(confidence, method="exact")
    return Estimate(ones / n, float(interval.low), float(interval.high), n)


def share_interval(
    values: ArrayLike, *, confidence: float = 0.95, resamples: int = 2_000, seed: int = 0
) -> Estimate:
    """Mean share over records: exact where every record gives 0 or 1, else the bootstrap over records.

    Where all records agree on 1 (or on 0) the exact bound holds for shares, too: a mean is at least
    the probability of a 1.

    Args:
        values: between 0 and 1 per record, shape (n,); NaN is left out.
    """
    numbers = defined(values)
    if is_binary(numbers):
        return proportion_interval(numbers, confidence=confidence)
    return bootstrap_interval(numbers, confidence=confidence, resamples=resamples, seed=seed)


def fraction_interval(values: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """Mean of values between 0 and 1 with Student's t interval, cut at 0 and 1, where no mean lies."""
    found = mean_interval(values, confidence=confidence)
    low, high = (float(np.clip(end, 0.0, 1.0)) for end in (found.low, found.high))
    return Estimate(found.mean, low, high, found.n)


def is_binary(values: ArrayLike) -> bool:
    """Whether every value is 0 or 1."""
    return bool(np.isin(defined(values), (0.0, 1.0)).all())


def paired_proportions(
    first: ArrayLike, second: ArrayLike, *, confidence: float = 0.95
) -> Estimate:
    """Second minus first share of the same records, each 0 or 1 (Newcombe 1998, method 10).

    Built from Wilson's intervals of both shares, so that it has a width where no record changes.

    Args:
        first: 0 or 1 per record, shape (n,).
        second: the other method's, same records in the same order, without NaN.
    """
    one, two = (np.asarray(values, dtype=np.float64).reshape(-1) for values in (first, second))
    n = len(one)
    if n == 0:
        return mean_interval(one)
    (a, alow, ahigh), (b, blow, bhigh) = (_wilson(values, confidence) for values in (two, one))
    phi = _correlation(one, two)
    below, above = ((a - alow, bhigh - b), (ahigh - a, b - blow))
    low, high = ((x**2 - 2 * phi * x * y + y**2) ** 0.5 for x, y in (below, above))
    return Estimate(a - b, a - b - low, a - b + high, n)


def _wilson(values: NDArray[np.float64], confidence: float) -> tuple[float, float, float]:
    """A share and its Wilson interval."""
    ones, n = int(values.sum()), len(values)
    found = stats.binomtest(ones, n).proportion_ci(confidence, method="wilson")
    return ones / n, float(found.low), float(found.high)


def _correlation(one: NDArray[np.float64], two: NDArray[np.float64]) -> float:
    """Correlation of two binary columns with Newcombe's continuity correction; 0 for a constant one."""
    n, both = len(one), float((one * two).sum())
    ones, twos = float(one.sum()), float(two.sum())
    scale = (ones * (n - ones) * twos * (n - twos)) ** 0.5
    excess = n * both - ones * twos  # ad - bc of the fourfold table
    corrected = max(excess - n / 2, 0.0) if excess > 0 else excess
    return corrected / scale if scale else 0.0
