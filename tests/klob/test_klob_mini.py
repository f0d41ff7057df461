"""The packaged benchmark is what its construction gives; choices are balanced and seeded; recall."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from helpers.klob.examples import read_examples
from helpers.klob.templates import corrected_relations, load_templates
from helpers.results.text import published_table
from helpers.triples.sources import read_facts
from tools.klob_mini import COMPILED, consistency_example, main, relevance_example

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


def test_corrected_wordings_and_those_as_printed(tmp_path: Path) -> None:
    """The same facts in both; Table 3 has slips in a third, and other relations' sentences in P17, P36."""
    main(paper=tmp_path)
    corrected = list(read_examples("consistency").values())
    printed = list(read_examples("consistency", tmp_path).values())
    assert [e.fact for e in corrected] == [e.fact for e in printed]
    differ = [c.fact[1] for c, p in zip(corrected, printed, strict=True) if c.prompts != p.prompts]
    assert (len(corrected), len(differ)) == (492, 159)
    assert set(differ) <= corrected_relations()
    assert sum(property_of(label) in ("P17", "P36") for label in differ) == 100
    (paris,) = (e.prompts[0] for e in printed if e.fact[:2] == ("France", "capital_(P36)"))
    assert paris == "France is the capital of _"  # as in the table
    chains = [list(read_examples("relevance", s).values()) for s in ("klob-mini", tmp_path)]
    assert [(e.chain, e.chain_prompt) for e in chains[0]] == [
        (e.chain, e.chain_prompt) for e in chains[1]
    ]
    assert read_examples("unbiasedness", tmp_path) == read_examples("unbiasedness")


def test_every_relation_of_the_paper_has_templates_and_a_keyword() -> None:
    table = published_table("klob_table_2")
    labels = (table["keyword"] + "_(" + table["relation"] + ")").tolist()
    assert sorted(labels) == sorted(t.label for t in TEMPLATES.values() if t.table_3)
    for wordings in TEMPLATES.values():
        assert len(wordings.templates) == 3
        assert all(t.count("[X]") == 1 and t.endswith(" [Y]") for t in wordings.templates)
    assert {fact.relation for fact in read_facts(COMPILED)} <= set(TEMPLATES)
