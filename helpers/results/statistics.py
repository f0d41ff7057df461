"""Means over records with their 95 % intervals, and tests of differences; *docs/statistics.md* has the
simulations behind each choice.

Records of one relation are alike. What counts as drawn at random, a *unit*, is therefore a relation where
the records are of at least ``FEWEST`` relations, and a record where they are of fewer or where no index level
``relation`` names them. Units differ in size; a mean is over records all the same.

Which interval and which test belong to a metric is decided by its ``Kind`` and by the units, never by the
values at hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Numbers = NDArray[np.float64]
Kind = Literal["share", "fraction", "number"]
"""``share``: of a record's few prompts, often 0 or 1; ``fraction``: from 0 to 1; ``number``: any."""

LEVEL = 0.05
FEWEST = 8  # relations from which an interval or a test is by relation
_SIGN_PATTERNS = 1 << 16  # as many are enumerated
_DRAWN_PATTERNS = 9_999  # of more units: drawn, and the observed one is added
_BOOTSTRAP_DRAWS = 2000
_PSEUDO_CHANGE: dict[Kind, float] = {"share": 1.0, "fraction": 0.5, "number": 0.0}


@dataclass(frozen=True)
class Estimate:
    """A mean over n values with its confidence interval; NaN where it is not defined."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Contrast:
    """A difference with its 95 % interval, and the two-sided p-value that a verdict is taken from.

    The interval excludes zero where p < 0.05. ``relation_count``: of how many relations the records are, None
    where that is unknown. Below ``FEWEST`` there is no test by relation: p is NaN, and the interval is over
    records.
    """

    difference: Estimate
    p_value: float
    relation_count: int | None = field(default=None, kw_only=True)

    @property
    def too_few_relations(self) -> bool:
        """Whether the records are of too few relations for a verdict."""
        return too_few(self.relation_count)


@dataclass(frozen=True)
class Units:
    """What is drawn at random, as sums of its records' values and their numbers, each of shape [units]."""

    sums: Numbers
    sizes: Numbers
    relation_count: int | None = None

    @property
    def records(self) -> int:
        """How many records the units hold together."""
        return int(self.sizes.sum())

    @property
    def by_relation(self) -> bool:
        """Whether a unit is a relation."""
        return self.relation_count is not None and not too_few(self.relation_count)

    @property
    def mean(self) -> float:
        """The mean over records; NaN without any."""
        return float(self.sums.sum() / self.sizes.sum()) if len(self.sizes) else float("nan")

    def extended(self, *values: float) -> Units:
        """The units and one more of average size for each of ``values``, which is its mean."""
        mean_size = self.sizes.mean()
        extended_sums = np.append(self.sums, mean_size * np.array(values))
        extended_sizes = np.append(self.sizes, np.full(len(values), mean_size))
        return replace(self, sums=extended_sums, sizes=extended_sizes)


def too_few(relation_count: int | None) -> bool:
    """Whether there are relations, but fewer than ``FEWEST``."""
    return relation_count is not None and relation_count < FEWEST


def relation_count_of(values: ArrayLike) -> int | None:
    """How many relations the values that are not NaN are of; None where that is not known.

    The relations are in the index level ``relation``, where there is one.
    """
    return units_of(values).relation_count


def units_of(values: ArrayLike) -> Units:
    """The units of a metric's values; NaN is omitted."""
    record_values = without_nan(values)
    by_record = Units(record_values, np.ones(len(record_values)))
    if not isinstance(values, pd.Series) or "relation" not in values.index.names:
        return by_record
    relations = values.index.get_level_values("relation")[values.notna().to_numpy()]
    number_of_relation, names = pd.factorize(relations, sort=True)  # -1 where there is none
    if len(relations) and not len(names):
        return by_record
    if too_few(len(names)):
        return replace(by_record, relation_count=len(names))
    has_relation = number_of_relation >= 0
    counted = number_of_relation[has_relation]
    sums = np.bincount(counted, record_values[has_relation]).astype(np.float64)
    return Units(sums, np.bincount(counted).astype(np.float64), len(names))


