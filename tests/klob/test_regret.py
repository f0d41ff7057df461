"""Regret against a ceiling that is chosen on other edits: values by hand, nulls, table and figure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from helpers.klob.figures import rule_regret_dots
from helpers.klob.metrics import ANY_LAYER, BEST_FIXED, ORACLE
from helpers.klob.regret import (
    NULLS,
    PRESET_LAYER,
    better_locators,
    corrected_p_values,
    is_donor,
    layer_gains,
    own_layers_worth,
    regret_nulls_text,
    rule_regret_text,
    rule_regrets,
)
from helpers.results.archive import About, Run
from helpers.results.statistics import detectable

LAYERS = (2, 5, 8)
# To answer 0 and to answer 1, [facts, layers].
GAINS = np.array(
    [
        [[1.0, 4.0, 0.0], [5.0, 3.0, 0.0], [2.0, 4.0, 0.0]],
        [[3.0, 2.0, 0.0], [6.0, 1.0, 1.0], [0.0, 2.0, 3.0]],
    ]
)
FACTS = (("r", "x"), ("r", "x"), ("r", "y"))


def edits_of(gains: NDArray[np.float64], facts: Any = FACTS) -> pd.DataFrame:
    """Stored scores that have these gains at both wordings that edits do not see; the first differs."""
    rows = []
    for target, of_target in enumerate(gains):
        for example, (of_fact, (relation, answer)) in enumerate(zip(of_target, facts, strict=True)):
            for layer, gain in zip((-1, *LAYERS), (0.0, *of_fact), strict=True):
                for wording in range(3):
                    new = 99.0 * layer if wording == 0 else gain + wording - 1.5
                    old = 0.0 if wording == 0 else wording - 1.5
                    rows.append((example, layer, wording, new, old, target, relation, answer))
    columns = ["example", "layer", "wording", "new", "old", "target", "relation", "answer"]
    return pd.DataFrame(rows, columns=columns)


def run_of(edits: pd.DataFrame, named: dict[str, list[int]]) -> Run:
    """A stored run whose locators name a layer of each fact; layers without edits have more mass."""
    tables = {"edits": edits}
    settings: dict[str, Any] = {"edits": {"preset_layer": 5}}
    for name, layers_of_facts in named.items():
        rows = []
        for example, named_layer in enumerate(layers_of_facts):
            masses = dict.fromkeys(LAYERS, 0.1) | {named_layer: 0.7, 3: 0.9, 9: 0.8}
            rows += [(example, layer, mass) for layer, mass in masses.items()]
        tables[f"layers: {name}"] = pd.DataFrame(rows, columns=["example", "layer", "mass"])
        settings[f"layers: {name}"] = {"tokens": "subject" if ", " in name else "last"}
    source = {"model": "smollm2-135m", "dtype": "float32", "dataset": "klob-mini"}
    return Run("smollm2-135m_klob-mini", About(source, settings), tables)


def test_no_layer_is_chosen_on_the_numbers_it_is_scored_on() -> None:
    facts = layer_gains(edits_of(GAINS))
    assert facts.layers == LAYERS
    assert facts.gains == pytest.approx(GAINS)
    # Edits to answer 0 are made at the best layers of those to answer 1, and the other way round.
    assert facts.oracle.tolist() == [[0, 0, 2], [1, 0, 1]]
    assert facts.gain_at(facts.oracle).tolist() == [1.5, 5.5, 1.0]
    # Sums of the two other facts' mean gains: [6.5, 5, 2], [3, 6, 1.5], [7.5, 5, 0.5].
    assert facts.best_fixed.tolist() == [0, 1, 0]
    assert facts.gain_at(facts.best_fixed).tolist() == [2.0, 2.0, 1.0]


def test_regret_of_every_rule_by_hand() -> None:
    run = run_of(edits_of(GAINS), {"fisher": [5, 2, 5], "fisher, subject": [8, 8, 8]})
    regrets = {(regret.rule, regret.tokens): regret for regret in rule_regrets(run)}
    by_fact = {key: regret.regret.tolist() for key, regret in regrets.items()}
    assert by_fact[ORACLE, ""] == [0, 0, 0]
    assert by_fact[BEST_FIXED, ""] == [-0.5, 3.5, 0]
    assert by_fact[PRESET_LAYER, ""] == [-1.5, 3.5, -2]
    assert by_fact[ANY_LAYER, ""] == pytest.approx([-1 / 6, 17 / 6, -5 / 6])
    assert by_fact["fisher", "last"] == [-1.5, 0, -2]
    assert by_fact["fisher", "subject"] == [1.5, 5, -0.5]
    assert regrets["fisher", "last"].against_fixed.tolist() == [-1, -3.5, -2]
    assert regrets["fisher", "last"].contrast.difference.mean == pytest.approx(-6.5 / 3)


def test_a_fact_with_a_failed_edit_is_left_out() -> None:
    edits = edits_of(GAINS)
    failed = (edits["target"] == 1) & (edits["example"] == 1) & (edits["layer"] == 8)
    edits.loc[failed, ["new", "old"]] = np.nan
    facts = layer_gains(edits)
    assert facts.facts.get_level_values("example").tolist() == [0, 2]
    assert facts.gains == pytest.approx(GAINS[:, [0, 2]])
    assert facts.left_out == 1
    shown = rule_regret_text(run_of(edits, {"fisher": [5, 2, 5]}))
    assert "excluded, since an edit failed: 1" in shown.note


def test_nulls_put_other_facts_layers_in_the_place_of_the_facts_own() -> None:
    facts = layer_gains(edits_of(GAINS))
    donors = is_donor(facts.facts)
    assert donors["any fact"].sum(axis=1).tolist() == [2, 2, 2]
    assert donors["same relation"].sum(axis=1).tolist() == [2, 2, 2]
    assert donors["same relation and answer"].sum(axis=1).tolist() == [1, 1, 0]
    indices = np.array([1, 0, 1])
    # Mean gains at the own layer are 3, 5.5 and 3; at those of the two others 2 and 3, 2 and 2, 3 and 1.
    worth = own_layers_worth(facts, indices, donors["any fact"])
    assert worth.tolist() == [0.5, 3.5, 1.0]
    worth = own_layers_worth(facts, indices, donors["same relation and answer"])
    assert worth.tolist() == pytest.approx([1.0, 3.5, np.nan], nan_ok=True)


def published_run(seed: int = 0) -> Run:
    """Twenty facts of ten relations: each has a layer of its own, which one locator names."""
    generator = np.random.default_rng(seed)
    own_layers = np.tile([0, 0, 1, 0, 2], 4)
    gains = generator.normal(scale=0.1, size=(2, 20, 3))
    gains[:, np.arange(20), own_layers] += 3
    facts = [(f"r{number // 2}", f"x{number // 2}") for number in range(20)]
    named = {
        "fisher": [LAYERS[index] for index in own_layers],
        "activation, subject": [8] * 20,
    }
    return run_of(edits_of(gains, facts), named)


def test_a_locator_that_finds_the_layers_is_found() -> None:
    run = published_run()
    regrets = rule_regrets(run)
    assert [(regret.rule, regret.tokens) for regret in better_locators(regrets)] == [
        ("fisher", "last")
    ]
    p_values = {
        (regret.rule, regret.tokens): regret.contrast.p_value
        for regret in regrets
        if regret.is_locator
    }
    corrected = corrected_p_values(regrets)
    smaller, larger = sorted(p_values, key=lambda key: p_values[key])
    assert corrected[smaller] == pytest.approx(min(1, 2 * p_values[smaller]))
    assert corrected[larger] == pytest.approx(max(corrected[smaller], p_values[larger]))


def test_the_tables_state_tests_power_and_ceiling() -> None:
    run = published_run()
    shown = rule_regret_text(run)
    rows = shown.table.reset_index().set_index("layer chosen by")
    assert set(rows["tokens"]) == {"", "last", "subject's last"}
    assert rows.loc[
        "one layer for all facts", ["minus one layer for all", "p", "Holm"]
    ].tolist() == [
        "",
        "–",
        "",
    ]
    assert rows.loc["Fisher", "Holm"] < "0.05"
    assert "could detect" in shown.note
    assert "by relation (10 relations)" in shown.note
    assert "above the oracle" in shown.note
    by_locator = rows["could detect"]
    (fisher,) = (regret for regret in rule_regrets(run) if regret.rule == "fisher")
    assert by_locator["Fisher"] == f"{detectable(fisher.against_fixed, tests=2):.2f}"
    assert "two-sided 5 % divided by 2 tests, power 80 %" in shown.note
    assert by_locator["one layer for all facts"] == ""
    # Layer 2 is the own one of 12 facts of 20; at another's layer the gain is about 3 lower.
    (of_all,) = [words for words in shown.note.split("; ") if words.startswith("layer 2, chosen")]
    assert float(of_all.rpartition(" ")[2]) == pytest.approx(8 / 20 * 3, abs=0.1)
    nulls = regret_nulls_text(run)
    assert list(nulls.table) == list(NULLS)
    # The layers of the other fact of a relation, which has the same answer, are mostly wrong.
    assert nulls.table.loc[("Fisher", "last"), "same relation and answer"].startswith("+")
    assert nulls.note.count("could detect") == 3


def test_the_figure_has_a_row_a_rule_and_answers_the_question() -> None:
    figure = rule_regret_dots(published_run())
    (axes,) = figure.axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert len(labels) == 6
    assert labels.count("Fisher") == 1
    texts = " ".join(text.get_text() for text in figure.texts)
    finding = (
        "Fisher names a better layer for an edit than one layer for all facts, which loses 1.2"
    )
    assert finding in texts.replace("\n", " ")
