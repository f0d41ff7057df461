"""The design of a sample: strata, clusters, and the smallest difference it can show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from helpers.results.statistics import (
    combined_error,
    relations_of,
    standard_error,
    too_few,
    units_of,
)

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


def detectable(*samples: ArrayLike) -> float:
    """The smallest mean that a two-sided t-test at 5 % finds with a power of 80 %: with many, 2.8 errors.

    Of one sample, of paired differences, or the difference of two means; errors are by relation where the
    tests are. NaN where there is no test: of too few relations, or of values that do not differ.
    """
    units = [units_of(sample) for sample in samples]
    errors = [standard_error(each) for each in units]
    if any(too_few(each.relations) for each in units) or not all(e > 1e-9 for e, _ in errors):
        return float("nan")
    error, freedom = combined_error(*errors)
    return float(stats.t.isf((0.025, 0.2), freedom).sum()) * error


def with_note(table: pd.DataFrame, *notes: str) -> pd.DataFrame:
    """A table with more sentences on the line below it; empty ones are left out."""
    parts = [table.attrs.get("below", ""), *notes]
    table.attrs["below"] = "; ".join(filter(None, parts))
    return table


def with_relations(table: pd.DataFrame, samples: Iterable[ArrayLike]) -> pd.DataFrame:
    """A table with a line on the units behind its intervals and tests, which are of these samples."""
    known = {k for sample in samples if (k := relations_of(sample)) is not None and k > 0}
    many = sorted(k for k in known if not too_few(k))
    few = sorted(k for k in known if too_few(k))
    by_relation = f"intervals and tests by relation ({_ends(many)} relations)" if many else ""
    of_few = f"too few relations for tests ({_ends(few)}): intervals over records" if few else ""
    return with_note(table, by_relation, of_few)


def with_power(
    table: pd.DataFrame, least: Numbers, n: Numbers, *, unit: str = "", digits: int = 1
) -> pd.DataFrame:
    """A table of tests with a line below: their ``detectable`` differences, rounded up, and numbers n."""
    tested = [(value, count) for value, count in zip(least, n, strict=True) if value > 0]
    if not tested:
        return table
    scale = 10**digits
    values = [math.ceil(round(value * scale, 6)) / scale for value, _ in tested]
    ends = dict.fromkeys((min(values), max(values)))
    differences = "–".join(f"{value:.{digits}f}" for value in ends)
    counts = _ends([count for _, count in tested])
    line = f"could detect {differences}{unit} (n = {counts}; two-sided 5 %, power 80 %)"
    return with_note(table, line)


def _ends(counts: Sequence[Any]) -> str:
    """``9``, or ``9–12``."""
    return "–".join(map(str, dict.fromkeys((min(counts), max(counts)))))
