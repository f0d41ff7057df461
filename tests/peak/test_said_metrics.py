"""Measures of what a model says, worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.peak.said_metrics import MEASURES, NOTHING, rank_correlation, said_metrics

TARGET, HARD, RANDOM = ("target", 0), ("hard", 1), ("random", 0)


def said(*samples, case_id=7):
    """A table of samples, each a list of (list, index) pairs."""
    rows = [(case_id, i, *place) for i, named in enumerate(samples) for place in named or [NOTHING]]
    return pd.DataFrame(rows, columns=["case_id", "sample", "list", "answer_index"])


def correct(index):
    return ("correct", index)


def test_worked_case():
    # Before: correct 0, 1, 2 in four of five samples; hard 1 in one.
    before = said([correct(0)], [correct(1), correct(0)], [correct(2)], [correct(0), HARD], [])
    # After: correct 0 and 3 in two samples; hard 1 and random 0 in two; the target in two.
    after = said([correct(0), TARGET], [correct(3)], [HARD], [RANDOM], [TARGET])
    row = said_metrics(before, after).loc[7]
    assert row["named_before"] == 3
    assert row["list_forgetting"] == pytest.approx(2 / 3)  # 1 and 2 of {0, 1, 2}
    assert row["list_noise"] == pytest.approx(1 / 5)  # random 0 of {0, 3, hard 1, random 0, target}
    assert row["share_forgetting"] == pytest.approx(1 - (2 / 5) / (4 / 5))
    assert row["share_noise"] == pytest.approx(2 / 5 - 1 / 5)
    assert row["target_share"] == pytest.approx(2 / 5)


def test_undefined_where_there_is_nothing_to_lose_or_to_hear():
    silent, loud = said([], []), said([correct(0)], [HARD])
    row = said_metrics(silent, loud).loc[7]
    assert math.isnan(row["list_forgetting"])
    assert math.isnan(row["share_forgetting"])
    row = said_metrics(loud, silent).loc[7]
    assert row["list_forgetting"] == 1
    assert row["share_forgetting"] == 1
    assert math.isnan(row["list_noise"])
    assert row["share_noise"] == 0


def test_only_records_in_both_tables_count():
    before = pd.concat([said([correct(0)], case_id=1), said([correct(0)], case_id=2)])
    assert said_metrics(before, said([TARGET], case_id=2)).index.tolist() == [2]


places = st.sampled_from([TARGET, HARD, RANDOM, correct(0), correct(1)])
samples = st.lists(st.lists(places, max_size=3, unique=True), min_size=1, max_size=6)


@given(samples, samples)
def test_measures_are_shares(before, after):
    values = said_metrics(said(*before), said(*after))[list(MEASURES)].to_numpy(float)
    values = values[~np.isnan(values)]
    assert (values >= 0).all()
    assert (values <= 1).all()


@given(samples)
def test_nothing_changed_is_nothing_lost(one):
    row = said_metrics(said(*one), said(*one)).loc[7]
    for measure in ("list_forgetting", "list_noise", "share_forgetting", "share_noise"):
        assert math.isnan(row[measure]) or row[measure] == 0


def test_rank_correlation_of_four_pairs_by_hand():
    # Ranks 1 2 3 4 against 2 1 4 3: rho = 1 - 6 * 4 / (4 * 15).
    result = rank_correlation([0.1, 0.2, 0.3, 0.4, np.nan], [0.5, 0.2, 0.9, 0.7, 0.1])
    assert result.rho == pytest.approx(0.6)
    assert result.n == 4
    assert math.isnan(rank_correlation([1, 1, 1], [1, 2, 3]).rho)
    assert rank_correlation([1, 2], [1, 2]).n == 2
    with pytest.raises(ValueError, match="inhomogeneous"):
        rank_correlation([1, 2], [1])
