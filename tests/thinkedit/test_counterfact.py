"""CounterFact metrics against hand-computed cases and what must hold for any text."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.thinkedit.counterfact import (
    consistency,
    efficacy,
    fluency,
    inverse_document_frequencies,
    neighbourhood_success,
    ngram_entropy,
    paraphrase_success,
)

sentences = st.lists(st.sampled_from(["river", "Bridge", "of", "stone", "!"]), max_size=30).map(
    " ".join
)


def test_success_is_strict() -> None:
    new, true = [-1, -2, -3, -1], [-2, -2, -1, -3]
    assert efficacy(new=new, true=true) == 0.5
    assert paraphrase_success(new=new, true=true) == 0.5
    assert neighbourhood_success(new=new, true=true) == 0.25


def test_success_needs_pairs() -> None:
    assert math.isnan(efficacy(new=[], true=[]))
    with pytest.raises(ValueError, match="same prompts"):
        efficacy(new=[-1], true=[-1, -2])


def test_entropy_by_hand() -> None:
    tokens = ["a", "b", "a", "b", "a"]
    assert ngram_entropy(tokens, n=2) == pytest.approx(1)  # ab, ba, ab, ba
    # aba, bab, aba: -(2/3 log2 2/3 + 1/3 log2 1/3)
    assert ngram_entropy(tokens, n=3) == pytest.approx(0.9182958)
    assert ngram_entropy(["a", "a", "a"], n=2) == 0
    assert ngram_entropy(["a"], n=2) == 0


def test_fluency_variants() -> None:
    text = "a b a b a"
    assert fluency(text, variant="weighted_sum") == pytest.approx(2 / 3 + 4 / 3 * 0.9182958)
    assert fluency(text) == pytest.approx(1 / 3 + 2 / 3 * 0.9182958)
    assert fluency("") == 0


def test_repetition_is_less_fluent() -> None:
    assert fluency("the the the the the the") < fluency("the bridge spans a wide river")


@given(sentences)
def test_the_sum_is_twice_the_average(text: str) -> None:
    assert fluency(text, variant="weighted_sum") == pytest.approx(2 * fluency(text))
    assert fluency(text) >= 0


def test_consistency_by_hand() -> None:
    idf = inverse_document_frequencies(["red stone", "red river", "Red bridge"])
    common, rare = 1.0, math.log(4 / 2) + 1
    assert idf == pytest.approx({"red": common, "stone": rare, "river": rare, "bridge": rare})
    wanted = common / (common + rare**2)
    assert consistency("Red stone", "red river", idf=idf) == pytest.approx(wanted)
    assert consistency("red red", "red", idf=idf) == pytest.approx(1)
    assert consistency("stone", "river", idf=idf) == 0
    assert consistency("unknown", "red", idf=idf) == 0


@given(sentences, sentences)
def test_consistency_is_symmetric_and_bounded(one: str, other: str) -> None:
    idf = inverse_document_frequencies([one, other])
    value = consistency(one, other, idf=idf)
    assert -1e-12 <= value <= 1 + 1e-12
    assert consistency(other, one, idf=idf) == pytest.approx(value)
    if any(word in idf for word in ("river", "bridge", "of", "stone") if word in one.lower()):
        assert consistency(one, one, idf=idf) == pytest.approx(1)
