"""Intervals of shares against published examples, hand-computed bounds and scipy."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.results.proportions import (
    fraction_interval,
    paired_proportions,
    proportion_interval,
    share_interval,
)


def test_all_successes_leave_a_width() -> None:
    found = proportion_interval([1] * 36)
    assert (found.mean, found.high, found.n) == (1, 1, 36)
    assert found.low == pytest.approx(0.025 ** (1 / 36))


def test_the_exact_interval_by_its_definition() -> None:
    found = proportion_interval([1, 1, 0, float("nan"), 0, 0, 0, 0, 0, 0, 0])
    # Known of 2 in 10: P(X >= 2 | low) = P(X <= 2 | high) = 0.025
    assert (found.low, found.high) == pytest.approx((0.0252, 0.5561), abs=1e-4)
    with pytest.raises(ValueError, match="0 or 1"):
        proportion_interval([0.5, 1])


def test_shares_are_resampled_by_record_and_stay_in_bounds() -> None:
    values = np.array([0.5, 1, 1, 1, 1, 1, 0, 1])
    found = share_interval(values)
    assert found.mean == pytest.approx(values.mean())
    assert 0 <= found.low < found.mean < found.high <= 1
    assert found == share_interval(values)
    assert share_interval([1.0] * 8) == proportion_interval([1] * 8)
    assert np.isnan(share_interval([]).mean)


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


def test_no_change_is_not_certainty() -> None:
    found = paired_proportions([1, 1, 1, 1], [1, 1, 1, 1])
    assert found.mean == 0
    assert found.low < -0.3
    assert found.high > 0.3
