"""The packaged benchmark is what its construction says; its choices are balanced and seeded."""

from __future__ import annotations

import re
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from helpers.klob.construction.klob_mini import COMPILED, at_most, mini_triples, single_valued
from helpers.klob.construction.sentence_templates import load_templates
from helpers.klob.construction.sentences import consistency_example, relevance_example
from helpers.klob.examples import load_consistency, load_relevance, load_unbiasedness
from helpers.triples.sources import read_facts


def property_of(label: str) -> str:
    found = re.search(r"\((P\d+)\)$", label)
    assert found is not None
    return found[1]


def test_packaged_files_are_large_enough_and_balanced() -> None:
    consistency, relevance = load_consistency(), load_relevance()
    assert len(consistency) >= 300
    assert len(relevance) >= 150
    assert len(load_unbiasedness()) >= 300
    assert max(Counter(e.knowledge[1] for e in consistency).values()) <= 50
    assert max(Counter((e.chain[1], e.chain[3]) for e in relevance).values()) <= 25
    assert len({e.knowledge for e in consistency}) == len(consistency)


def test_packaged_sentences_follow_from_the_templates() -> None:
    templates = load_templates()
    for example in load_consistency():
        subject, label, answer = example.knowledge
        assert example == consistency_example((subject, property_of(label), answer), templates)
        assert templates[property_of(label)].table_3
    for chain in load_relevance():
        subject, first, bridge, second, answer = chain.chain
        hops = (subject, property_of(first), bridge), (bridge, property_of(second), answer)
        assert chain == relevance_example(hops, templates)
        assert bridge not in chain.chain_prompt


def test_random_sentences_match_the_factual_ones_in_length() -> None:
    clozes = [e.prompts[0] for e in load_consistency()]
    clozes += [e.chain_prompt for e in load_relevance()]
    lengths = [len(cloze.split()) for cloze in clozes]
    assert [len(sentence.split()) for sentence in load_unbiasedness()] == lengths


def test_triples_have_one_answer_that_is_not_in_the_subject() -> None:
    triples = mini_triples(cities=30)
    assert triples == sorted(set(triples)) == mini_triples(cities=30)
    assert Counter(relation for _, relation, _ in triples)["P17"] <= 30
    assert max(Counter((s, r) for s, r, _ in triples).values()) == 1
    assert not any(answer.lower() in subject.lower() for subject, _, answer in triples)
    assert {"P1376", "P36"} <= {relation for _, relation, _ in triples}


def test_compiled_facts_have_templates() -> None:
    assert {fact.relation for fact in read_facts(COMPILED)} <= set(load_templates())


def test_single_valued_drops_plural_answers() -> None:
    triples = [("a", "P38", "x"), ("a", "P38", "x"), ("b", "P38", "x"), ("b", "P38", "y")]
    assert single_valued(triples) == {("a", "P38", "x")}


@given(st.lists(st.integers(0, 5)), st.integers(1, 3), st.integers(0, 9))
def test_at_most_keeps_as_many_as_allowed(items: list[int], limit: int, seed: int) -> None:
    kept = at_most(items, limit, lambda item: item, seed=seed)
    assert Counter(kept) == {item: min(n, limit) for item, n in Counter(items).items()}
