"""Intervals and tests against hand-computed values, published examples and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from helpers.results.statistics import (
    Contrast,
    bootstrap_interval,
    fraction_interval,
    holm,
    mean_above,
    mean_interval,
    paired_means,
    paired_proportions,
    paired_shares,
    share_above,
    share_interval,
    unpaired_means,
)

pairs_of = {
    "successes": st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=60),
    "shares": st.lists(
        st.tuples(st.sampled_from([0, 0.5, 1]), st.sampled_from([0, 0.5, 1])),
        min_size=2,
        max_size=40,
    ),
}


def test_mean_interval_by_hand() -> None:
    estimate = mean_interval([1, 2, 3, 4, float("nan")])
    # s = 1.2910, t(3) = 3.1824, half width = 3.1824 * 1.2910 / 2 = 2.0542
    assert (estimate.mean, estimate.n) == (2.5, 4)
    assert estimate.low == pytest.approx(2.5 - 2.0542, abs=1e-4)
    assert estimate.high == pytest.approx(2.5 + 2.0542, abs=1e-4)


def test_without_two_values_there_is_no_interval() -> None:
    estimate = mean_interval([3, float("nan")])
    assert (estimate.mean, estimate.n) == (3, 1)
    assert math.isnan(estimate.low)
    assert math.isnan(bootstrap_interval([3]).high)
    none = mean_interval([float("nan")])
    assert math.isnan(none.mean)
    assert none.n == 0
    assert math.isnan(share_interval([]).mean)


def test_bootstrap_by_hand() -> None:
    """The same draws in plain numpy."""
    values = np.array([0.5, 1, 1, 1, 1, 1, 0, 1])
    drawn = values[np.random.default_rng(3).integers(8, size=(500, 8))].mean(axis=1)
    found = bootstrap_interval([*values, np.nan], resamples=500, seed=3)
    assert (found.low, found.high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]))
    assert found.n == 8


def test_all_successes_leave_a_width() -> None:
    found = share_interval([1] * 36)
    assert (found.mean, found.high, found.n) == (1, 1, 36)
    assert found.low == pytest.approx(0.025 ** (1 / 36))


def test_the_exact_interval_by_its_definition() -> None:
    found = share_interval([1, 1, 0, float("nan"), 0, 0, 0, 0, 0, 0, 0])
    # Known of 2 in 10: P(X >= 2 | low) = P(X <= 2 | high) = 0.025
    assert (found.low, found.high) == pytest.approx((0.0252, 0.5561), abs=1e-4)


def test_shares_are_resampled_by_record_and_stay_in_bounds() -> None:
    values = np.array([0.5, 1, 1, 1, 1, 1, 0, 1])
    found = share_interval(values)
    assert found.mean == pytest.approx(values.mean())
    assert 0 <= found.low < found.mean < found.high <= 1
    assert found == share_interval(values)


def test_a_fractions_interval_is_cut_where_no_mean_lies() -> None:
    found = fraction_interval([1.0, 1.0, 0.7])
    assert (found.mean, found.high) == (pytest.approx(0.9), 1)
    assert found.low == pytest.approx(0.9 - 4.302653 * 0.173205 / 3**0.5, abs=1e-6)


def test_paired_shares_agree_with_newcombes_example() -> None:
    """Newcombe (1998), Statistics in Medicine 17, 2635: 36, 12, 2 and 0 pairs."""
    one = np.repeat([1, 1, 0], [36, 12, 2])
    two = np.repeat([1, 0, 1], [36, 12, 2])
    found = paired_proportions(two, one)
    assert (found.low, found.mean, found.high) == pytest.approx((0.0569, 0.2, 0.3404), abs=1e-4)
    back = paired_proportions(one, two)
    assert (back.low, back.high) == pytest.approx((-found.high, -found.low))


def test_paired_test_by_hand() -> None:
    nan = float("nan")
    found = paired_means([1, nan, 2, 3, 4, 5], [2, 2, 4, 4, 6, nan])
    # differences 1, 2, 1, 2: mean 1.5, s = 0.57735, t = 1.5 / 0.288675 = 5.19615, 3 degrees
    assert (found.difference.mean, found.difference.n) == (1.5, 4)
    assert found.p_value == pytest.approx(0.013847, abs=1e-6)
    assert paired_shares([1, 0.5, 1], [0.5, 0.25, 0]).p_value > 0.05  # too few for the bootstrap
    assert mean_above([1, 2, 4], 0.1).p_value == pytest.approx(
        stats.ttest_1samp([1, 2, 4], 0.1).pvalue
    )


def agrees(contrast: Contrast) -> bool:
    """Whether interval and p-value agree on zero, up to what resampling resolves."""
    outside = contrast.difference.low > 0 or contrast.difference.high < 0
    return outside == (contrast.p_value < 0.05) or abs(contrast.p_value - 0.05) < 1e-3


@pytest.mark.parametrize("kind", pairs_of)
@given(data=st.data())
def test_intervals_and_their_p_values_agree(kind: str, data: st.DataObject) -> None:
    one, two = np.array(data.draw(pairs_of[kind]), dtype=float).T
    assert agrees(paired_shares(one, two))
    assert kind != "successes" or agrees(share_above(one, 0.9))


def test_different_records_by_welchs_test() -> None:
    one, two = [0.1, 0.2, 0.4, np.nan], [0.3, 0.5, 0.5, 0.9]
    wanted = stats.ttest_ind(two, one[:3], equal_var=False)
    assert unpaired_means(one, two).p_value == pytest.approx(wanted.pvalue)
    assert np.isnan(unpaired_means([1.0], [2.0, 3.0]).p_value)


def test_a_success_rate_above_a_level_is_tested_exactly() -> None:
    found = share_above([1] * 104 + [0] * 5, 0.9)
    assert found.difference.low < 0 < found.difference.mean  # MEMIT on SmolLM2: inconclusive
    assert found.p_value == pytest.approx(2 * stats.binom.sf(103, 109, 0.9))
    assert share_above([1] * 106 + [0] * 3, 0.9).difference.low > 0


def test_where_no_record_changes_the_interval_keeps_a_width() -> None:
    found = paired_shares([0.5, 1, 1], [0.5, 1, 1])
    assert found.p_value == 1
    assert found.difference.high == pytest.approx(1 - 0.025 ** (1 / 3))
    assert found.difference.low == -found.difference.high


def test_holm_by_hand() -> None:
    # sorted .005 .01 .03 .04 times 4 3 2 1, never falling
    assert holm([0.01, 0.04, 0.03, np.nan, 0.005]) == pytest.approx(
        [0.03, 0.06, 0.06, np.nan, 0.02], nan_ok=True
    )
    assert holm([]).size == 0
    assert holm([0.9, 0.8]).tolist() == [1, 1]
