"""IFR and CKP: hand-computed cases, properties, and consistency of the paper's own tables."""

import math

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from helpers.results.archive import archive
from helpers.results.statistics import fraction_interval
from helpers.results.text import published_table
from helpers.thinkedit import metrics
from helpers.thinkedit.metrics import (
    BY_RANK,
    DEEP,
    DIRECT,
    OWN,
    Known,
    capped_mean,
    capped_ratios,
    chain_table,
    consistency,
    facts_table,
    fluency,
    inverse_document_frequencies,
    pooled_ratio,
    recovery_by_steps,
    success_terms,
    sums_of,
    terms_of,
)
from helpers.thinkedit.tables import terms_of_runs

Pairs = list[tuple[float, float]]


def facts_and_index(*chains: Pairs, own: bool = True, edit: int = 1):
    """Facts and chains from (before, after) pairs, known where not zero; no fact is shared."""
    places = [(n, step) for n, chain in enumerate(chains) for step in range(1, len(chain) + 1)]
    index = pd.DataFrame(places, columns=["chain", "step"])
    index = index.assign(case_id=edit, item=index.index, own=own)
    facts = pd.DataFrame([pair for chain in chains for pair in chain], columns=["before", "after"])
    known = {"known_before": facts["before"] > 0, "known_after": facts["after"] > 0}
    facts = facts.assign(case_id=edit, item=facts.index, **known)
    return facts, index


def folded_of(*chains: Pairs, edit: int = 1) -> pd.DataFrame:
    return chain_table(*facts_and_index(*chains, edit=edit))


def terms(*chains: Pairs, own: bool = True) -> pd.DataFrame:
    return terms_of(*facts_and_index(*chains, own=own))


def value_of(found: pd.DataFrame, measure: str) -> float:
    return pooled_ratio(sums_of(found[found["measure"] == measure])).ratio


def test_recovery_by_hand():
    # ratios 0.5 (one step) and 0.25 (four steps): (0.5/1 + 0.25/2) / (1 + 1/2)
    four = [(0.5, 0.125), *[(1.0, 1.0)] * 3]
    assert value_of(terms([(0.8, 0.4)], four), "IFR") == pytest.approx(0.625 / 1.5)


def test_chains_multiply_their_steps_and_unknown_ones_are_left_out():
    chains = folded_of([(0.8, 0.4), (0.5, 0.5)], [(1.0, 0.0)], [(0.0, 0.2), (1.0, 1.0)])
    assert chains["before"].tolist() == pytest.approx([0.4, 1.0, 0.0])
    assert chains["after"].tolist() == pytest.approx([0.2, 0.0, 0.2])
    assert chains["kept"].tolist() == [True, True, False]
    assert chains["active"].tolist() == [True, False, True]
    assert chains["ratio"].tolist() == pytest.approx([0.5, 0.0, math.nan], nan_ok=True)


def test_recovery_by_steps_of_one_edit_and_of_several_pooled():
    one = folded_of([(0.8, 0.4), (0.5, 0.5)], [(1.0, 0.0)])
    table = recovery_by_steps(one).set_index("steps")
    weight = 1 / np.sqrt(2)
    assert table.loc["overall", "value"] == pytest.approx(0.5 * weight / (1 + weight))
    assert table.loc[["1", "2"], "value"].tolist() == pytest.approx([0, 0.5])
    both = recovery_by_steps(pd.concat([one, folded_of([(0.0, 1.0)], edit=2)]))
    assert both.set_index("steps").loc["overall", ["chains", "kept", "active"]].tolist() == [
        3,
        2,
        2,
    ]


def test_preservation_is_the_mean_over_known_facts_about_others():
    found = terms([(0.5, 0.25), (0.0, 1.0), (0.4, 0.4)], [(0.2, 0.6)], own=False)
    assert value_of(found, "CKP") == pytest.approx((0.5 + 1 + 3) / 3)
    assert (found["measure"] == "CKP").sum() == 3