def standard_error(units: Units) -> tuple[float, float]:
    """The standard error of a mean, robust to what records of a unit share, and its degrees of freedom.

    CR2 of Bell and McCaffrey (2002) with their Satterthwaite degrees of freedom, in the form for a mean. Of
    units of one record each it is s / sqrt(n) with n - 1 degrees.
    """
    if len(units.sizes) < 2:
        return float("nan"), float("nan")
    weights = units.sizes / units.sizes.sum()  # [units]
    residuals = units.sums - units.mean * units.sizes
    variance = (residuals**2 / (1 - weights)).sum() / units.sizes.sum() ** 2
    leverage = weights * units.sizes / (1 - weights)
    cross_terms = leverage.sum() ** 2 - (leverage**2).sum()
    freedom = units.sizes.sum() ** 2 / ((units.sizes**2).sum() + cross_terms)
    return float(variance**0.5), float(freedom)


def combined_error(*errors: tuple[float, float]) -> tuple[float, float]:
    """The standard error of a difference of independent means, and its degrees of freedom (Welch)."""
    joint_error = float(np.hypot.reduce([error for error, _ in errors]))
    freedom_terms = sum(error**4 / freedom for error, freedom in errors)
    return joint_error, joint_error**4 / freedom_terms if freedom_terms > 0 else float("nan")


def mean_interval(values: ArrayLike) -> Estimate:
    """Mean with Student's t interval, of numbers without bounds; there is none where all are equal."""
    return _t_interval(units_of(values))


def positive_interval(values: ArrayLike) -> Estimate:
    """Mean of positive numbers, such as probabilities on a log axis, with the t interval of its logarithm."""
    t_interval = mean_interval(values)
    if not t_interval.mean > 0:
        return t_interval
    factor = float(np.exp((t_interval.high - t_interval.mean) / t_interval.mean))
    mean = t_interval.mean
    return Estimate(mean, mean / factor, mean * factor, t_interval.n)


def ratio_interval(numerator: ArrayLike, denominator: ArrayLike) -> Estimate:
    """Ratio of two positive means of different records, with the t interval of its logarithm."""
    numerator_units = units_of(numerator)
    denominator_units = units_of(denominator)
    ratio = numerator_units.mean / denominator_units.mean
    n = numerator_units.records + denominator_units.records
    relative_errors = []
    for units in (numerator_units, denominator_units):
        error_of_mean, freedom_of_mean = standard_error(units)
        relative_errors.append((error_of_mean / units.mean, freedom_of_mean))
    error, freedom = combined_error(*relative_errors)
    factor = float(np.exp(stats.t.isf(LEVEL / 2, freedom) * error))
    return Estimate(ratio, ratio / factor, ratio * factor, n)


def fraction_interval(values: ArrayLike) -> Estimate:
    """Mean of values from 0 to 1 with the t interval after one unit of 0 and one of 1 are added.

    They are what Agresti and Coull add to a share. Without them an interval of equal values has no width,
    and one of nearly equal values covers too seldom.
    """
    units = units_of(values)
    if units.records < 2:
        return Estimate(units.mean, float("nan"), float("nan"), units.records)
    t_interval = _t_interval(units.extended(0.0, 1.0))
    return Estimate(units.mean, max(0.0, t_interval.low), min(1.0, t_interval.high), units.records)


def share_interval(values: ArrayLike) -> Estimate:
    """Mean share of prompts: by record the interval of Clopper and Pearson, by relation that of a fraction.

    With the sum of the shares as the successes of n trials, whole or not, and beta quantiles for the ends:
    shares of several prompts vary less than one success or failure a record, so that it covers them as well.
    """
    units = units_of(values)
    if units.by_relation:
        return fraction_interval(values)
    n = units.records
    successes = units.sums.sum()
    if not n:
        return Estimate(float("nan"), float("nan"), float("nan"), 0)
    low = 0.0
    high = 1.0
    if successes > 0:
        low = float(stats.beta.ppf(LEVEL / 2, successes, n - successes + 1))
    if successes < n:
        high = float(stats.beta.ppf(1 - LEVEL / 2, successes + 1, n - successes))
    return Estimate(units.mean, low, high, n)


