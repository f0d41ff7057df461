"""Additivity of one prompt: hand-computed cases and what must hold for any scores."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.peak.additivity import (
    additive_forgetting_factor,
    additive_noising_factor,
    additivity,
    keep_answers,
    probability_change,
    ranking_forgetting_factor,
    ranking_noise_factor,
)

scores = st.floats(min_value=-60, max_value=0)
lists = st.lists(scores, min_size=1, max_size=12)


@st.composite
def edits(draw: st.DrawFn) -> dict[str, Any]:
    """Scores of one prompt before and after an edit."""
    correct, false = draw(st.integers(1, 8)), draw(st.integers(1, 8))
    return {
        name: draw(st.lists(scores, min_size=size, max_size=size))
        for name, size in [
            ("correct_before", correct),
            ("correct_after", correct),
            ("false_before", false),
            ("false_after", false),
        ]
    }


def sigmoid(probability: float) -> float:
    return 1 / (1 + math.exp(-probability))


def test_filter_by_hand() -> None:
    correct, hard, random = [-1, -1.5, -2, -4], [-1.2, -3, -3, -5, -6], [-2, -2.1]
    # -1.5 and below have one hard answer of five above them: exactly the share of 0.2.
    kept = keep_answers(correct, hard, random)
    assert kept.correct.tolist() == [0]
    assert kept.hard.tolist() == [0, 1, 2, 3, 4]
    assert kept.random.tolist() == [0, 1]
    # With a larger share -1.5 and -2 stay; the false answers at or above -2 go.
    kept = keep_answers(correct, hard, random, hard_share=0.3)
    assert kept.correct.tolist() == [0, 1, 2]
    assert kept.hard.tolist() == [1, 2, 3, 4]
    assert kept.random.tolist() == [1]


def test_filter_keeps_equal_values_apart() -> None:
    kept = keep_answers([-1, -1], [-2, -2], [-3])
    assert kept.correct.tolist() == [0, 1]
    assert kept.hard.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("correct", "hard", "random"),
    [([], [-1], [-1]), ([-1], [], [-2]), ([-1], [-2], []), ([-3], [-1], [-4]), ([-1], [-2], [-1])],
)
def test_a_prompt_with_an_empty_list_is_skipped(
    correct: list[float], hard: list[float], random: list[float]
) -> None:
    assert not keep_answers(correct, hard, random).usable


def test_factors_by_hand() -> None:
    correct, false = np.log([0.5, 0.2]), np.log([0.3, 0.1])
    assert ranking_forgetting_factor(correct, false) == pytest.approx(
        sigmoid(0.2) / (sigmoid(0.5) + sigmoid(0.2))
    )
    assert ranking_noise_factor(correct, false) == pytest.approx(
        sigmoid(0.3) / (sigmoid(0.3) + sigmoid(0.1))
    )
    assert probability_change(np.log([0.5, 0.3]), correct) == pytest.approx(0.7 / 0.8)
    assert additive_forgetting_factor(rff=0.2, cpc=0.5) == pytest.approx(0.6)
    assert additive_forgetting_factor(rff=0.2, cpc=3) == pytest.approx(0.2)
    assert additive_noising_factor(rnf=0.2, fpc=2) == pytest.approx(0.6)
    assert additive_noising_factor(rnf=0.2, fpc=0.5) == pytest.approx(0.2)


def test_tiny_probabilities_are_ranked_unless_by_weight() -> None:
    correct, false = [-50], [-45]  # sigmoid rounds both to one half
    assert ranking_forgetting_factor(correct, false) == 1
    assert ranking_noise_factor(correct, false) == 1
    assert ranking_forgetting_factor(correct, false, compare="weight") == 0
    assert ranking_noise_factor(correct, false, compare="weight") == 0
    assert probability_change([-900.0], [-901.0]) == pytest.approx(math.exp(-1))


@given(edits())
def test_bounds(edit: dict[str, Any]) -> None:
    factors = additivity(**edit)
    for name in ("RFF", "RNF", "AFF", "ANF"):
        assert 0 <= factors[name] <= 1
    assert factors["AFF"] >= factors["RFF"] - 1e-12
    assert factors["ANF"] >= factors["RNF"] - 1e-12
    assert factors["CPC"] > 0
    assert factors["FPC"] > 0


@given(edits(), st.randoms(use_true_random=False))
def test_order_of_the_answers_does_not_matter(edit: dict[str, Any], random) -> None:  # type: ignore[no-untyped-def]
    shuffled: dict[str, Any] = {}
    for name in ("correct", "false"):
        pairs = list(zip(edit[f"{name}_before"], edit[f"{name}_after"], strict=True))
        random.shuffle(pairs)
        shuffled[f"{name}_before"] = [before for before, _ in pairs]
        shuffled[f"{name}_after"] = [after for _, after in pairs]
    assert additivity(**shuffled) == pytest.approx(additivity(**edit))


@given(edits())
def test_nothing_changed_is_nothing_lost(edit: dict[str, Any]) -> None:
    correct, hard = edit["correct_before"], edit["false_before"]
    kept = keep_answers(correct, hard, hard)
    if kept.usable:
        unchanged = additivity(
            correct_before=np.array(correct)[kept.correct],
            correct_after=np.array(correct)[kept.correct],
            false_before=np.array(hard)[kept.hard],
            false_after=np.array(hard)[kept.hard],
        )
        assert unchanged == pytest.approx(
            {"RFF": 0, "RNF": 0, "CPC": 1, "FPC": 1, "AFF": 0, "ANF": 0}
        )


@given(lists, lists, lists)
def test_the_filter_separates_the_lists(
    correct: list[float], hard: list[float], random: list[float]
) -> None:
    kept = keep_answers(correct, hard, random)
    for index in kept.correct:
        above = sum(value > correct[index] for value in hard)
        assert above / len(hard) < 0.2
        assert all(hard[other] < correct[index] for other in kept.hard)
        assert all(random[other] < correct[index] for other in kept.random)


@given(lists, lists, lists, st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_keeps_more_correct_answers(
    correct: list[float], hard: list[float], random: list[float], one: float, other: float
) -> None:
    low, high = sorted([one, other])
    few = keep_answers(correct, hard, random, hard_share=low).correct
    many = keep_answers(correct, hard, random, hard_share=high).correct
    assert set(few) <= set(many)


@given(lists, lists, st.floats(0, 20))
def test_a_stronger_false_answer_never_lowers_forgetting(
    correct: list[float], false: list[float], rise: float
) -> None:
    stronger = [min(0.0, value + rise) for value in false]
    assert ranking_forgetting_factor(correct, stronger) >= ranking_forgetting_factor(correct, false)


@given(lists, lists, st.floats(0, 20))
def test_a_weaker_correct_answer_never_lowers_noise(
    correct: list[float], false: list[float], fall: float
) -> None:
    weaker = [value - fall for value in correct]
    assert ranking_noise_factor(weaker, false) >= ranking_noise_factor(correct, false)


@given(edits(), st.floats(0, 10))
def test_more_probability_lost_is_more_forgotten(edit: dict[str, Any], gain: float) -> None:
    richer = edit | {"correct_before": [value + gain for value in edit["correct_before"]]}
    assert additivity(**richer)["AFF"] >= additivity(**edit)["AFF"] - 1e-12
    poorer = edit | {"false_before": [value - gain for value in edit["false_before"]]}
    assert additivity(**poorer)["ANF"] >= additivity(**edit)["ANF"] - 1e-12
