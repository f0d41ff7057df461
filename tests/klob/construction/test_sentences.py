"""KLoB's construction: templates as printed and corrected, chains, random sentences, recall."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from helpers.klob.construction import known_facts
from helpers.klob.construction.known_facts import RecallQuestion, recalled, with_demonstrations
from helpers.klob.construction.sentence_templates import (
    RelationTemplates,
    TemplateError,
    load_templates,
)
from helpers.klob.construction.sentences import (
    consistency_example,
    dictionary_words,
    nonfactual_sentences,
    relation_counts,
    relevance_example,
    statistics,
    two_hop_chains,
)
from helpers.klob.examples import load_consistency, load_relevance, save_examples
from helpers.models import LanguageModel
from helpers.results.text import published_table

LANGUAGE = ("Utopia", "P37", "Latin")
CAPITAL_OF = ("Amaurot", "P1376", "Utopia")


def test_every_relation_of_the_paper_has_templates_and_a_keyword() -> None:
    corrected, paper = load_templates("corrected"), load_templates("paper")
    table = published_table("klob_table_2")
    assert dict(zip(table["relation"], table["keyword"], strict=True)) == {
        relation: wordings.keyword for relation, wordings in paper.items()
    }
    assert set(paper) == {relation for relation, w in corrected.items() if w.table_3}
    assert len(paper) == 32


def test_slips_are_recorded_where_wordings_differ() -> None:
    corrected, paper = load_templates("corrected"), load_templates("paper")
    for relation, printed in paper.items():
        differs = printed.templates != corrected[relation].templates
        assert differs == bool(printed.slip), relation
    assert paper["P17"].templates[0] == "The headquarters of [X] is located in [Y]"
    assert "Lumia 800" in paper["P176"].templates[1]
    assert "langeuage" in paper["P407"].templates[2]
    assert corrected["P36"].templates[0] == "The capital of [X] is [Y]"


@pytest.mark.parametrize(
    "templates", [("one [Y]",), ("No subject [Y]",) * 3, ("[X] first [Y] then",) * 3]
)
def test_bad_templates(templates: tuple[str, ...]) -> None:
    with pytest.raises(TemplateError, match="P0"):
        RelationTemplates("P0", "k", templates, "the k of [X]", True, "")


def test_unknown_variant_and_relation() -> None:
    with pytest.raises(TemplateError, match="corrected"):
        load_templates("printed")  # type: ignore[arg-type]
    with pytest.raises(TemplateError, match="P0"):
        consistency_example(("a", "P0", "b"), load_templates())


def test_consistency_example() -> None:
    example = consistency_example(LANGUAGE, load_templates())
    assert example.knowledge == ("Utopia", "official-language_(P37)", "Latin")
    assert example.prompts[1] == "In terms of official language, Utopia uses _"
    printed = consistency_example(("Utopia", "P127", "More"), load_templates("paper"))
    assert printed.prompts[1] == "the company that owns Utopia is _"


def test_a_chain_may_start_with_a_description() -> None:
    named = ("Utopia", "P138", "nowhere")
    example = relevance_example((CAPITAL_OF, named), load_templates())
    assert example.chain_prompt == "The country whose capital is Amaurot is named after _"


def test_relevance_example_describes_the_bridge() -> None:
    example = relevance_example((CAPITAL_OF, LANGUAGE), load_templates())
    assert example.chain_prompt == (
        "The official language of the country whose capital is Amaurot is _"
    )
    assert "Utopia" not in example.chain_prompt
    assert example.chain == (
        *("Amaurot", "capital_(P1376)", "Utopia"),
        *("official-language_(P37)", "Latin"),
    )
    with pytest.raises(TemplateError, match="no chain"):
        relevance_example((LANGUAGE, CAPITAL_OF), load_templates())


def test_chains_neither_return_nor_use_other_relations() -> None:
    back = ("Utopia", "P36", "Amaurot")
    triples = [CAPITAL_OF, LANGUAGE, back, ("Latin", "P1", "Rome")]
    assert two_hop_chains(triples, ["P1376", "P37", "P36"]) == [(CAPITAL_OF, LANGUAGE)]
    assert two_hop_chains(triples, ["P1376", "P37"], excluded=[("P1376", "P37")]) == []
    assert two_hop_chains(triples, ["P37", "P1"]) == [(LANGUAGE, ("Latin", "P1", "Rome"))]


def test_examples_are_in_the_published_schema(tmp_path: Path) -> None:
    path = tmp_path / "examples.jsonl"
    facts = (consistency_example(LANGUAGE, load_templates()),)
    save_examples(facts, path)
    assert load_consistency(path) == facts
    chains = (relevance_example((CAPITAL_OF, LANGUAGE), load_templates()),)
    save_examples(chains, path)
    assert load_relevance(path) == chains


def test_random_sentences_keep_their_length() -> None:
    clozes = ("In terms of official language, Utopia uses _", "The works of: _")
    words = ["zot", "qua", "lorn"] * 20
    sentences = nonfactual_sentences(clozes, words, seed=4)
    assert [len(s.split()) for s in sentences] == [len(c.split()) for c in clozes]
    assert all(s.endswith(" _") for s in sentences)
    assert sentences == nonfactual_sentences(clozes, words, seed=4)
    assert sentences != nonfactual_sentences(clozes, words, seed=5)
    drawn = {w for s in nonfactual_sentences(clozes * 200, words) for w in s.split()[:-1]}
    assert {"zot", "qua", "lorn"} < drawn
    assert all(len(mark) == 1 and mark != "_" for mark in drawn - set(words))
    with pytest.raises(ValueError, match="empty"):
        nonfactual_sentences(clozes, [])


def test_dictionary_is_websters_second() -> None:
    words = dictionary_words()
    assert len(words) > 200_000
    assert {"extirpation", "matureness"} <= set(words)


def test_statistics() -> None:
    templates = load_templates()
    facts = [consistency_example(LANGUAGE, templates), consistency_example(CAPITAL_OF, templates)]
    chains = [relevance_example((CAPITAL_OF, LANGUAGE), templates)]
    numbers = statistics(facts, chains, ["zot qua _", "lorn _"])
    assert numbers["c"]["relations"] == 2
    assert numbers["r"] == {"relations": 2, "average length": 12, "examples": 1}
    assert numbers["u"] == {"average length": 2.5, "examples": 2}
    assert relation_counts(facts) == {"official-language_(P37)": 1, "capital_(P1376)": 1}


def questions(count: int, relation: str = "P37") -> list[RecallQuestion]:
    return [
        RecallQuestion(f"The language of land{i} is", f"tongue{i}", relation) for i in range(count)
    ]


def test_demonstrations_never_show_the_question() -> None:
    asked = questions(12)
    prompts = with_demonstrations(asked, 8, 0)
    for question, prompt in zip(asked, prompts, strict=True):
        lines = prompt.split("\n")
        assert len(lines) == 9
        assert lines[-1] == question.prompt
        assert not any(question.prompt in line for line in lines[:-1])
    assert len({prompt.rsplit("\n", 1)[0] for prompt in prompts}) <= 9  # shared, hence packed
    with pytest.raises(ValueError, match="too few"):
        with_demonstrations(questions(8), 8, 0)


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "gemma3"])
def test_recall_is_what_greedy_decoding_says(
    architecture: str, tiny: Callable[..., LanguageModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the answers are made what the model really says, half are off by their last token."""
    model = tiny(architecture)
    asked = questions(6)
    answers: dict[str, tuple[int, ...]] = {}
    for number, prompt in enumerate(with_demonstrations(asked, 2, 0)):
        ids = list(model.tokenizer(prompt).input_ids)
        with torch.no_grad():
            for _ in range(3):
                ids.append(int(model.model(torch.tensor([ids])).logits[0, -1].argmax()))
        said = ids[-3:] if number % 2 else [*ids[-3:-1], (ids[-1] + 1) % 257]
        answers[asked[number].answer] = tuple(said)
    monkeypatch.setattr(known_facts, "answer_ids", lambda model, answer, _: answers[answer])
    for row_tokens in (1, 512):
        found = recalled(model, asked, demonstrations=2, row_tokens=row_tokens)
        assert found == [False, True] * 3