def interval(values: ArrayLike, kind: Kind) -> Estimate:
    """A metric's mean with the interval of its kind."""
    of_kind = {"share": share_interval, "fraction": fraction_interval, "number": mean_interval}
    return of_kind[kind](values)


def mean_above(values: ArrayLike, level: float, kind: Kind) -> Contrast:
    """A metric's mean minus a level; p is one minus the confidence at which its interval ends there."""
    mean = interval(values, kind)
    difference = Estimate(mean.mean - level, mean.low - level, mean.high - level, mean.n)
    metric_units = units_of(values)
    if metric_units.records < 2 or too_few(metric_units.relation_count):
        return Contrast(difference, float("nan"), relation_count=metric_units.relation_count)
    if kind == "share" and not metric_units.by_relation:
        n = metric_units.records
        successes = metric_units.sums.sum()
        as_many = stats.beta.cdf(level, successes, n - successes + 1) if successes > 0 else 1.0
        as_few = stats.beta.sf(level, successes + 1, n - successes) if successes < n else 1.0
        return Contrast(
            difference,
            min(1.0, 2 * float(min(as_many, as_few))),
            relation_count=metric_units.relation_count,
        )
    tested_units = metric_units if kind == "number" else metric_units.extended(0.0, 1.0)
    return Contrast(
        difference, _t_test(tested_units, level), relation_count=metric_units.relation_count
    )


def paired(first: ArrayLike, second: ArrayLike, kind: Kind) -> Contrast:
    """Second minus first on the same records, tested by exact sign flips of the units' changes.

    Where no unit differs between the two except by chance, the sign of each change is a coin's. p is the
    share of all sign patterns under which the mean is at least as far from zero: of the units that change
    all patterns where there are at most 2^16, else 9,999 random ones and the observed one. A record where
    either value is NaN is omitted.

    The interval holds each δ that the same test does not reject as the difference; it is widened to the t
    interval after one gain and one loss are added, whole ones of shares, half ones of fractions, since flips
    know no changes but those that were seen. On zero's side it is not widened across zero where p < 0.05.
    """
    units = units_of(_changes(first, second))
    if not units.records:
        return Contrast(_t_interval(units), float("nan"), relation_count=units.relation_count)
    p_value, low_end, high_end = _sign_flips(units)
    pseudo_change = _PSEUDO_CHANGE[kind]
    widened = _t_interval(units.extended(pseudo_change, -pseudo_change) if pseudo_change else units)
    lowest_end = np.fmin(low_end, widened.low)
    highest_end = np.fmax(high_end, widened.high)
    low_end = low_end if low_end > 0 >= lowest_end else float(lowest_end)
    high_end = high_end if high_end < 0 <= highest_end else float(highest_end)
    if kind != "number":
        low_end = max(-1.0, low_end)
        high_end = min(1.0, high_end)
    elif not np.isfinite(high_end - low_end) or low_end == high_end == 0.0:
        # Too few units to reject anything, or no change.
        low_end = float("nan")
        high_end = float("nan")
    if too_few(units.relation_count):
        p_value = float("nan")
    difference = Estimate(units.mean, low_end, high_end, units.records)
    return Contrast(difference, p_value, relation_count=units.relation_count)


def post_stratified(values: pd.Series, shares: Mapping[str, float]) -> tuple[float, float]:
    """Mean over a population of which the records are no random sample, and how much of it they cover.

    Each relation's mean is weighted by the relation's share of the population, sum(w m) / sum(w), over the
    relations of which there is a value; sum(w) is the part of the population that they cover. NaN is omitted.
    """
    means = values.dropna().groupby(level="relation").mean()
    weights = pd.Series(shares, dtype=float).reindex(means.index, fill_value=0.0)
    covered_share = float(weights.sum())
    weighted_mean = float("nan")
    if covered_share > 0:
        weighted_mean = float((weights * means).sum() / covered_share)
    return weighted_mean, covered_share


