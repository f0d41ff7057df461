"""IFR and CKP: hand-computed cases, properties, and consistency of the paper's own tables."""

from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.thinkedit import metrics as thinkedit
from helpers.thinkedit import tables

PUBLISHED = files("helpers").joinpath("packaged/published")
POSITIVE = st.floats(0.01, 1.0)


def published(number: int) -> pd.DataFrame:
    with PUBLISHED.joinpath(f"thinkedit_table_{number}.csv").open() as stream:
        return pd.read_csv(stream, dtype={"steps": str})


def steps_of(*chains: list[tuple[float, float]], edit: int = 1) -> pd.DataFrame:
    """Steps table from (before, after) pairs per chain, known where not zero."""
    rows = [
        (edit, chain, step, before, after, before > 0, after > 0)
        for chain, pairs in enumerate(chains)
        for step, (before, after) in enumerate(pairs, start=1)
    ]
    return pd.DataFrame(rows, columns=list(thinkedit.STEP_COLUMNS))


def facts_of(*pairs: tuple[float, float], edit: int = 1) -> pd.DataFrame:
    rows = [(edit, f"fact {i}", p, q, p > 0) for i, (p, q) in enumerate(pairs)]
    return pd.DataFrame(rows, columns=list(thinkedit.FACT_COLUMNS))


def recovery(*chains: list[tuple[float, float]]) -> pd.Series:
    """IFR of one edit over all its chains: ``value`` and ``capped``."""
    table = thinkedit.recovery_per_edit(thinkedit.chain_table(steps_of(*chains)))
    return table.set_index("steps").loc["overall"]


def test_recovery_by_hand():
    # ratios 0.5 (one step) and 0.25 (four steps): (0.5/1 + 0.25/2) / (1 + 1/2)
    four = [(0.5, 0.125), *[(1.0, 1.0)] * 3]
    assert recovery([(0.8, 0.4)], four)["value"] == pytest.approx(0.625 / 1.5)


def test_recovery_without_chains_is_left_out_and_preservation_without_facts_is_one():
    assert np.isnan(recovery([(0.0, 0.5)])["value"])
    assert thinkedit.preservation_per_edit(facts_of((0.0, 0.5)))["value"].tolist() == [1]


def test_ratios_above_one_count_unless_capped():
    assert recovery([(0.25, 0.5)])[["value", "capped"]].tolist() == [2, 1]
    kept = thinkedit.preservation_per_edit(facts_of((0.25, 0.5), (0.5, 0.25)))
    assert kept[["value", "capped"]].to_numpy().tolist() == [[1.25, 0.75]]


def test_chain_table_multiplies_steps_and_leaves_out_unknown_chains():
    steps = steps_of([(0.8, 0.4), (0.5, 0.5)], [(1.0, 0.0)], [(0.0, 0.2), (1.0, 1.0)])
    chains = thinkedit.chain_table(steps)
    assert chains["before"].tolist() == pytest.approx([0.4, 1.0, 0.0])
    assert chains["after"].tolist() == pytest.approx([0.2, 0.0, 0.2])
    assert chains["kept"].tolist() == [True, True, False]
    assert chains["active"].tolist() == [True, False, True]
    assert chains["ratio"].tolist()[:2] == pytest.approx([0.5, 0.0])
    assert np.isnan(chains["ratio"][2])


def test_recovery_per_edit_by_length_and_pooled():
    steps = pd.concat(
        [steps_of([(0.8, 0.4), (0.5, 0.5)], [(1.0, 0.0)]), steps_of([(0.0, 1.0)], edit=2)]
    )
    chains = thinkedit.chain_table(steps)
    per_edit = thinkedit.recovery_per_edit(chains).set_index(["edit", "steps"])
    weight = 1 / np.sqrt(2)
    assert per_edit.loc[(1, "overall"), "value"] == pytest.approx(0.5 * weight / (1 + weight))
    assert per_edit.loc[(1, "1"), "value"] == 0
    assert per_edit.loc[(1, "2"), "value"] == pytest.approx(0.5)
    assert np.isnan(per_edit.loc[(2, "overall"), "value"])
    assert per_edit.loc[(slice(None), "overall"), "value"].notna().sum() == 1
    pooled = thinkedit.pooled_recovery(chains).set_index("steps")
    assert pooled.loc["overall", ["chains", "kept", "active"]].tolist() == [3, 2, 2]


def test_preservation_per_edit_and_pooled():
    facts = pd.concat([facts_of((0.5, 0.25), (0.0, 1.0), (0.4, 0.4)), facts_of((0.2, 0.6), edit=2)])
    per_edit = thinkedit.preservation_per_edit(facts)
    assert per_edit["value"].tolist() == pytest.approx([0.75, 3.0])
    assert per_edit["capped"].tolist() == pytest.approx([0.75, 1.0])
    assert per_edit["kept"].tolist() == [2, 1]
    pooled = thinkedit.pooled_preservation(facts)
    assert pooled["value"].tolist() == pytest.approx([(0.5 + 1 + 3) / 3])


