"""RSim and RSD on hand-computed sets, their bounds, and what chance gives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers.klob.metrics import (
    candidate_similarity,
    counted_baseline,
    headline,
    mean_score_baseline,
    pairwise_baseline,
    relative_similarity,
    relative_standard_deviation,
    similarity_matrix,
)
from helpers.klob.null import permutation_null
from helpers.klob.unit_sets import Sets, located, located_count, located_units, shared_units


def sets_of(*members: str, units: str = "abcdefgh") -> np.ndarray:
    """Located sets written as words: "ab" locates units a and b."""
    return np.array([[unit in word for unit in units] for word in members])


def random_sets(seed: int, sentences: int, units: int, share: float) -> np.ndarray:
    scores = np.random.default_rng(seed).normal(size=(sentences, units))
    return np.concatenate([located(row, (share,)) for row in scores])


def test_similarity_and_candidates_by_hand() -> None:
    similarities = similarity_matrix(sets_of("ab", "ac", "ab", "cd"))
    assert similarities[0].tolist() == [1, 0.5, 1, 0]
    table = np.array([[0, 1, 2, 3]])
    # pairs: ab-ac .5, ab-ab 1, ab-cd 0, ac-ab .5, ac-cd .5, ab-cd 0
    assert candidate_similarity(similarities, table, "consistency") == pytest.approx(2.5 / 6)
    # against the chain "cd": 0, .5, 0
    assert candidate_similarity(similarities, table, "relevance") == pytest.approx(0.5 / 3)


def streamed_baselines(sets: Sets, examples: NDArray[np.integer]) -> list[float]:
    """``counted_baseline`` of each example."""
    counts, found = sets.sum(axis=0), []
    for rows in examples:
        own = [np.flatnonzero(row) for row in sets[rows]]
        shared = shared_units(own, sets.shape[1])
        found.append(counted_baseline(own, shared, counts, len(sets)))
    return found


def test_baselines_by_hand() -> None:
    sets = sets_of("ab", "ab", "ac", "cd")
    examples = np.array([[0, 1], [2, 3]])
    # first example: each "ab" against ac (.5) and cd (0); second: ac against ab twice, cd never
    exact = pairwise_baseline(similarity_matrix(sets), examples)
    assert exact == pytest.approx([0.25, 0.25])
    assert streamed_baselines(sets, examples) == pytest.approx(exact)
    assert np.isnan(streamed_baselines(sets[:2], examples[:1])).all()  # there are no others
    units = [np.flatnonzero(row) for row in sets]
    assert mean_score_baseline(units[:2], sets_of("ac")[0]) == 0.5
    assert mean_score_baseline(units[2:], sets_of("ac")[0]) == 0.75


def test_relative_similarity_by_hand() -> None:
    values = relative_similarity([1, 0.6, 0.1, 1], [0.2, 0.2, 0.2, 1])
    assert values == pytest.approx([1, 0.5, -0.125, 0])  # baseline 1 is defined as 0
    assert headline(-0.1) == 0
    assert headline(0.3) == 0.3


def test_located_sets_are_nested_and_ties_go_to_lower_indices() -> None:
    scores = np.array([1.0, 5.0, 5.0, 5.0, 9.0])
    assert [units.tolist() for units in located_units(scores, (0.2, 0.6))] == [[4], [1, 2, 4]]
    small, large = located(scores, (0.2, 0.6))
    assert np.flatnonzero(small).tolist() == [4]
    assert np.flatnonzero(large).tolist() == [1, 2, 4]


def test_at_least_one_unit_is_located() -> None:
    assert located_count(30, 0.01) == 1
    assert located_count(46_080, 0.01) == 461
    for units, share in ((0, 0.1), (10, 0.0), (10, 1.5)):
        with pytest.raises(ValueError, match="share"):
            located_count(units, share)


def test_scores_that_are_not_numbers_are_refused() -> None:
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


def test_shared_units_are_the_overlaps_of_sets() -> None:
    sets = sets_of("ab", "bc", "ha")
    assert shared_units([np.flatnonzero(row) for row in sets], 8).tolist() == [
        [2, 1, 1],
        [1, 2, 0],
        [1, 0, 2],
    ]


def test_sets_of_different_sizes_need_a_denominator() -> None:
    sets = sets_of("ab", "a")
    with pytest.raises(ValueError, match="differ in size"):
        similarity_matrix(sets)
    assert similarity_matrix(sets, size=2)[0, 1] == 0.5


def test_a_sample_of_units_estimates_similarity_without_bias() -> None:
    sets = random_sets(0, 6, 2_000, 0.3)
    generator = np.random.default_rng(1)
    samples = [generator.choice(2_000, 500, replace=False) for _ in range(300)]
    estimates = [similarity_matrix(sets[:, sample], size=0.3 * 500) for sample in samples]
    assert np.mean(estimates, axis=0) == pytest.approx(similarity_matrix(sets), abs=0.015)


@given(st.integers(0, 100), st.sampled_from([0.01, 0.1, 0.5]))
def test_streamed_and_matrix_baselines_agree(seed: int, share: float) -> None:
    sets = random_sets(seed, 12, 200, share)
    examples = np.arange(12).reshape(4, 3)
    exact = pairwise_baseline(similarity_matrix(sets), examples)
    assert streamed_baselines(sets, examples) == pytest.approx(exact)


@given(st.integers(0, 1_000))
def test_identical_sets_inside_examples_give_one(seed: int) -> None:
    sets = np.repeat(random_sets(seed, 4, 300, 0.05), 3, axis=0)
    examples = np.arange(12).reshape(4, 3)
    similarities = similarity_matrix(sets)
    for criterion in ("consistency", "relevance"):
        candidate = candidate_similarity(similarities, examples, criterion)
        baseline = pairwise_baseline(similarities, examples)
        assert relative_similarity(candidate, baseline) == pytest.approx(np.ones(4))


@given(st.permutations(range(40)), st.integers(0, 100))
def test_values_do_not_depend_on_the_order_of_units(order: list[int], seed: int) -> None:
    sets = random_sets(seed, 6, 40, 0.2)
    assert similarity_matrix(sets[:, order]) == pytest.approx(similarity_matrix(sets))


def test_independent_random_sets_give_zero_in_expectation() -> None:
    sets = random_sets(3, 600, 2_000, 0.05)
    examples = np.arange(600).reshape(200, 3)
    similarities = similarity_matrix(sets)
    candidate = candidate_similarity(similarities, examples, "consistency")
    values = relative_similarity(candidate, pairwise_baseline(similarities, examples))
    standard_error = values.std() / len(values) ** 0.5
    assert abs(values.mean()) < 4 * standard_error
    assert headline(0.0) < np.maximum(values, 0).mean()  # clipping each example would be biased


def test_constant_sets_give_zero_by_definition() -> None:
    sets = np.repeat(random_sets(0, 1, 100, 0.1), 6, axis=0)
    examples = np.arange(6).reshape(2, 3)
    similarities = similarity_matrix(sets)
    candidate = candidate_similarity(similarities, examples, "consistency")
    assert relative_similarity(candidate, pairwise_baseline(similarities, examples)).tolist() == [
        0,
        0,
    ]


def test_relative_standard_deviation() -> None:
    estimate = relative_standard_deviation([2.0, 2.0, 2.0], [1.0, 1.0])
    assert (estimate.mean, estimate.low, estimate.high, estimate.n) == (0.5, 0.5, 0.5, 5)
    assert relative_standard_deviation([1.0], [3.0]).mean == -2
    spread = relative_standard_deviation([1.0, 3.0, 2.0], [0.5, 1.5], seed=1)
    assert spread.low < spread.mean == 0.5 < spread.high
    # Each kind is drawn at its own size: two sentences are often the same one twice.
    few = relative_standard_deviation([1.0] * 500, [0.0, 2.0])
    assert (few.low, few.mean, few.high) == (-1, 0, 1)


@pytest.mark.parametrize(("factual", "nonfactual"), [([], [1.0]), ([1.0], []), ([0.0], [1.0])])
def test_relative_standard_deviation_needs_both_kinds(factual: list, nonfactual: list) -> None:
    with pytest.raises(ValueError, match="RSD"):
        relative_standard_deviation(factual, nonfactual)


def test_permutation_null_tells_structure_from_chance() -> None:
    examples = np.arange(60).reshape(20, 3)
    planted = np.repeat(random_sets(0, 20, 400, 0.05), 3, axis=0)
    found = permutation_null(similarity_matrix(planted), examples, "consistency", permutations=99)
    assert found.observed == pytest.approx(1)
    assert found.p_value == pytest.approx(1 / 100)
    assert abs(found.mean) < 0.1
    chance = permutation_null(
        similarity_matrix(random_sets(1, 60, 400, 0.05)), examples, "relevance", permutations=99
    )
    assert abs(chance.observed - chance.mean) < 4 * chance.standard_deviation


def test_null_inside_groups_keeps_what_a_group_shares() -> None:
    # Two relations; the located set depends on the relation only, so nothing is left of the fact.
    sets = np.repeat(random_sets(0, 2, 400, 0.05), 9, axis=0)
    similarities = similarity_matrix(sets)
    examples = np.arange(18).reshape(6, 3)
    relations = [0, 0, 0, 1, 1, 1]
    free = permutation_null(similarities, examples, "consistency", permutations=99)
    inside = permutation_null(
        similarities, examples, "consistency", groups=relations, permutations=99
    )
    assert free.mean < free.observed
    assert inside.mean == pytest.approx(inside.observed)
    assert inside.p_value == 1


def test_a_null_without_a_value_has_no_p() -> None:
    sets = random_sets(0, 3, 400, 0.05)
    null = permutation_null(
        similarity_matrix(sets), np.arange(3)[None], "consistency", permutations=9
    )
    assert np.isnan(null.observed)  # one example has no others to be compared with
    assert np.isnan(null.p_value)