def unpaired_means(first: ArrayLike, second: ArrayLike) -> Contrast:
    """Second minus first of different records, by Welch's test; ``n`` is the smaller number of values."""
    first_units = units_of(_rounded(first))
    second_units = units_of(_rounded(second))
    fewest_records = min(first_units.records, second_units.records)
    mean = second_units.mean - first_units.mean
    relation_counts = [
        units.relation_count
        for units in (first_units, second_units)
        if units.relation_count is not None
    ]
    relation_count = min(relation_counts, default=None)
    error, freedom = combined_error(standard_error(first_units), standard_error(second_units))
    if fewest_records < 2 or not error > 0:
        no_interval = Estimate(mean, float("nan"), float("nan"), fewest_records)
        return Contrast(no_interval, float("nan"), relation_count=relation_count)
    half_width = float(stats.t.isf(LEVEL / 2, freedom)) * error
    p_value = 2 * float(stats.t.sf(abs(mean) / error, freedom))
    if too_few(relation_count):
        p_value = float("nan")
    difference = Estimate(mean, mean - half_width, mean + half_width, fewest_records)
    return Contrast(difference, p_value, relation_count=relation_count)


def detectable(*samples: ArrayLike, tests: int = 1) -> float:
    """The smallest mean that a two-sided t-test at 5 % finds with a power of 80 %: with many, 2.8 errors.

    Where several ``tests`` are corrected together, that of a test at 5 % divided by their number.

    Of one sample, of paired differences, or the difference of two means; errors are by relation where the
    tests are. NaN where there is no test: of too few relations, or of values that do not differ.
    """
    units_of_samples = [units_of(sample) for sample in samples]
    errors = [standard_error(units) for units in units_of_samples]
    have_relations = not any(too_few(units.relation_count) for units in units_of_samples)
    differ = all(error > 1e-9 for error, _ in errors)
    if not (have_relations and differ):
        return float("nan")
    joint_error, freedom = combined_error(*errors)
    return float(stats.t.isf((LEVEL / tests / 2, 0.2), freedom).sum()) * joint_error


def unit_draws(
    values: pd.Series, *, record_level: str = "", draws: int = _BOOTSTRAP_DRAWS
) -> Numbers:
    """How often each value counts in the sample (once), then in bootstrap draws of its units (seed 0).

    Args:
        values: only their index is read; a level ``relation`` names relations.
        record_level: the index level of records that have several values each; empty: each value is one.
        draws: how many.

    Returns:
        [1 + draws, values]. A unit is a relation, or a record where relations are fewer than ``FEWEST``.
    """
    value_count = len(values)
    unit_of_value = np.arange(value_count)
    relation_count = relation_count_of(values)
    if relation_count is not None and not too_few(relation_count):
        unit_of_value = pd.factorize(values.index.get_level_values("relation"))[0]
    elif record_level:
        unit_of_value = pd.factorize(values.index.get_level_values(record_level))[0]
    unit_count = int(unit_of_value.max()) + 1
    generator = np.random.default_rng(0)
    equal_chances = np.full(unit_count, 1 / unit_count)
    draws_of_units = generator.multinomial(unit_count, equal_chances, size=draws)
    return np.vstack([np.ones(value_count), draws_of_units[:, unit_of_value]])


def without_nan(values: ArrayLike) -> Numbers:
    """The values that are not NaN, flat."""
    flat_values = np.asarray(values, dtype=np.float64).reshape(-1)
    return flat_values[~np.isnan(flat_values)]


def holm(p_values: ArrayLike) -> Numbers:
    """p-values corrected for their number (Holm 1979); NaN counts as no test."""
    ordered_p = pd.Series(np.asarray(p_values, dtype=float)).sort_values()
    corrected_steps: pd.Series = ordered_p.mul(ordered_p.count() - np.arange(len(ordered_p)))
    return corrected_steps.cummax().clip(upper=1.0).sort_index().to_numpy(dtype=np.float64)


