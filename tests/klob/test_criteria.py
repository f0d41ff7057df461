"""Criteria tables from long tables, and the locality test on planted curves."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from helpers.klob.criteria import (
    baseline_gap,
    criteria_table,
    rsd_table,
    rsim_table,
    with_rsim,
)
from helpers.klob.locality import locality_test, rank_correlations


@pytest.fixture
def similarities() -> pd.DataFrame:
    rows = [
        ("a", "consistency", "neuron", 0.01, 0.6, 0.2, 0.1),
        ("a", "consistency", "neuron", 0.01, 0.2, 0.2, 0.1),
        ("a", "relevance", "neuron", 0.01, 0.1, 0.2, 0.1),
        ("a", "consistency", "neuron", 0.05, 1.0, 0.2, 0.1),
        ("b", "consistency", "layer", 0.01, 1.0, 1.0, 1.0),
    ]
    columns = ["locator", "subtask", "granularity", "share", "candidate", "mean_scores", "pairwise"]
    return pd.DataFrame(rows, columns=columns)


@pytest.fixture
def sentences() -> pd.DataFrame:
    rows = [
        ("a", "consistency", "neuron", 4.0, 2.0),
        ("a", "relevance", "neuron", 2.0, 1.0),
        ("a", "unbiasedness", "neuron", 1.5, 0.75),
        ("b", "consistency", "layer", 1.0, 1.0),
    ]
    columns = ["locator", "subtask", "granularity", "deviation", "magnitude"]
    return pd.DataFrame(rows, columns=columns)


def test_rsim_by_hand(similarities: pd.DataFrame) -> None:
    assert with_rsim(similarities)["rsim_mean_scores"].tolist() == pytest.approx(
        [0.5, 0, -0.125, 1, 0]
    )
    table = rsim_table(similarities).set_index(["locator", "subtask", "share"])
    row = table.loc[("a", "consistency", 0.01)]
    assert row["mean"] == pytest.approx(0.25)
    assert row["low"] <= 0.25 <= row["high"]
    assert row["n"] == 2
    exact = rsim_table(similarities, baseline="pairwise").set_index(["locator", "share"])
    assert exact.loc[("a", 0.05), "mean"] == pytest.approx(1)


def test_rsd_by_hand(sentences: pd.DataFrame) -> None:
    table = rsd_table(sentences).set_index("locator")
    assert table.loc["a", "mean"] == pytest.approx(1 - 1.5 / 3)
    assert np.isnan(table.loc["b", "mean"])  # no random sentences
    relative = rsd_table(sentences, relative=True).set_index("locator")
    assert relative.loc["a", "mean"] == pytest.approx(0)  # spread only followed the magnitude


def test_criteria_table_joins_all_three(
    similarities: pd.DataFrame, sentences: pd.DataFrame
) -> None:
    table = criteria_table(similarities, sentences, granularity="neuron")
    assert table.set_index("criterion")["mean"].to_dict() == pytest.approx(
        {"consistency": 0.25, "relevance": -0.125, "unbiasedness": 0.5}
    )


def test_baseline_gap(similarities: pd.DataFrame) -> None:
    row = baseline_gap(similarities).query("locator == 'a' and subtask == 'relevance'").iloc[0]
    assert row["gap"] == pytest.approx(-0.125 - 0)


def test_rank_correlations_are_spearmans() -> None:
    generator = np.random.default_rng(0)
    mass, outcome = generator.normal(size=(2, 3, 9))
    table = rank_correlations(mass, outcome)
    for i in range(3):
        for j in range(3):
            expected = stats.spearmanr(mass[i], outcome[j]).statistic
            assert table[i, j] == pytest.approx(expected)
    outcome[1] = 1.0
    assert np.isnan(rank_correlations(mass, outcome)[:, 1]).all()


def test_locality_test_tells_facts_from_layers() -> None:
    generator = np.random.default_rng(0)
    facts = generator.normal(size=(20, 30))
    planted = locality_test(facts, facts + 0.1 * generator.normal(size=facts.shape))
    assert planted.own.mean > 0.9
    assert planted.specific.low > 0.8
    assert planted.p_value < 0.01
    common = np.linspace(0, 5, 30)
    shared = locality_test(common + facts, common + generator.normal(size=facts.shape))
    assert shared.own.mean > 0.4  # all facts like the late layers
    assert shared.average > 0.8
    assert abs(shared.specific.mean) < 0.1
    assert shared.p_value > 0.05


def test_locality_test_needs_matching_curves() -> None:
    with pytest.raises(ValueError, match="facts"):
        locality_test(np.zeros((1, 4)), np.zeros((1, 4)))
    with pytest.raises(ValueError, match="equal"):
        locality_test(np.zeros((3, 4)), np.zeros((3, 5)))
