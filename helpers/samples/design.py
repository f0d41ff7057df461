"""The design of a sample: strata, clusters, many tests, and the smallest difference it can show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

FEWEST = 5  # clusters that have an interval
POWER = 2.8  # standard errors that a two-sided test at 5 % finds in four of five cases


def stratified(items: Sequence[Any], stratum: Callable[[Any], str], seed: int) -> list[Any]:
    """Items in random order such that the first n are a sample stratified by ``stratum``, for every n.

    Webster's proportional allocation: a stratum's i-th item (from 0) comes at (i + 1/2) / size.
    """
    mixed = pd.Series(items, dtype=object).sample(frac=1, random_state=seed)
    groups = mixed.groupby(mixed.map(stratum))
    places = (groups.cumcount() + 0.5) / groups.transform("size")
    return list(mixed[places.sort_values(kind="stable").index])


def clustered_cell(samples: Sequence[pd.Series], decided: bool) -> str:
    """``[+2.1, +8.0] (28)``: in points, the 95 % bootstrap interval of the mean when relations are drawn
    with all their records, and their number; of two samples, of the first minus the second mean.

    ``inconclusive`` where it includes zero and the plain test has ``decided``. Too narrow with few
    clusters (Cameron, Gelbach and Miller 2008): n/a below ``FEWEST``, and where nothing varies.
    """
    generator, counts, draws = np.random.default_rng(0), [], []
    for sample in samples:
        groups = sample.dropna().groupby(level="relation")
        sums = groups.agg(["sum", "size"]).to_numpy(float)
        counts.append(n := len(sums))
        drawn = generator.integers(max(n, 1), size=(10_000, n))
        top, size = sums[drawn].sum(axis=1).T
        draws.append(100 * top / size)
    difference = draws[0] - sum(draws[1:])
    low, high = np.quantile(difference, [0.025, 0.975])
    if min(counts) < FEWEST or high - low < 1e-9:
        return f"n/a ({min(counts)})"
    lost = bool(decided and low <= 0 <= high)
    cell = f"[{low:+z.1f}, {high:+z.1f}]"
    return f"{cell} ({min(counts)})" + " inconclusive" * lost


def detectable(*samples: ArrayLike) -> float:
    """The smallest mean that a two-sided test at 5 % finds with a power of 80 %: 2.8 standard errors.

    Of paired differences, s / sqrt(n); where each is -1, 0 or 1, s² is the share of pairs that differ.
    Of two samples, the difference of their means. NaN where nothing varies.
    """
    error = 0.0
    for sample in samples:
        values = np.asarray(sample, dtype=float)
        values = values[~np.isnan(values)]
        if len(values) < 2 or np.ptp(values) < 1e-9:
            return float("nan")
        pairs = np.isin(values, (-1, 0, 1)).all()
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


def with_power(table: pd.DataFrame, least: Iterable[float], n: Iterable[int], form: str) -> Any:
    """A table of tests with a line below: their ``detectable`` differences and numbers n."""
    if known := [value for value in least if value == value]:
        counts = map(str, dict.fromkeys((min(n), max(n))))
        line = f"could detect {form.format(min(known), max(known))}"
        line += f" (n = {'–'.join(counts)}; "
        table.attrs["below"] = line + "two-sided 5 %, power 80 %)"
    return table
