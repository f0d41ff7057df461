"""RSim and RSD on hand-computed sets, their bounds, and what chance gives."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from helpers.klob.metrics import (
    UnitIndices,
    candidate_similarity,
    edit_gains,
    example_similarities,
    layer_mass,
    locality_table,
    located_count,
    located_units,
    pairwise_baseline,
    paper_similarity,
    permutation_null,
    profile_twins,
    rank_correlations,
    relative_similarity,
    relative_standard_deviation,
    similarity_matrix,
)
from helpers.klob.tables import locality_text


def sets_of(*members: str) -> list[UnitIndices]:
    """Located sets written as words: "ab" locates units a and b of eight."""
    return [np.array(["abcdefgh".index(unit) for unit in word]) for word in members]


def random_sets(seed: int, sentences: int, units: int, share: float) -> list[UnitIndices]:
    scores = np.random.default_rng(seed).normal(size=(sentences, units))
    return [located_units(row, (share,))[0] for row in scores]


def rsim(sets: list[UnitIndices], examples: np.ndarray, subtask: str) -> np.ndarray:
    similarities = similarity_matrix(sets)
    candidate = candidate_similarity(similarities, examples, subtask)
    return relative_similarity(candidate, pairwise_baseline(similarities, examples))


def test_similarity_and_candidates_by_hand() -> None:
    similarities = similarity_matrix(sets_of("ab", "ac", "ab", "cd"))
    assert similarities[0].tolist() == [1, 0.5, 1, 0]
    table = np.array([[0, 1, 2, 3]])
    # pairs: ab-ac .5, ab-ab 1, ab-cd 0, ac-ab .5, ac-cd .5, ab-cd 0
    assert candidate_similarity(similarities, table, "consistency") == pytest.approx(2.5 / 6)
    # against the chain "cd": 0, .5, 0
    assert candidate_similarity(similarities, table, "relevance") == pytest.approx(0.5 / 3)


def test_baselines_by_hand() -> None:
    sets, examples = sets_of("ab", "ab", "ac", "cd"), np.array([[0, 1], [2, 3]])
    # first example: each "ab" against ac (.5) and cd (0); second: ac against ab twice, cd never
    assert pairwise_baseline(similarity_matrix(sets), examples) == pytest.approx([0.25, 0.25])
    counts, top = np.array([3, 2, 2, 1, 0, 0, 0, 0]), sets_of("ac")[0]
    first = example_similarities(sets[:2], counts, top, 4, "consistency")
    assert first == pytest.approx({"candidate": 1, "mean_scores": 0.5, "pairwise": 0.25})
    second = example_similarities(sets[2:], counts, top, 4, "consistency")
    assert second == pytest.approx({"candidate": 0.5, "mean_scores": 0.75, "pairwise": 0.25})
    alone = example_similarities(sets[:2], np.array([2, 2]), sets[0], 2, "consistency")
    assert np.isnan(alone["pairwise"])  # there are no others


@given(st.integers(0, 100), st.sampled_from([0.01, 0.1, 0.5]))
def test_counted_and_matrix_baselines_agree(seed: int, share: float) -> None:
    sets, examples = random_sets(seed, 12, 200, share), np.arange(12).reshape(4, 3)
    counts = np.bincount(np.concatenate(sets), minlength=200)
    found = [
        example_similarities([sets[i] for i in rows], counts, sets[0], 12, "relevance")["pairwise"]
        for rows in examples
    ]
    assert found == pytest.approx(pairwise_baseline(similarity_matrix(sets), examples))


def test_relative_similarity_by_hand() -> None:
    values = relative_similarity([1, 0.6, 0.1, 1], [0.2, 0.2, 0.2, 1])
    assert values == pytest.approx([1, 0.5, -0.125, 0])  # baseline 1 is defined as 0


@pytest.mark.parametrize("subtask", ["consistency", "relevance"])
def test_bounds_and_chance(subtask: str) -> None:
    examples = np.arange(12).reshape(4, 3)
    same = [units for units in random_sets(0, 4, 300, 0.05) for _ in range(3)]
    assert rsim(same, examples, subtask) == pytest.approx(np.ones(4))
    constant = random_sets(0, 1, 100, 0.1) * 12
    assert rsim(constant, examples, subtask).tolist() == [0] * 4
    values = rsim(random_sets(3, 600, 2_000, 0.05), np.arange(600).reshape(200, 3), subtask)
    assert abs(values.mean()) < 4 * values.std() / len(values) ** 0.5
    assert np.maximum(values, 0).mean() > 0  # clipping each example would be biased


def test_a_sample_of_units_estimates_similarity_without_bias() -> None:
    sets, generator = random_sets(0, 6, 2_000, 0.3), np.random.default_rng(1)
    estimates = []
    for _ in range(300):
        sample = np.isin(np.arange(2_000), generator.choice(2_000, 500, replace=False))
        estimates.append(similarity_matrix([u[sample[u]] for u in sets], size=0.3 * 500))
    assert np.mean(estimates, axis=0) == pytest.approx(similarity_matrix(sets), abs=0.015)


def test_located_sets_are_nested_and_ties_go_to_lower_indices() -> None:
    scores = np.array([1.0, 5.0, 5.0, 5.0, 9.0])
    assert [units.tolist() for units in located_units(scores, (0.2, 0.6))] == [[4], [1, 2, 4]]
    assert located_count(30, 0.01) == 1
    assert located_count(46_080, 0.01) == 461
    for units, share in ((0, 0.1), (10, 0.0), (10, 1.5)):
        with pytest.raises(ValueError, match="share"):
            located_count(units, share)
    with pytest.raises(ValueError, match="1 of 3"):
        located_units(np.array([1.0, np.nan, 2.0]))


@settings(max_examples=12)
@given(seed=st.integers(0, 99), levels=st.integers(1, 400), trend=st.booleans())
def test_located_units_are_those_of_a_sorted_list(seed: int, levels: int, trend: bool) -> None:
    """Also where a sample guesses the level, among ties, and where the sample misleads."""
    units = 1 << 18
    scores = np.random.default_rng(seed).integers(0, levels, units).astype(np.float32)
    if trend:
        scores[:: units >> 16] += levels
    best = np.argsort(-scores, kind="stable")
    for count, found in zip((262, 13_107), located_units(scores, (0.001, 0.05)), strict=True):
        assert np.array_equal(found, np.sort(best[:count]))


def test_relative_standard_deviation() -> None:
    estimate = relative_standard_deviation([2.0, 2.0, 2.0], [1.0, 1.0])
    assert (estimate.mean, estimate.n) == (0.5, 5)
    assert np.isnan(estimate.low)  # of equal numbers
    assert relative_standard_deviation([1.0], [3.0]).mean == -2
    spread = relative_standard_deviation([1.0, 3.0, 2.0], [0.5, 1.5])
    assert spread.low < spread.mean == 0.5 < spread.high
    for factual, nonfactual in (([], [1.0]), ([1.0], []), ([0.0], [1.0])):
        assert relative_standard_deviation(factual, nonfactual).n == 0


def test_permutation_null_tells_structure_from_chance() -> None:
    examples, how = np.arange(60).reshape(20, 3), {"permutations": 99}
    planted = [units for units in random_sets(0, 20, 400, 0.05) for _ in range(3)]
    found = permutation_null(similarity_matrix(planted), examples, "consistency", **how)
    assert found["observed"] == pytest.approx(1)
    assert found["p_value"] == pytest.approx(1 / 100)
    assert abs(found["mean"]) < 0.1
    similarities = similarity_matrix(random_sets(1, 60, 400, 0.05))
    chance = permutation_null(similarities, examples, "relevance", **how)
    assert abs(chance["observed"] - chance["mean"]) < 4 * chance["standard_deviation"]
    alone = permutation_null(similarities[:3, :3], examples[:1], "consistency", **how)
    assert np.isnan(alone["p_value"])


def test_null_inside_groups_keeps_what_a_group_shares() -> None:
    # Two relations; the located set depends on the relation only, so nothing is left of the fact.
    sets = [units for units in random_sets(0, 2, 400, 0.05) for _ in range(9)]
    similarities, examples = similarity_matrix(sets), np.arange(18).reshape(6, 3)
    free, inside = (
        permutation_null(similarities, examples, "consistency", groups=groups, permutations=99)
        for groups in (None, [0, 0, 0, 1, 1, 1])
    )
    assert free["mean"] < free["observed"]
    assert inside["mean"] == pytest.approx(inside["observed"])
    assert inside["p_value"] == 1


@pytest.fixture
def edits() -> pd.DataFrame:
    """Two facts, two layers; wording 0 is the edited one and must not count; fact 9's edit failed."""
    rows = [
        (example, layer, wording, new, -4.0)
        for example, layer, wording, new in (
            *((e, -1, w, -6.0) for e in (3, 8) for w in range(3)),
            *((3, 0, w, [0.0, -1.0, -3.0][w]) for w in range(3)),
            *((3, 1, w, -6.0) for w in range(3)),
            *((8, 0, w, -5.0) for w in range(3)),
            *((8, 1, w, [0.0, -2.0, -2.0][w]) for w in range(3)),
            *((9, n, w, np.nan if n == 1 else -1.0) for n in (-1, 0, 1) for w in range(3)),
        )
    ]
    return pd.DataFrame(rows, columns=["example", "layer", "wording", "new", "old"])