def test_facts_about_the_edited_subject_are_no_part_of_ckp():
    found = terms([(0.8, 0.4)], [(0.5, 0.5), (0.4, 0.4)])
    assert found["measure"].tolist() == ["IFR", "IFR", DIRECT, OWN, OWN, DEEP]
    assert value_of(found, DEEP) == 0


def test_metrics_from_scores_by_hand(edits):
    index = metrics.chain_index(edits[:1])
    assert index.values.tolist() == [[1, 0, 1, 0, True], [1, 1, 1, 1, True], [1, 1, 2, 2, False]]
    before = pd.DataFrame(
        {"case_id": 1, "item": [0, 1, 2], "hits": [5, 4, 2], "new_hits": 0, "n": 5}
    )
    after = before.assign(hits=[0, 4, 1], new_hits=[5, 0, 4])
    facts = facts_table(before, after)
    assert chain_table(facts, index)["ratio"].tolist() == pytest.approx([0.0, 0.5])
    assert value_of(terms_of(facts, index), "CKP") == 0.5


def test_known_is_likely_or_as_written_more_probable_than_all_rivals(exact_table):
    before = exact_table(
        (1, "fact", 0, -4.0, 4, -9.0, 3, -2.0, -5.0),  # best as a whole, though not token by token
        (1, "fact", 1, -4.0, 4, np.nan, np.nan, -0.5, -3.0),  # a rival is better
        (1, "fact", 2, -2.9, 1, np.nan, np.nan, -0.5, -0.5),  # so here, but e^-2.9 > 0.05
        (1, "fact", 3, -9.0, 2, np.nan, np.nan, np.nan),  # nothing to compare with
    )
    before["original_named"] = [-3.5, -4.0, -2.9, -9.0]
    assert BY_RANK.of(before).tolist() == [True, False, True, False]
    assert Known().of(before).tolist() == [False, False, True, False]
    assert Known(threshold=0.03).of(before).tolist() == [True, False, True, False]
    after = before.assign(other_sum=[-3.0, np.nan, np.nan, np.nan])  # now the new object wins
    facts = facts_table(before, after, rule=BY_RANK)
    assert facts["known_after"].tolist() == [False, False, True, False]
    assert facts["before"].tolist() == pytest.approx(np.exp(before["original_named"]).tolist())


def test_success_compares_in_the_right_direction(exact_table):
    scores = exact_table(
        (1, "edit", 0, -5.0, 1, -6.0, 2, np.nan),  # longer, but likelier token by token
        (1, "paraphrase", 0, -5.0, 1, -1.0, 1, np.nan),
        (1, "paraphrase", 1, -1.0, 1, -5.0, 1, np.nan),
        (1, "neighbour", 0, -1.0, 1, -5.0, 1, np.nan),
        (1, "neighbour", 1, -1.0, 1, -1.0, 1, np.nan),
    )
    values = success_terms(scores).set_index("measure")["ratio"].to_dict()
    assert values == {"Efficacy": 1.0, "Generalisation": 0.5, "Specificity": 0.5}


def sums(*values: float) -> pd.DataFrame:
    return pd.DataFrame({"edit": range(len(values)), "top": values, "bottom": 1.0})


def test_pooling_weighs_edits_by_what_they_hold():
    unequal = pd.DataFrame({"edit": [1, 2, 3], "top": [9.0, 0.0, 1.0], "bottom": [8.0, 1.0, 1.0]})
    found = pooled_ratio(unequal)
    assert found.ratio == pytest.approx(1.0)
    assert (found.low, found.high) == (pytest.approx(1 / 2), pytest.approx(10 / 9))
    assert found.share == pytest.approx(0.9)
    assert str(found) == "1.00 (0.50 to 1.11; 90 %)"
    assert capped_mean(unequal).mean == pytest.approx((1 + 0 + 1) / 3)
    assert str(pooled_ratio(unequal[:0])) == "n/a"