def _changes(first: ArrayLike, second: ArrayLike) -> ArrayLike:
    if isinstance(first, pd.Series) and isinstance(second, pd.Series):
        return second - first
    return np.asarray(second, dtype=float).reshape(-1) - np.asarray(first, dtype=float).reshape(-1)


def _rounded(values: ArrayLike) -> ArrayLike:
    """1 - 1e-16 is 1."""
    return values.round(12) if isinstance(values, pd.Series) else np.round(without_nan(values), 12)


def _t_interval(units: Units) -> Estimate:
    error, freedom = standard_error(units)
    half_width = float(stats.t.isf(LEVEL / 2, freedom)) * error if error > 1e-12 else float("nan")
    return Estimate(units.mean, units.mean - half_width, units.mean + half_width, units.records)


def _t_test(units: Units, level: float) -> float:
    error, freedom = standard_error(units)
    distance = abs(units.mean - level)
    if not error > 1e-12:
        return float(distance < 1e-12)
    return 2 * float(stats.t.sf(distance / error, freedom))


def _sign_flips(units: Units) -> tuple[float, float, float]:
    """The two-sided p-value of no change, and the ends of all changes that are not rejected at 5 %.

    Flipping the signs of a part of the units leaves the mean as far from δ as it is exactly where δ is
    between the means of that part and of the rest (Hartigan 1969). Each pattern is thus a range, p the share
    of the ranges that hold zero, and the interval all δ that 5 % of the ranges hold.
    """
    is_flipped = _sign_patterns(int((units.sums != 0).sum()), int((units.sums == 0).sum()))
    # Those that change come first, as in a pattern.
    order = np.argsort(units.sums == 0, kind="stable")
    part_sums = is_flipped @ units.sums[order]  # [patterns]
    part_sizes = is_flipped @ units.sizes[order]
    with np.errstate(invalid="ignore", divide="ignore"):
        part_means = part_sums / part_sizes
        other_means = (units.sums.sum() - part_sums) / (units.sizes.sum() - part_sizes)
    negligible = 1e-9 * np.abs(units.sums).max()
    part_means = np.where(np.abs(part_means) <= negligible, 0.0, part_means)
    other_means = np.where(np.abs(other_means) <= negligible, 0.0, other_means)
    is_whole = (part_sizes == 0) | (part_sizes == units.sizes.sum())  # as far from any δ
    lows = np.where(is_whole, -np.inf, np.minimum(part_means, other_means))
    highs = np.where(is_whole, np.inf, np.maximum(part_means, other_means))
    last_rank = int(np.ceil(LEVEL * len(lows) - 1e-9)) - 1
    low = float(np.partition(lows, last_rank)[last_rank])
    high = -float(np.partition(-highs, last_rank)[last_rank])
    return float(((lows <= 0) & (highs >= 0)).mean()), low, high


@lru_cache(maxsize=16)  # 8 MB each at most, of 16 units
def _sign_patterns(changed: int, unchanged: int) -> Numbers:
    """Which units are flipped, [patterns, changed + unchanged]: of those that change all patterns if few.

    Signs of units that do not change matter for δ ≠ 0 alone: they are drawn.
    """
    generator = np.random.default_rng(0)
    unit_count = changed + unchanged
    if 2**changed > _SIGN_PATTERNS:
        drawn_patterns = generator.integers(2, size=(_DRAWN_PATTERNS, unit_count))
        return np.vstack([np.zeros(unit_count), drawn_patterns]).astype(np.float64)
    all_patterns = (np.arange(2**changed)[:, None] >> np.arange(changed)) & 1
    if 2**unit_count <= _SIGN_PATTERNS:
        return ((np.arange(2**unit_count)[:, None] >> np.arange(unit_count)) & 1).astype(np.float64)
    repeats = -(-_DRAWN_PATTERNS // len(all_patterns))
    all_patterns = np.tile(all_patterns, (repeats, 1))
    drawn_for_others = generator.integers(2, size=(len(all_patterns), unchanged))
    return np.hstack([all_patterns, drawn_for_others]).astype(np.float64)
