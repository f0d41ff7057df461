"""Verdicts and corrections: each p-value belongs to its interval."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from helpers.results.evidence import (
    Contrast,
    Evidence,
    findings_table,
    holm,
    in_points,
    mark,
    mean_above,
    paired_means,
    paired_shares,
    share_above,
    unpaired_means,
)
from helpers.results.statistics import Estimate

binary = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=60)
shares = st.lists(
    st.tuples(st.sampled_from([0, 0.5, 1]), st.sampled_from([0, 0.5, 1])), min_size=2, max_size=40
)


def agrees(contrast: Contrast) -> bool:
    """Whether interval and p-value say the same of zero, up to what resampling resolves."""
    outside = contrast.difference.low > 0 or contrast.difference.high < 0
    return outside == (contrast.p_value < 0.05) or abs(contrast.p_value - 0.05) < 1e-3


@given(binary)
def test_successes_and_their_p_value_agree(pairs: list[tuple[bool, bool]]) -> None:
    one, two = np.array(pairs, dtype=float).T
    assert agrees(paired_shares(one, two))
    assert agrees(share_above(one, 0.9))


@given(shares)
def test_shares_and_their_p_value_agree(pairs: list[tuple[float, float]]) -> None:
    one, two = np.array(pairs).T
    assert agrees(paired_shares(one, two))


def test_means_by_the_t_test() -> None:
    one, two = np.array([0.1, 0.2, 0.4, np.nan]), np.array([0.3, 0.5, 0.5, 0.9])
    found = paired_means(one, two)
    wanted = stats.ttest_rel(two[:3], one[:3])
    assert found.p_value == pytest.approx(wanted.pvalue)
    assert found.difference.n == 3
    assert mean_above(one[:3], 0.1).p_value == pytest.approx(stats.ttest_1samp(one[:3], 0.1).pvalue)
    apart = unpaired_means(one, two)
    assert apart.p_value == pytest.approx(stats.ttest_ind(two, one[:3], equal_var=False).pvalue)
    assert np.isnan(unpaired_means([1.0], [2.0, 3.0]).p_value)


def test_a_success_rate_above_a_level_is_tested_exactly() -> None:
    found = share_above([1] * 104 + [0] * 5, 0.9)
    assert found.difference.low < 0 < found.difference.mean  # MEMIT on SmolLM2: open
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


def test_the_table_says_what_survives_holms_correction() -> None:
    strong = Contrast(Estimate(0.2, 0.1, 0.3, 9), 0.001)
    weak, against = (
        Contrast(Estimate(0.2, 0.01, 0.39, 9), 0.04),
        Contrast(Estimate(-0.2, -0.3, -0.1, 9), 0.002),
    )
    table = findings_table([Evidence("f", "m", item) for item in (strong, weak, against)])
    assert table["verdict"].tolist() == ["holds", "holds", "reversed"]
    assert table["Holm"].tolist() == ["holds", "holds", "reversed"]
    many = findings_table([Evidence("f", "m", item) for item in (strong, weak, weak, against)])
    assert many["Holm"].tolist() == ["holds", "inconclusive", "inconclusive", "reversed"]
    assert findings_table([]).empty


def test_points_are_symmetric_or_bracketed() -> None:
    assert in_points(Estimate(0.876, 0.837, 0.915, 112)) == "87.6 ± 3.9"
    assert in_points(Estimate(1.0, 0.9, 1.0, 36)) == "100.0 [90.0, 100.0]"
    assert in_points(Estimate(0.1, 0.003, 0.1, 36), signed=True) == "+10.0 [+0.3, +10.0]"
    nan = float("nan")
    assert in_points(Estimate(0.5, nan, nan, 1)) == "50.0"
    assert in_points(Estimate(nan, nan, nan, 0)) == "n/a"


def test_marks_tell_gain_from_loss() -> None:
    plain, low = [0.5, 0.6, 0.7, 0.6], [0.3, 0.3, 0.5, 0.3]
    fallen = paired_means(plain, low)
    assert mark(fallen, higher_is_better=False) == "†"
    assert mark(fallen, higher_is_better=True) == "‡"
    assert mark(paired_means(plain, plain), higher_is_better=True) == ""
    assert mark(paired_means([1], [0]), higher_is_better=True) == ""