@pytest.mark.parametrize("model", ["smollm2-135m", "gemma3-270m", "qwen2.5-coder-1.5b"])
@pytest.mark.parametrize("measure", ["IFR", OWN, "CKP"])
def test_intervals_cover_the_mean_of_the_edits_they_are_drawn_from(model, measure):
    """The stored edits are the population; Student's own interval covers it in 16 to 94 of 100 samples."""
    found = terms_of_runs((archive("thinkedit").get(f"{model}_recalled-{model}"),))
    terms = found.query("method == 'memit' and mode == 'independent' and measure == @measure")
    population = capped_ratios(sums_of(terms)).to_numpy()
    draws = np.random.default_rng(0)
    for n in (10, 21, 60):
        samples = draws.choice(population, size=(300, n))
        intervals = map(fraction_interval, samples)
        covered = [each.low <= population.mean() <= each.high for each in intervals]
        assert np.mean(covered) > 0.93  # 95 %, less 1.6 standard errors


def test_entropy_and_fluency_by_hand():
    # ab, ba, ab, ba: 1 bit; aba, bab, aba: -(2/3 log2 2/3 + 1/3 log2 1/3)
    assert fluency("a b a b a") == pytest.approx(1 / 3 + 2 / 3 * 0.9182958)
    assert fluency("a") == 0
    assert fluency("the the the the the the") < fluency("the bridge spans a wide river")


def test_consistency_by_hand():
    idf = inverse_document_frequencies(["red stone", "red river", "Red bridge"])
    common, rare = 1.0, math.log(4 / 2) + 1
    assert idf == pytest.approx({"red": common, "stone": rare, "river": rare, "bridge": rare})
    wanted = common / (common + rare**2)
    assert consistency("Red stone", "red river", idf=idf) == pytest.approx(wanted)
    assert consistency("red red", "red", idf=idf) == pytest.approx(1)
    assert consistency("unknown", "red", idf=idf) == 0


def combine_steps(values, chains) -> float:
    """Overall IFR that follows from IFRs of 1, 2, … steps and their numbers of deducible chains."""
    counts = np.asarray(chains, dtype=float)
    return float(np.average(values, weights=counts / np.sqrt(np.arange(1, counts.size + 1))))


def published(number: str) -> pd.DataFrame:
    return published_table(f"thinkedit_{number}")


def test_table_1_does_not_follow_from_table_2():
    table = published("table_2").pivot(index="steps", columns="metric", values="value").sort_index()
    assert combine_steps(table["ifr"], table["chains"]) == pytest.approx(0.63, abs=0.005)
    first = published("table_1").set_index("metric")["value"]
    assert first["ifr"] == 0.78
    assert table[["chains", "active_chains"]].sum().tolist() == [
        first["chains"],
        first["active_chains"],
    ]


def combined(table: str, chains: str) -> tuple[pd.DataFrame, pd.Series]:
    """IFR of a published table by steps, and what its lengths combine to by numbers of chains."""
    rows = published(table).query("metric == 'ifr'")
    steps = rows.pivot(index=["model", "method"], columns="steps", values="value")
    counts = published(chains).query("metric == 'chains'").set_index("steps")["value"].sort_index()
    return steps, steps[list(counts.index)].apply(lambda row: combine_steps(row, counts), axis=1)


def test_the_authors_overall_values_pool_their_chains_by_definition_3(data_folder):
    steps, overall = combined("scalability", "scalability")
    assert len(steps) == 15
    assert (overall - steps["overall"]).abs().max() < 5e-4  # as far as they are printed
    facts = pd.read_csv(data_folder / "knowgic" / "published" / "atomic_samples.csv")
    graph = nx.from_pandas_edgelist(
        facts, "beginning_object", "ending_object", create_using=nx.DiGraph
    )
    paths = nx.all_simple_paths(graph, "Harry Potter", "Hogwarts", cutoff=5)
    lengths = pd.Series([str(len(path) - 1) for path in paths]).value_counts()
    counted = published("scalability").query("metric == 'chains'").set_index("steps")["value"]
    assert lengths.to_dict() == counted.to_dict()


def test_table_10_pools_all_chains_where_the_model_knows_nearly_all():
    steps, overall = combined("table_10", "table_4")
    off = (overall - steps["overall"]).abs().groupby("model").max()
    assert off["llama3-8b-instruct"] < 1.2e-3
    assert off["qwen2.5-7b-instruct"] > 0.05  # which answers 81 % of the questions: fewer chains
