"""Which measure predicts naming: AUCs worked out by hand, and what APP costs under each scorer."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from helpers.behaviour import prediction
from helpers.behaviour.agreement import app_cost_by_scorer, app_cost_table
from helpers.behaviour.prediction import contrast_of, estimate_of, prediction_of, predictor_table
from helpers.results.statistics import unit_draws


def states_of(**named_by_method: list[float]) -> dict[str, pd.DataFrame]:
    """States whose P(o*) counts up and whose ES is always 1; naming is given, a value a record."""
    states = {}
    for method, named in {"unedited": [0.0], **named_by_method}.items():
        n = len(named)
        measures = {
            "P(o*)": np.arange(n) / n,
            "tokens": np.arange(n)[::-1] / n,
            "GS": np.ones(n),
            "ES": np.ones(n),
            "free, greedy": named,
        }
        states[method] = pd.DataFrame(measures, pd.RangeIndex(n, name="case_id"))
    return states


def test_an_auc_is_the_share_of_pairs_ranked_right():
    found = prediction_of(states_of(ROME=[0.0, 1.0, 0.0, 1.0]))
    # P(o*) 0, 1/4, 2/4, 3/4: of the four pairs of a named and an unnamed edit three are ranked right.
    assert found.within["P(o*)"][0] == pytest.approx(3 / 4)
    assert found.within["tokens"][0] == pytest.approx(1 / 4)
    assert found.within["ES"][0] == pytest.approx(1 / 2)  # ties
    assert (found.edits, found.named, found.methods) == (4, 2, 1)


def test_pairs_of_two_methods_count_across_only():
    """Each method ranks its edits at random; but MEMIT's are named and higher, ROME's are not."""
    states = states_of(ROME=[0.0, 0.0, 0.0, 1.0], MEMIT=[1.0, 1.0, 1.0, 0.0], KN=[1.0, 1.0])
    states["ROME"]["P(o*)"] = [0.1, 0.2, 0.2, 0.15]
    states["MEMIT"]["P(o*)"] = [0.6, 0.7, 0.8, 0.65]
    found = prediction_of(states)
    # Within: ROME's named edit is above one of three; of MEMIT's three named ones two are above.
    assert found.within["P(o*)"][0] == pytest.approx((1 + 2) / 6)
    # Across: MEMIT's three are above all three of ROME's as well, ROME's one is below MEMIT's unnamed.
    assert found.across["P(o*)"][0] == pytest.approx((1 + 2 + 9) / 16)
    assert (found.edits, found.named, found.methods) == (8, 4, 2)  # without KN


def test_a_method_that_names_all_or_nothing_has_no_pairs_within():
    found = prediction_of(states_of(ROME=[0.0, 1.0, 0.0, 1.0], MEMIT=[1.0, 1.0]))
    assert found.within["P(o*)"][0] == pytest.approx(3 / 4)


def test_without_pairs_there_is_no_auc():
    found = prediction_of(states_of(ROME=[0.0, 0.0, 0.0, 0.0]))
    assert np.isnan(found.within["P(o*)"]).all()


def test_an_edit_without_a_measure_is_omitted_for_all_measures():
    states = states_of(ROME=[0.0, 1.0, 0.0, 1.0])
    states["ROME"].loc[1, "ES"] = np.nan
    found = prediction_of(states)
    assert found.edits == 3
    assert found.within["P(o*)"][0] == pytest.approx(1)


def test_weights_of_the_bootstrap_are_counts_of_records():
    """A draw's AUC is that of the sample in which each record occurs as often as it was drawn."""
    named = [0.0, 1.0, 0.0, 1.0, 1.0, 0.0]
    found = prediction_of(states_of(ROME=named))
    weights = unit_draws(pd.Series(1.0, pd.RangeIndex(6, name="case_id")))
    draw = next(d for d in range(1, 50) if not np.isnan(found.within["P(o*)"][d]))
    drawn = np.repeat(np.arange(6), weights[draw].astype(int))
    pairs = [(a, b) for a in drawn for b in drawn if named[a] and not named[b]]
    assert found.within["P(o*)"][draw] == pytest.approx(np.mean([a > b for a, b in pairs]))


def test_a_difference_is_decided_by_its_draws():
    below = np.concatenate([[0.5], np.linspace(0.4, 0.6, 100)])
    contrast = contrast_of(below + 0.3, below, 9)
    assert contrast.difference.mean == pytest.approx(-0.3)
    assert contrast.p_value == pytest.approx(2 / 101)
    assert contrast_of(below, below, 9).p_value == 1
    assert np.isnan(estimate_of(np.full(100, np.nan), 9).low)


def test_the_table_compares_with_the_probability():
    rng = np.random.default_rng(0)
    states = states_of(ROME=list((np.arange(200) > 100).astype(float)))
    states["ROME"]["GS"] = rng.uniform(size=200)
    table = predictor_table(states).table.set_index("measure")
    assert table.loc["P(o*)", "AUC within methods"].startswith("1.00")
    assert table.loc["P(o*)", "Holm"] == "–"
    assert table.loc["GS", "Holm"] == "significant"
    assert table.loc["ES", "minus P(o*)"].startswith("-0.50 [-0.50, -0.50]")
    assert list(table.index) == list(prediction.PREDICTORS.values())


def test_the_cost_of_app_is_a_mean_over_editors_then_over_records():
    states = {
        "unedited": pd.DataFrame({"ES": [0.0]}),
        "ROME": pd.DataFrame({"ES": [1.0, 1.0, 1.0], "free, greedy": [1.0, 1.0, np.nan]}),
        "ROME+APP": pd.DataFrame({"ES": [1.0, 0.0, 1.0], "free, greedy": [0.0, 0.0, 0.0]}),
        "MEMIT": pd.DataFrame({"ES": [1.0, 1.0, 1.0], "free, greedy": [1.0, 0.0, 1.0]}),
        "MEMIT+APP": pd.DataFrame({"ES": [0.0, 0.0, 1.0], "free, greedy": [0.0, 0.0, 1.0]}),
        "KN": pd.DataFrame({"ES": [0.0, 0.0, 0.0]}),
    }
    costs = app_cost_by_scorer(states)
    assert list(costs) == ["ES", "free, greedy"]
    assert costs["ES"].difference.mean == pytest.approx(-(1 / 2 + 1 + 0) / 3)
    assert costs["free, greedy"].difference.mean == pytest.approx(-(1 + 1 / 2) / 2)
    assert [cost.difference.n for cost in costs.values()] == [3, 2]
    assert app_cost_table(states).table["Holm"].tolist() == ["inconclusive"] * 2