def test_locality_by_hand(edits: pd.DataFrame) -> None:
    gains = edit_gains(edits)
    # before: −6 − (−4) = −2 everywhere; fact 3 at layer 0: mean(−1, −3) + 4 = 2
    assert gains.to_dict("index") == {3: {0: 4.0, 1: 0.0}, 8: {0: 1.0, 1: 4.0}}
    rows = [
        ("knowledge-neurons", "consistency", example, layer, mass)
        for example, masses in {3: (-3.0, 1.0), 8: (1.0, 3.0)}.items()
        for layer, mass in enumerate(masses)
    ]
    columns = ["locator", "subtask", "example", "layer", "mass"]
    scored = pd.DataFrame(rows, columns=columns)
    fewer = scored[scored["example"] == 3].assign(locator="fisher")
    mass = layer_mass(pd.concat([scored, fewer]), gains.index)
    assert {name: curves.tolist() for name, curves in mass.items()} == {
        "knowledge-neurons": [[0.75, 0.25], [0.25, 0.75]]
    }
    table = locality_table(gains, mass)
    assert table["mean"].tolist() == pytest.approx([1, -1, 2])  # own, other, specific
    text = locality_text(table, twins={}).table
    assert text.loc["knowledge neurons (IG)", "difference"] == "+2.00"  # two facts have no interval


