"""The design of a sample: strata, clusters, and the smallest difference it can show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

Numbers = Sequence[float] | pd.Series
POWER = 2.8  # standard errors that a two-sided test at 5 % finds in four of five cases


def stratified(records: Sequence[Any], seed: int) -> list[Any]:
    """Records in random order such that the first n, for every n, are a sample stratified by relation
    (Webster's proportional allocation): a relation's i-th record (from 0) comes at (i + 1/2) / size.
    """
    mixed = pd.Series(records, dtype=object)
    mixed = mixed.sample(frac=1, random_state=seed)
    strata = mixed.groupby([r.relation for r in mixed])
    places = (strata.cumcount() + 0.5) / strata.transform("size")
    return list(mixed[places.sort_values(kind="stable").index])


def clustered_cell(samples: Sequence[pd.Series], decided: bool) -> str:
    """``[+2.1, +8.0] (28)``: the 95 % bootstrap interval of the (difference of) means, in points, of 28
    relations drawn; n/a below five, where it is too narrow (Cameron, Gelbach and Miller 2008).
    """
    rng, counts, draws = np.random.default_rng(0), [], []
    for sample in samples:
        groups = sample.dropna().groupby(level="relation")
        sums = groups.agg(["sum", "size"]).to_numpy(float)
        counts.append(n := len(sums))
        drawn = rng.integers(max(n, 1), size=(10_000, n))
        top, size = sums[drawn].sum(axis=1).T
        draws.append(100 * top / size)
    means = draws[0] - sum(draws[1:])
    n = min(counts)
    low, high = np.quantile(means, [0.025, 0.975])
    if n < 5 or high - low < 1e-9:
        return f"n/a ({n})"
    cell = f"[{low:+z.1f}, {high:+z.1f}] ({n})"
    return cell + " inconclusive" * bool(decided and low <= 0 <= high)


def detectable(*samples: ArrayLike) -> float:
    """The smallest mean that a two-sided t-test at 5 % finds with a power of 80 %: with many, 2.8 errors.
    Of one sample, of paired differences, s / sqrt(n); of -1, 0 and 1, s² is the share that differs.
    """
    error, free = 0.0, -len(samples)
    for sample in samples:
        values = pd.Series(sample, dtype=float).dropna().to_numpy(float)
        if not len(values) or np.ptp(values) < 1e-9:
            return float("nan")
        pairs = len(samples) == 1 and np.isin(values, (-1, 0, 1)).all()
        square = (values**2).mean() if pairs else values.var(ddof=1)
        error += float(square) / len(values)
        free += len(values)
    return float(stats.t.isf((0.025, 0.2), free).sum()) * error**0.5


def with_power(table: pd.DataFrame, least: Numbers, n: Numbers, form: str) -> pd.DataFrame:
    """A table of tests with a line below: their ``detectable`` differences and numbers n."""
    if known := [v for v in least if not np.isnan(v)]:
        ends = dict.fromkeys((min(n), max(n)))
        tested = f"n = {'–'.join(map(str, ends))}"
        line = form.format(min(known), max(known))
        line = f"could detect {line} ({tested}; two-sided 5 %, power 80 %)"
        table.attrs["below"] = line
    return table
