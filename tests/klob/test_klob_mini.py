"""The packaged benchmark is what its construction gives; choices are balanced and seeded; recall."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import pytest
import torch

from helpers.klob.examples import read_examples
from helpers.models import LanguageModel
from helpers.records import without_slot
from helpers.results.text import published_table
from helpers.triples.sources import read_facts
from tools import klob_mini
from tools.klob_mini import (
    COMPILED,
    at_most,
    consistency_example,
    load_templates,
    mini_triples,
    recalled,
    relevance_example,
    two_hop_chains,
)

TEMPLATES = load_templates()


def property_of(label: str) -> str:
    found = re.search(r"\((P\d+)\)$", label)
    assert found is not None
    return found[1]


def test_packaged_sentences_follow_from_the_templates_and_are_balanced() -> None:
    facts, chains, random = (
        list(read_examples(part).values()) for part in ("consistency", "relevance", "unbiasedness")
    )
    for example in facts:
        subject, label, answer = example.fact
        assert example == consistency_example((subject, property_of(label), answer), TEMPLATES)
        assert TEMPLATES[property_of(label)].table_3
    for chain in chains:
        subject, first, bridge, second, answer = chain.chain
        hops = (subject, property_of(first), bridge), (bridge, property_of(second), answer)
        assert chain == relevance_example(hops, TEMPLATES)
        assert bridge not in chain.chain_prompt
    clozes = [*(e.prompts[0] for e in facts), *(e.chain_prompt for e in chains)]
    assert [len(s.split()) for s in random] == [len(cloze.split()) for cloze in clozes]
    assert len(facts) >= 300
    assert len(chains) >= 150
    assert len({e.fact for e in facts}) == len(facts)
    assert max(Counter(e.fact[1] for e in facts).values()) <= 50
    assert max(Counter((e.chain[1], e.chain[3]) for e in chains).values()) <= 25


def test_every_relation_of_the_paper_has_templates_and_a_keyword() -> None:
    table = published_table("klob_table_2")
    labels = (table["keyword"] + "_(" + table["relation"] + ")").tolist()
    assert sorted(labels) == sorted(t.label for t in TEMPLATES.values() if t.table_3)
    for wordings in TEMPLATES.values():
        assert len(wordings.templates) == 3
        assert all(t.count("[X]") == 1 and t.endswith(" [Y]") for t in wordings.templates)
    assert {fact.relation for fact in read_facts(COMPILED)} <= set(TEMPLATES)


def test_triples_have_one_answer_that_is_not_in_the_subject() -> None:
    triples = mini_triples(cities=30)
    assert triples == sorted(set(triples)) == mini_triples(cities=30)
    assert Counter(relation for _, relation, _ in triples)["P17"] <= 30
    assert max(Counter((s, r) for s, r, _ in triples).values()) == 1
    assert not any(answer.lower() in subject.lower() for subject, _, answer in triples)
    assert {"P1376", "P36"} <= {relation for _, relation, _ in triples}


def test_chains_neither_return_nor_use_other_relations() -> None:
    capital, language = ("Amaurot", "P1376", "Utopia"), ("Utopia", "P37", "Latin")
    triples = [capital, language, ("Utopia", "P36", "Amaurot"), ("Latin", "P1", "Rome")]
    assert two_hop_chains(triples, ["P1376", "P37", "P36"]) == [(capital, language)]
    assert two_hop_chains(triples, ["P1376", "P37"], excluded=[("P1376", "P37")]) == []
    example = relevance_example((capital, language), TEMPLATES)
    assert example.chain_prompt == (
        "The official language of the country whose capital is Amaurot is _"
    )


def test_choices_are_balanced() -> None:
    items = [0, 0, 1, 0, 2, 1, 1]
    kept = at_most(items, 2, lambda item: item, seed=3)
    assert Counter(kept) == {0: 2, 1: 2, 2: 1}
    assert kept == at_most(items, 2, lambda item: item, seed=3)


@pytest.mark.parametrize("architecture", ["gpt2", "gemma3"])
def test_recall_is_what_greedy_decoding_gives(
    architecture: str, tiny: Callable[..., LanguageModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the answers are made what the model really gives, half are off by their last token."""
    model, wordings = tiny(architecture), TEMPLATES["P37"]
    asked = [(f"land{i}", "P37", f"tongue{i}") for i in range(3)]
    prompts = [without_slot(wordings.clozes(subject)[0]) for subject, _, _ in asked]
    answers: dict[str, tuple[int, ...]] = {}
    for number, (prompt, (_, _, answer)) in enumerate(zip(prompts, asked, strict=True)):
        # All other questions of the relation demonstrate, in the order of the seed.
        order = klob_mini.random.Random("0 P37").sample(range(3), 3)
        shown = [i for i in order if i != number]
        solved = "".join(f"{prompts[i]} {asked[i][2]}\n" for i in shown)
        ids = list(model.tokenizer(solved + prompt).input_ids)
        with torch.no_grad():
            for _ in range(3):
                ids.append(int(model.model(torch.tensor([ids])).logits[0, -1].argmax()))
        off = 1 - number % 2
        answers[answer] = (*ids[-3:-1], (ids[-1] + off) % 257)
    monkeypatch.setattr(klob_mini, "answer_ids", lambda model, answer, _: answers[answer])
    assert recalled(model, asked, demonstrations=2) == [asked[1]]
    assert recalled(model, asked) == []  # too few facts to demonstrate with
