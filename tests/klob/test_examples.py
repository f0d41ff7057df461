"""KLoB's files load in the published schema; examples that break it are reported by their lines."""

import json
import os
from pathlib import Path

import pytest

from helpers import UserError
from helpers.klob.examples import ConsistencyExample, load_examples, read_examples
from helpers.records import without_slot

LABEL = "official-language_(P37)"
CONSISTENCY = {
    "prompts": ["Utopia speaks _", "In Utopia people speak _", "The language of utopia is _"],
    "knowledge": ["Utopia", LABEL, "Latin"],
}
RELEVANCE = {
    "single_knowledge": ["Hythloday", "located_(P17)", "Utopia"],
    "knowledge_chain": ["Hythloday", "located_(P17)", "Utopia", "capital_(P36)", "Amaurot"],
    "single_knowlege_prompts": ["Hythloday is in _", "Look for Hythloday in _", "He lives in _"],
    "knowlege_chain_prompt": "The capital of the country where Hythloday lives is _",
}


def write(folder: Path, *values: object) -> Path:
    path = folder / "examples.jsonl"
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return path


def test_published_schema(tmp_path: Path) -> None:
    path = write(tmp_path, CONSISTENCY)
    fact = ConsistencyExample(tuple(CONSISTENCY["prompts"]), ("Utopia", LABEL, "Latin"))
    assert read_examples("consistency", path) == {0: fact}
    loaded = load_examples("consistency", path)
    assert [s.subject for s in loaded.groups[0]] == ["Utopia", "Utopia", None]
    assert {s.answer for s in loaded.sentences} == {"Latin"}
    assert loaded.relations == (LABEL,)
    chain = load_examples("relevance", write(tmp_path, RELEVANCE))
    assert [s.answer for s in chain.groups[0]] == ["Utopia"] * 3 + ["Amaurot"]
    assert chain.groups[0][3].cloze == RELEVANCE["knowlege_chain_prompt"]
    random = load_examples("unbiasedness", write(tmp_path, "qua zot _", "lorn _"))
    assert [s.cloze for s in random.sentences] == ["qua zot _", "lorn _"]
    assert random.relations == ("", "")
    assert random.sentences[0].answer is None


@pytest.mark.parametrize("text", ["no slot", "glued_", " _", "_ first", "blank _ "])
def test_sentences_without_a_slot(text: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="slot"):
        without_slot(text)
    with pytest.raises(UserError, match=r"line 2: .*slot"):
        read_examples("unbiasedness", write(tmp_path, "fine _", text))
    assert without_slot("The company: _") == "The company:"


def test_bad_examples_are_reported_together_by_file_and_line(tmp_path: Path) -> None:
    two_prompts = {**CONSISTENCY, "prompts": CONSISTENCY["prompts"][:2]}
    path = write(tmp_path, CONSISTENCY, two_prompts, RELEVANCE)
    match = r"examples.jsonl, line 2: prompts: .*at least 3.*, line 3: prompts: field required"
    with pytest.raises(UserError, match=match):
        read_examples("consistency", path)
    path.write_text('"a _"\n"b', encoding="utf-8")
    with pytest.raises(UserError, match="line 2: : invalid json"):
        read_examples("unbiasedness", path)
    with pytest.raises(UserError, match="neither"):
        read_examples("consistency", "klob-maxi")


def test_examples_are_chosen_by_seed_in_file_order() -> None:
    first, again, other = (load_examples("relevance", count=3, seed=seed) for seed in (0, 0, 1))
    assert first == again != other
    assert sorted(first.numbers) == list(first.numbers)
    assert first.groups[1] == load_examples("relevance").groups[first.numbers[1]]
    with pytest.raises(ValueError, match="9999 examples"):
        load_examples("relevance", count=9_999)


@pytest.mark.skipif(not os.environ.get("HELPERS_DATA"), reason="HELPERS_DATA names no folder")
def test_official_sentences_without_facts() -> None:
    sentences = read_examples("unbiasedness", "klob").values()
    assert len(sentences) == 25_470
    words = [len(sentence.split()) for sentence in sentences]  # the slot counts as a word
    assert sum(words) / len(words) == pytest.approx(10.1, abs=0.3)  # KLoB, Table 1