def test_runs_are_kept_apart():
    steps = pd.concat(
        [steps_of([(1.0, 0.2)]).assign(method="rome"), steps_of([(1.0, 0.6)]).assign(method="ft")]
    )
    chains = thinkedit.chain_table(steps, by=["method"])
    values = thinkedit.recovery_per_edit(chains, by=["method"])
    assert values.query("steps == 'overall'").set_index("method")["value"].to_dict() == {
        "ft": 0.6,
        "rome": 0.2,
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.assign(before=1.5), "outside"),
        (lambda t: t.assign(after=np.nan), "outside"),
        (lambda t: t.assign(step=2), "numbered"),
        (lambda t: t.assign(before=0.0), "known before"),
        (lambda t: t.drop(columns="after"), "lacks"),
    ],
)
def test_impossible_steps_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        thinkedit.chain_table(change(steps_of([(0.5, 0.5)])))


def test_repeated_facts_are_refused():
    with pytest.raises(ValueError, match="distinct facts"):
        thinkedit.preservation_per_edit(pd.concat([facts_of((0.5, 0.5))] * 2))


@given(st.lists(st.lists(POSITIVE, min_size=1, max_size=5), min_size=1, max_size=8))
def test_an_edit_that_changes_nothing_recovers_everything(chains):
    table = thinkedit.chain_table(steps_of(*[[(p, p) for p in chain] for chain in chains]))
    values = thinkedit.recovery_per_edit(table)
    assert np.allclose(values["value"], 1)
    assert (values["kept"] == values["chains"]).all()


@given(st.lists(st.tuples(POSITIVE, st.floats(0, 1)), min_size=1, max_size=12))
def test_overall_follows_from_the_lengths(pairs):
    chains = [[pair] * (1 + i % 5) for i, pair in enumerate(pairs)]
    values = thinkedit.recovery_per_edit(thinkedit.chain_table(steps_of(*chains)))
    by_length = values.query("steps != 'overall'").set_index("steps")
    lengths = [str(n) for n in range(1, min(5, len(pairs)) + 1)]
    overall = values.query("steps == 'overall'")["value"].item()
    assert overall == pytest.approx(
        thinkedit.combine_steps(by_length.loc[lengths, "value"], by_length.loc[lengths, "kept"])
    )


def test_table_1_does_not_follow_from_table_2():
    table = published(2).pivot(index="steps", columns="metric", values="value").sort_index()
    overall = thinkedit.combine_steps(table["ifr"], table["chains"])
    assert overall == pytest.approx(0.63, abs=0.005)
    assert published(1).set_index("metric").loc["ifr", "value"] == 0.78
    assert table["chains"].sum() == published(1).set_index("metric").loc["chains", "value"]
    assert (
        table["active_chains"].sum()
        == published(1).set_index("metric").loc["active_chains", "value"]
    )


def sums_of_fifths_are_possible(values: pd.Series, edits: int) -> bool:
    """Whether each four-digit mean can be a mean over ``edits`` ratios (i/5)/(j/5), i, j ≤ 5."""
    sixtieths = 60 * edits * values
    return bool((np.abs(sixtieths - sixtieths.round()) <= 60 * edits * 0.5e-4 + 1e-9).all())


def test_one_step_values_of_table_10_fit_twenty_edits_for_qwen():
    one_step = published(10).query("metric == 'ifr' and steps == '1'").set_index("model")["value"]
    assert sums_of_fifths_are_possible(one_step["qwen2.5-7b-instruct"], 20)
    assert not sums_of_fifths_are_possible(one_step["qwen2.5-7b-instruct"], 21)
    assert sums_of_fifths_are_possible(one_step["llama3-8b-instruct"], 21)


@pytest.mark.parametrize(
    ("number", "model"), [(5, "llama3-8b-instruct"), (6, "qwen2.5-7b-instruct")]
)
def test_tables_5_and_6_agree_with_table_10(number, model):
    overall = published(number).query("metric in ['ifr', 'ckp']")
    detail = published(10).query("model == @model and (steps == 'overall' or metric == 'ckp')")
    keys = ["method", "metric"]
    merged = overall.merge(detail, on=keys)
    assert len(merged) == 10
    assert (merged["value_x"] == merged["value_y"]).all()


@given(st.lists(st.tuples(st.sampled_from("ba"), st.integers(0, 2), POSITIVE)))
def test_slices_are_the_groups_of_pandas_in_order(rows):
    table = pd.DataFrame(rows, columns=["method", "edit", "after"]).astype({"edit": int})
    groups = table.groupby(["method", "edit"], sort=True)["after"]
    expected = [(key, values.tolist()) for key, values in groups]
    found = tables.slices(table, ["method", "edit"], ["after"])
    assert [(key, values.tolist()) for key, (values,) in found] == expected
