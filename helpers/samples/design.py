"""The design of a sample: strata, clusters, many tests, and the smallest difference that it can show."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

Item = TypeVar("Item")
FEWEST = 5  # clusters that have an interval
POWER = 2.8  # standard errors that a two-sided test at 5 % finds in four of five cases


def stratified(items: Sequence[Item], strata: Sequence[str], *, seed: int) -> list[Item]:
    """Items in random order such that the first n, for every n, are a sample stratified by ``strata``.

    A stratum's share of the first n is proportional to its size: Webster's allocation, in which its
    i-th item (from 0) comes at (i + 1/2) / size. A larger sample contains every smaller one.
    """
    order = random.Random(seed).sample(range(len(items)), len(items))
    mixed = pd.Series([strata[i] for i in order], order, dtype=str)
    groups = mixed.groupby(mixed)
    places = (groups.cumcount() + 0.5) / groups.transform("size")
    return [items[i] for i in places.sort_values(kind="stable").index]


def clustered_interval(
    *samples: pd.Series, level: str, resamples: int = 10_000, seed: int = 0
) -> tuple[float, float, int]:
    """The 95 % percentile bootstrap interval of a mean over records when whole clusters are drawn.

    ``level`` of the index names each value's cluster. Of two samples: of the first minus the second
    mean. Third is the number of clusters; too narrow where it is small (Cameron, Gelbach and Miller
    2008), NaN below ``FEWEST`` or where nothing varies.
    """
    sums = [s.dropna().groupby(level=level).agg(["sum", "size"]).to_numpy(float) for s in samples]
    n = min(map(len, sums))
    if n < FEWEST or not any(np.ptp(sample.dropna()) > 1e-9 for sample in samples):
        return float("nan"), float("nan"), n
    generator, draws = np.random.default_rng(seed), []
    for clusters in sums:
        size = (resamples, len(clusters))
        drawn = clusters[generator.integers(len(clusters), size=size)]
        draws.append(np.divide(*drawn.sum(axis=1).T))
    low, high = np.quantile(draws[0] - sum(draws[1:]), [0.025, 0.975])
    return float(low), float(high), n


def clustered_cells(
    tests: Sequence[Sequence[pd.Series]], level: str, decided: Sequence[bool]
) -> list[str]:
    """Each ``clustered_interval`` in points and its clusters, ``[+2.1, +8.0] (28)``; ``inconclusive`` where
    it includes zero and the plain test has ``decided``.
    """
    cells = []
    for samples, plain in zip(tests, decided, strict=True):
        low, high, n = clustered_interval(*samples, level=level)
        cell = f"[{100 * low:+z.1f}, {100 * high:+z.1f}]"
        cell = "n/a" if np.isnan(low) else cell + " inconclusive" * (plain and low <= 0 <= high)
        cells.append(f"{cell} ({n})")
    return cells


def detectable(*samples: ArrayLike) -> float:
    """The smallest mean that a two-sided test at 5 % finds with a power of 80 %: 2.8 standard errors.

    Of differences of pairs, s / sqrt(n); where each is -1, 0 or 1, s² is the share of pairs that differ.
    Of two samples, the difference of their means. NaN where nothing varies.
    """
    error = 0.0
    for sample in samples:
        values = np.asarray(sample, dtype=float)
        values = values[~np.isnan(values)]
        if len(values) < 2 or np.ptp(values) < 1e-9:
            return float("nan")
        pairs = np.isin(values, (-1.0, 0.0, 1.0)).all()
        square = (values**2).mean() if pairs else values.var(ddof=1)
        error += float(square) / len(values)
    return POWER * error**0.5


def holm(p_values: Sequence[float]) -> NDArray[np.float64]:
    """p-values corrected for their number (Holm 1979); NaN counts as no test."""
    values = np.asarray(p_values, dtype=np.float64)
    corrected = np.full(values.shape, np.nan)
    order = np.argsort(values)[: int((~np.isnan(values)).sum())]
    factors = np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(factors * values[order]))
    return corrected


def with_power(
    table: pd.DataFrame, smallest: Iterable[float], n: Iterable[int], form: str, unit: str = ""
) -> pd.DataFrame:
    """A table of tests with a line to ``show`` below, of their smallest detectable differences and n:
    ``could detect 4.1–9.8 points (n = 91–112; two-sided 5 %, power 80 %)``.
    """
    if known := [value for value in smallest if not np.isnan(value)]:
        how = f"n = {_span(n)}; two-sided 5 %, power 80 %"
        table.attrs["below"] = f"could detect {_span(known, form)}{unit} ({how})"
    return table


def _span(values: Iterable[float], form: str = "{}") -> str:
    """The least and the largest value, ``91–112``, or one where they are alike."""
    ordered = sorted(values)
    return "–".join(dict.fromkeys(form.format(end) for end in (ordered[0], ordered[-1])))
