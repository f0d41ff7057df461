"""KLoB files load in the published schema; sentences without a slot are refused."""

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from helpers import UserError
from helpers.klob import examples as klob
from helpers.klob.examples import (
    ConsistencyExample,
    RelevanceExample,
    load_consistency,
    load_relevance,
    load_unbiasedness,
    save_examples,
)
from helpers.records import without_slot

CONSISTENCY = {
    "prompts": ["Utopia speaks _", "In Utopia people speak _", "The language of Utopia is _"],
    "knowledge": ["Utopia", "official-language_(P37)", "Latin"],
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
    (fact,) = load_consistency(write(tmp_path, CONSISTENCY))
    assert fact == ConsistencyExample(
        tuple(CONSISTENCY["prompts"]), ("Utopia", "official-language_(P37)", "Latin")
    )
    (chain,) = load_relevance(write(tmp_path, RELEVANCE))
    assert isinstance(chain, RelevanceExample)
    assert chain.fact[2] == chain.chain[2] == "Utopia"
    assert chain.prompts == (
        *RELEVANCE["single_knowlege_prompts"],
        RELEVANCE["knowlege_chain_prompt"],
    )
    assert load_unbiasedness(write(tmp_path, "qua zot _", "lorn _")) == ("qua zot _", "lorn _")


def test_saved_examples_load_again(tmp_path: Path) -> None:
    path = write(tmp_path, CONSISTENCY)
    examples = load_consistency(path)
    save_examples(examples, path)
    assert load_consistency(path) == examples
    assert json.loads(path.read_text(encoding="utf-8")) == CONSISTENCY
    chains = load_relevance(write(tmp_path, RELEVANCE))
    save_examples(chains, path)
    assert json.loads(path.read_text(encoding="utf-8")) == RELEVANCE


@pytest.mark.parametrize("text", ["no slot", "glued_", " _", "_ first", "blank _ "])
def test_sentences_without_a_slot(text: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="slot"):
        without_slot(text)
    with pytest.raises(UserError, match=r"line 2.*slot"):
        load_unbiasedness(write(tmp_path, "fine _", text))


def test_slot_is_stripped() -> None:
    assert without_slot("The capital of Utopia is _") == "The capital of Utopia is"
    assert without_slot("The company: _") == "The company:"


def test_bad_records_name_file_and_line(tmp_path: Path) -> None:
    two_prompts = {**CONSISTENCY, "prompts": CONSISTENCY["prompts"][:2]}
    with pytest.raises(UserError, match=r"examples.jsonl, line 1: prompts must be 3"):
        load_consistency(write(tmp_path, two_prompts))
    with pytest.raises(UserError, match="another subtask"):
        load_consistency(write(tmp_path, RELEVANCE))
    with pytest.raises(UserError, match="knowledge_chain must be 5"):
        load_relevance(write(tmp_path, {**RELEVANCE, "knowledge_chain": ["a", "b", "c"]}))
    with pytest.raises(UserError, match="must be text"):
        load_unbiasedness(write(tmp_path, ["a _"]))
    with pytest.raises(UserError, match="neither"):
        load_consistency("klob-maxi")
    broken = tmp_path / "broken.jsonl"
    broken.write_text('"a _"\n"b', encoding="utf-8")
    with pytest.raises(UserError, match="line 2: not JSON"):
        load_unbiasedness(broken)
    broken.write_text("", encoding="utf-8")
    with pytest.raises(UserError, match="empty"):
        load_unbiasedness(broken)


def test_official_files_are_checked_by_git_blob(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = (json.dumps(CONSISTENCY) + "\n").encode()
    place = tmp_path / klob.OFFICIAL["klob-c"].relative_path
    place.parent.mkdir()
    place.write_bytes(content)
    monkeypatch.setenv("HELPERS_DATA", str(tmp_path))
    with pytest.raises(UserError, match="not the published file"):
        load_consistency("klob")
    blob = hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
    monkeypatch.setitem(klob.OFFICIAL, "klob-c", replace(klob.OFFICIAL["klob-c"], git_blob=blob))
    assert len(load_consistency("klob")) == 1


@pytest.mark.skipif(not os.environ.get("HELPERS_DATA"), reason="HELPERS_DATA names no folder")
def test_official_sentences_without_facts() -> None:
    sentences = load_unbiasedness("klob")
    assert len(sentences) == 25_470
    words = [len(sentence.split()) for sentence in sentences]  # the slot counts as a word
    assert sum(words) / len(words) == pytest.approx(10.1, abs=0.3)  # KLoB, Table 1