def test_rank_correlations_are_spearmans() -> None:
    mass, outcome = np.random.default_rng(0).normal(size=(2, 3, 9))
    table = rank_correlations(mass, outcome)
    expected = [[stats.spearmanr(m, o).statistic for o in outcome] for m in mass]
    assert table == pytest.approx(np.array(expected))
    outcome[1] = 1.0
    assert np.isnan(rank_correlations(mass, outcome)[:, 1]).all()


def test_the_locality_test_distinguishes_facts_from_layers() -> None:
    generator = np.random.default_rng(0)
    facts = generator.normal(size=(20, 30))
    gains = pd.DataFrame(facts + 0.1 * generator.normal(size=facts.shape))
    planted = locality_table(gains, {"x": facts}).set_index("pairing")
    assert planted.loc["own", "mean"] > 0.9
    assert planted.loc["specific", "low"] > 0.8
    assert planted.loc["own", "p_value"] < 0.01
    common = np.linspace(0, 5, 30)
    gains = pd.DataFrame(common + generator.normal(size=facts.shape))
    shared = locality_table(gains, {"x": common + facts, "constant": facts})
    assert set(shared["locator"]) == {"x"}
    own, other, specific = shared.to_dict("records")
    assert min(own["mean"], other["mean"]) > 0.4  # all facts like the late layers
    assert abs(specific["mean"]) < 0.1
    assert own["average"] > 0.8
    assert own["p_value"] > 0.05


def test_the_papers_rsim_clips_each_example_and_takes_the_shortcut() -> None:
    """KLoB, Section 3.4 and Appendix A, in units "a" to "h" with two located for each sentence."""
    sets, top = sets_of("ab", "ab", "ac", "cd"), sets_of("ac")[0]
    counts = np.array([3, 2, 2, 1, 0, 0, 0, 0])
    found = [
        example_similarities(pair, counts, top, 4, "consistency") for pair in (sets[:2], sets[2:])
    ]
    # "ab", "ab": Sim_cand 1, Sim(ac, ab) = 1/2 twice. "ac", "cd": 1/2, Sim(ac, ac) = 1, Sim(ac, cd) = 1/2.
    assert [row["mean_scores"] for row in found] == [0.5, 0.75]
    values = paper_similarity(
        [row["candidate"] for row in found], [row["mean_scores"] for row in found]
    )
    assert values.tolist() == [
        1,
        0,
    ]  # (1 − 1/2) / (1 − 1/2); (1/2 − 3/4) / (1 − 3/4) = −1 is clipped
    assert paper_similarity([1.0], [1.0]).tolist() == [0]


def test_a_profile_that_repeats_an_earlier_one_is_counted_once() -> None:
    generator = np.random.default_rng(0)
    first, other = generator.random((2, 6, 30))
    mass = {"activation": first, "fisher": other, "logit-neuron": 2 * first, "random": 1 - first}
    assert profile_twins(mass) == {"logit-neuron": "activation"}
    mass["causal-tracing"] = first**2  # the same ranks: a twin of the first, not of its twin
    assert profile_twins(mass)["causal-tracing"] == "activation"
    gains = pd.DataFrame(generator.random((6, 30)))
    tests = locality_table(gains, mass)
    assert set(tests["locator"]) == {"activation", "fisher", "random"}
    shown = locality_text(tests, profile_twins(mass))
    assert "logit attribution, neuron: as activation" in shown.note
    assert "logit attribution, neuron" not in shown.table.index
