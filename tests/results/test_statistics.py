"""Intervals and paired tests against hand-computed values and scipy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from helpers.results.statistics import bootstrap_interval, mean_interval, paired_test

numbers = st.lists(st.floats(-100, 100), min_size=2, max_size=30)


def test_mean_interval_by_hand() -> None:
    estimate = mean_interval([1, 2, 3, 4, float("nan")])
    # s = 1.2910, t(3) = 3.1824, half width = 3.1824 * 1.2910 / 2 = 2.0542
    assert (estimate.mean, estimate.n) == (2.5, 4)
    assert estimate.low == pytest.approx(2.5 - 2.0542, abs=1e-4)
    assert estimate.high == pytest.approx(2.5 + 2.0542, abs=1e-4)


def test_one_value_has_a_mean_and_no_interval() -> None:
    estimate = mean_interval([3, float("nan")])
    assert (estimate.mean, estimate.n) == (3, 1)
    assert math.isnan(estimate.low)
    assert math.isnan(bootstrap_interval([3]).high)


def test_no_value_has_no_mean() -> None:
    estimate = mean_interval([float("nan")])
    assert math.isnan(estimate.mean)
    assert estimate.n == 0


@given(numbers)
def test_mean_interval_agrees_with_scipy(values: list[float]) -> None:
    estimate = mean_interval(values, confidence=0.9)
    assert estimate.low <= estimate.mean <= estimate.high
    if np.std(values) > 1e-6:
        wanted = stats.ttest_1samp(values, 0).confidence_interval(0.9)
        assert (estimate.low, estimate.high) == pytest.approx((wanted.low, wanted.high))


def test_bootstrap_is_seeded_and_close_to_student_for_many_records() -> None:
    values = np.random.default_rng(1).normal(size=400)
    one, again = (bootstrap_interval(values, resamples=2000, seed=5) for _ in range(2))
    assert one == again
    assert one != bootstrap_interval(values, resamples=2000, seed=6)
    student = mean_interval(values)
    assert one.mean == pytest.approx(student.mean)
    assert (one.low, one.high) == pytest.approx((student.low, student.high), abs=0.01)


@given(numbers, st.integers(0, 100))
def test_bootstrap_stays_within_the_values(values: list[float], seed: int) -> None:
    estimate = bootstrap_interval(values, resamples=50, seed=seed)
    assert min(values) - 1e-9 <= estimate.low <= estimate.high <= max(values) + 1e-9


def test_paired_test_by_hand() -> None:
    test = paired_test([1, 2, 3, 4], [2, 4, 4, 6])
    # differences 1, 2, 1, 2: mean 1.5, s = 0.57735, t = 1.5 / 0.288675 = 5.19615, 3 degrees
    assert test.difference == 1.5
    assert test.n == 4
    assert test.p_value == pytest.approx(0.013847, abs=1e-6)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=3, max_size=20))
def test_paired_test_agrees_with_scipy(pairs: list[tuple[float, float]]) -> None:
    first, second = np.array(pairs).T
    if np.std(second - first) > 1e-6:
        wanted = stats.ttest_rel(second, first).pvalue
        assert paired_test(first, second).p_value == pytest.approx(wanted)
        assert paired_test(second, first).p_value == pytest.approx(wanted)


def test_undefined_records_drop_out_in_pairs() -> None:
    nan = float("nan")
    test = paired_test([1, nan, 3, 4, 5], [2, 2, nan, 6, 9])
    assert test == paired_test([1, 4, 5], [2, 6, 9])
    assert test.n == 3


def test_degenerate_pairs() -> None:
    assert paired_test([1, 2], [1, 2]).p_value == 1
    assert paired_test([1, 2], [2, 3]).p_value == 0
    assert math.isnan(paired_test([1], [2]).p_value)
    with pytest.raises(ValueError, match="equal lengths"):
        paired_test([1], [1, 2])
