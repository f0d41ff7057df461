"""Intervals and tests against hand-computed values, published examples and scipy."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from helpers.results.statistics import (
    FEWEST,
    Estimate,
    Kind,
    fraction_interval,
    holm,
    interval,
    mean_above,
    mean_interval,
    paired,
    positive_interval,
    post_stratified,
    ratio_interval,
    relation_count_of,
    share_interval,
    standard_error,
    unit_draws,
    units_of,
    unpaired_means,
)

KINDS: tuple[Kind, ...] = ("share", "fraction", "number")
NAN = float("nan")


def by_relation(groups: dict[str, list[float]]) -> pd.Series:
    """Values of records, each with its relation."""
    rows = [(relation, value) for relation, values in groups.items() for value in values]
    relations, values = zip(*rows, strict=True)
    index = pd.MultiIndex.from_arrays([range(len(rows)), relations], names=["case_id", "relation"])
    return pd.Series(values, index, dtype=float)


def one_a_relation(values: list[float]) -> pd.Series:
    return by_relation({f"P{number}": [value] for number, value in enumerate(values)})


def test_mean_interval_by_hand() -> None:
    estimate = mean_interval([1, 2, 3, 4, NAN])
    # s = 1.2910, t(3) = 3.1824, half width = 3.1824 * 1.2910 / 2 = 2.0542
    assert (estimate.mean, estimate.n) == (2.5, 4)
    assert estimate.low == pytest.approx(2.5 - 2.0542, abs=1e-4)
    assert estimate.high == pytest.approx(2.5 + 2.0542, abs=1e-4)


def test_without_two_values_there_is_no_interval() -> None:
    estimate = mean_interval([3, NAN])
    assert (estimate.mean, estimate.n) == (3, 1)
    assert math.isnan(estimate.low)
    assert math.isnan(fraction_interval([0.5]).high)
    for kind in KINDS:
        none = interval([NAN], kind)
        assert math.isnan(none.mean)
        assert none.n == 0


def test_numbers_that_are_all_equal_have_no_interval() -> None:
    found = mean_interval([2.0, 2.0, 2.0])
    assert found.mean == 2
    assert math.isnan(found.low)
    assert math.isnan(paired([1.0, 2.0], [1.0, 2.0], "number").difference.high)


def test_a_fractional_record_moves_a_shares_interval_by_its_part_only() -> None:
    """One rule for all three: the ends are those of the beta distribution, and rise with the sum."""
    found = [share_interval([1] * 35 + [last]) for last in (0, 2 / 3, 1)]
    assert [each.mean for each in found] == pytest.approx([35 / 36, (35 + 2 / 3) / 36, 1])
    assert [each.low for each in found] == pytest.approx([0.854711, 0.885472, 0.902606], abs=1e-6)
    assert [each.high for each in found] == pytest.approx([0.999297, 1, 1], abs=1e-6)
    assert found[2].low == pytest.approx(0.025 ** (1 / 36))


def test_the_exact_interval_by_its_definition() -> None:
    found = share_interval([1, 1, 0, NAN, 0, 0, 0, 0, 0, 0, 0])
    # Known of 2 in 10: P(X >= 2 | low) = P(X <= 2 | high) = 0.025
    assert (found.low, found.high) == pytest.approx((0.0252, 0.5561), abs=1e-4)


def test_a_fractions_interval_has_a_width_where_all_values_are_equal() -> None:
    """36 times 1, and one 0 and one 1: mean 37/38, s = 0.162221, t(37) = 2.026192."""
    found = fraction_interval([1.0] * 36)
    assert (found.mean, found.high) == (1, 1)
    assert found.low == pytest.approx(37 / 38 - 2.026192 * 0.162221 / 38**0.5, abs=1e-5)


def test_units_are_relations_where_there_are_enough() -> None:
    groups = {f"P{number}": [0.5] for number in range(FEWEST - 1)}
    few, enough = by_relation(groups), by_relation({**groups, "P47": [0.1, 0.9, 0.8]})
    assert (units_of(few).relation_count, units_of(few).by_relation) == (7, False)
    assert units_of(few).sizes.tolist() == [1] * 7
    assert (units_of(enough).relation_count, units_of(enough).by_relation) == (8, True)
    assert sorted(units_of(enough).sizes) == [1] * 7 + [3]
    assert units_of(enough).mean == pytest.approx(enough.mean())
    assert units_of([1.0, NAN]).relation_count is None


def test_records_of_unknown_relations_are_tested_by_record() -> None:
    """A run whose records have no known relation is no run of zero relations."""
    index = pd.MultiIndex.from_product([range(10), [float("nan")]], names=["case_id", "relation"])
    first, second = pd.Series(0.0, index), pd.Series(np.arange(1.0, 11.0), index)
    assert relation_count_of(second) is None
    by_record = paired(first.to_numpy(), second.to_numpy(), "number")
    assert paired(first, second, "number") == by_record
    assert relation_count_of(second.where(second < 0)) == 0  # no value is of no relation


def test_the_robust_error_of_relations_of_one_record_is_the_usual_one() -> None:
    values = [0.2, 0.9, 0.4, 0.4, 0.7, 0.1, 0.6, 0.8, 0.3]
    error, freedom = standard_error(units_of(one_a_relation(values)))
    assert error == pytest.approx(np.std(values, ddof=1) / 3)
    assert freedom == pytest.approx(8)
    for kind in ("fraction", "number"):
        assert vars(interval(one_a_relation(values), kind)) == pytest.approx(
            vars(interval(values, kind))
        )


def test_the_robust_error_of_unequal_relations_by_the_matrices_of_its_definition() -> None:
    """Bell and McCaffrey (2002): residuals over the root of one minus leverage; moments of the sum."""
    rng = np.random.default_rng(1)
    sizes = [1, 1, 2, 2, 3, 4, 6, 9]
    values = by_relation({f"P{i}": list(rng.random(n)) for i, n in enumerate(sizes)})
    total = sum(sizes)
    residual_maker = np.eye(total) - np.ones((total, total)) / total
    labels = pd.factorize(values.index.get_level_values("relation"))[0]
    variance, columns = 0.0, []
    for unit, n in enumerate(sizes):
        inside = (labels == unit).astype(float)
        adjusted = inside / (1 - n / total) ** 0.5 / total
        variance += float(adjusted @ residual_maker @ values.to_numpy()) ** 2
        columns.append(residual_maker @ adjusted)
    products = np.array(columns) @ np.array(columns).T
    error, freedom = standard_error(units_of(values))
    assert error == pytest.approx(variance**0.5)
    assert freedom == pytest.approx(np.trace(products) ** 2 / (products**2).sum())
    assert freedom < 5  # of eight relations the largest has a third of the records


def test_records_of_one_relation_count_less_than_independent_ones() -> None:
    values = by_relation({f"P{number}": [float(number % 2)] * 5 for number in range(10)})
    whole, alone = share_interval(values), share_interval(values.to_numpy())
    assert whole.high - whole.low > 1.8 * (alone.high - alone.low)


def test_five_of_38_changes_are_not_significant_and_six_are() -> None:
    """2 of 2^5 and 2 of 2^6 sign patterns are as extreme, whatever the other records are."""
    before = np.ones(38)
    for changed, p_value in ((5, 0.0625), (6, 0.03125)):
        after = before.copy()
        after[:changed] = (0, 0.5, 0, 0, 0, 0)[:changed]
        found = paired(before, after, "share")
        assert found.p_value == p_value
        assert (found.difference.high < 0) == (p_value < 0.05)


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=9))
def test_sign_flips_by_enumeration(changes: list[int]) -> None:
    values = np.array(changes) / 3
    signs = np.array(list(product((1, -1), repeat=len(changes))))
    extreme = np.abs(signs @ values) >= abs(values.sum()) - 1e-12
    assert paired(np.zeros(len(values)), values, "share").p_value == pytest.approx(extreme.mean())


def test_an_interval_holds_what_the_test_does_not_reject() -> None:
    """Of nine numbers: p at the ends of the interval is at least 0.05, and just outside below it."""
    changes = np.array([0.4, 0.1, 0.7, -0.2, 0.5, 0.3, 0.9, 0.2, -0.1])
    signs = np.array(list(product((1, -1), repeat=9)))

    def p_value(shift: float) -> float:
        moved = changes - shift
        return float((np.abs(signs @ moved) >= abs(moved.sum()) - 1e-12).mean())

    found = paired(np.zeros(9), changes, "number").difference
    usual = mean_interval(changes)
    assert found.low <= usual.low + 1e-9
    assert found.high >= usual.high - 1e-9
    for end, outwards in ((found.low, -1), (found.high, 1)):
        assert p_value(end + outwards * 1e-6) < 0.05


def test_many_changes_are_drawn_and_the_observed_one_is_among_them() -> None:
    found = paired(np.zeros(40), np.ones(40), "fraction")
    assert found.p_value == pytest.approx(1 / 10_000)


def test_relations_are_flipped_as_a_whole() -> None:
    """Ten records change, all of one relation: 2 of 2 patterns are as extreme."""
    groups = {f"P{number}": [0.0, 0.0] for number in range(9)}
    before = by_relation({**groups, "P47": [1.0] * 10})
    after = before * 0
    found = paired(before, after, "share")
    assert (found.p_value, found.relation_count) == (1, 10)
    assert paired(before.to_numpy(), after.to_numpy(), "share").p_value < 0.01


def test_of_too_few_relations_there_is_no_test() -> None:
    before = by_relation({"<playsFor>": [0.1] * 20, "re_<playsFor>": [0.2] * 20})
    found = paired(before, before + 0.5, "fraction")
    assert found.too_few_relations
    assert math.isnan(found.p_value)
    assert found.difference.low > 0  # by record
    assert math.isnan(mean_above(before, 0.9, "share").p_value)
    assert math.isnan(unpaired_means(before, before + 0.5).p_value)


def test_of_equal_changes_the_interval_is_that_change() -> None:
    found = paired(np.zeros(6), np.full(6, 0.5), "number")
    assert found.p_value == 2 / 2**6
    assert found.difference == Estimate(0.5, 0.5, 0.5, 6)
    unchanged = paired(np.ones(6), np.ones(6), "number")
    assert math.isnan(unchanged.difference.low)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_intervals_exclude_zero_where_their_test_rejects(kind: Kind, data: st.DataObject) -> None:
    value = st.sampled_from([0, 0.5, 1])
    pairs = data.draw(st.lists(st.tuples(value, value), min_size=2, max_size=40))
    one, two = np.array(pairs, dtype=float).T
    found = paired(one, two, kind)
    outside = found.difference.low > 0 or found.difference.high < 0
    assert outside == (found.p_value < 0.05)
    if kind != "number":
        above_nine = mean_above(one, 0.9, kind)
        away = above_nine.difference.low > 0 or above_nine.difference.high < 0
        assert away == (above_nine.p_value < 0.05)


def test_a_success_rate_above_a_level_is_tested_exactly() -> None:
    found = mean_above([1] * 104 + [0] * 5, 0.9, "share")
    assert found.difference.low < 0 < found.difference.mean
    assert found.p_value == pytest.approx(2 * stats.binom.sf(103, 109, 0.9))
    assert mean_above([1] * 106 + [0] * 3, 0.9, "share").difference.low > 0
    assert mean_above([1, 2, 4], 0.1, "number").p_value == pytest.approx(
        stats.ttest_1samp([1, 2, 4], 0.1).pvalue
    )


def test_where_no_record_changes_the_interval_keeps_a_width() -> None:
    """A gain and a loss beside 36 zeros: s = sqrt(2 / 37), half width t(37) · s / sqrt(38)."""
    found = paired(np.ones(36), np.ones(36), "share")
    assert found.p_value == 1
    assert found.difference.high == pytest.approx(2.026192 * (2 / 37 / 38) ** 0.5, abs=1e-6)
    assert found.difference.low == -found.difference.high
    exact = 1 - 0.025 ** (1 / 36)  # of how many may change in one direction
    assert found.difference.high == pytest.approx(exact, abs=0.025)


def test_different_records_by_welchs_test() -> None:
    one, two = [0.1, 0.2, 0.4, np.nan], [0.3, 0.5, 0.5, 0.9]
    wanted = stats.ttest_ind(two, one[:3], equal_var=False)
    assert unpaired_means(one, two).p_value == pytest.approx(wanted.pvalue)
    assert np.isnan(unpaired_means([1.0], [2.0, 3.0]).p_value)
    assert np.isnan(unpaired_means([1.0, 1.0], [1.0, 1.0 - 1e-16]).p_value)


def test_positive_means_and_ratios_have_positive_ends() -> None:
    values = [0.001, 0.2, 0.004, 0.02]
    found, plain = positive_interval(values), mean_interval(values)
    assert plain.low < 0 < found.low < found.mean < found.high
    assert math.log(found.high / found.mean) == pytest.approx(plain.high / plain.mean - 1)
    ratio = ratio_interval([2.0, 2.2, 1.8], [1.0, 1.1, 0.9])
    assert ratio.mean == pytest.approx(2)
    assert ratio.low * ratio.high == pytest.approx(4)
    # s / mean is 0.1 in both: error sqrt(2 · 0.01 / 3) of the logarithm, t(4) = 2.776445
    assert math.log(ratio.high / 2) == pytest.approx(2.776445 * (0.02 / 3) ** 0.5, abs=1e-6)


def test_holm_by_hand() -> None:
    # sorted .005 .01 .03 .04 times 4 3 2 1, never falling
    assert holm([0.01, 0.04, 0.03, np.nan, 0.005]) == pytest.approx(
        [0.03, 0.06, 0.06, np.nan, 0.02], nan_ok=True
    )
    labelled = pd.Series([0.04, 0.01], ["b", "a"])  # in its own order, not that of its labels
    assert holm(labelled).tolist() == [0.04, 0.02]
    assert holm([]).size == 0
    assert holm([0.9, 0.8]).tolist() == [1, 1]


def test_post_stratified_means_by_hand() -> None:
    relations = ["P1", "P1", "P1", "P1", "P2", "P3", "P4"]
    index = pd.Index(relations, name="relation")
    values = pd.Series([1.0, 1.0, 1.0, 0.0, 0.0, np.nan, 1.0], index=index)
    # P3 has no value, P5 no record, and P4 is not in the population: (0.2 * 0.75 + 0.3 * 0) / 0.5
    mean, covered = post_stratified(values, {"P1": 0.2, "P2": 0.3, "P3": 0.4, "P5": 0.1})
    assert (mean, covered) == pytest.approx((0.3, 0.5))
    shares = {"P1": 4 / 6, "P2": 1 / 6, "P4": 1 / 6}  # as in the sample: the mean over records
    assert post_stratified(values, shares) == pytest.approx((values.mean(), 1.0))
    nothing, none = post_stratified(values, {"P9": 1.0})
    assert math.isnan(nothing)
    assert none == 0


def test_relations_are_drawn_whole_where_there_are_enough():
    relations = ["a", "b", "c", "d", "e", "f", "g", "h", "h", "h"]
    sample, *draws = unit_draws(_by_relation(relations), draws=100)
    counts = np.array(draws)
    assert (sample == 1).all()
    assert len(draws) == 100
    assert (counts[:, 7] == counts[:, 8]).all()
    assert (counts[:, 7] == counts[:, 9]).all()
    assert (counts[:, :8].sum(1) == 8).all()
    too_few_relations = unit_draws(_by_relation(["a", "b", "b"]))[1:]
    assert (too_few_relations.sum(1) == 3).all()
    assert (too_few_relations[:, 1] != too_few_relations[:, 2]).any()


def _by_relation(relations):
    index = pd.MultiIndex.from_arrays(
        [range(len(relations)), relations], names=["case_id", "relation"]
    )
    return pd.Series(1.0, index)
