"""Packaged templates obey the rules; the rules and the drafting hook do what they say."""

import pytest
import yaml

from helpers.paths import PARAMS
from helpers.triples.packaged_facts import packaged_relations
from helpers.triples.templates import (
    TemplateError,
    draft_templates,
    faults,
    packaged_templates,
    read_templates,
    templates_of,
)


def test_every_relation_has_clozes_and_questions():
    for relation, templates in packaged_templates().items():
        assert len(set(templates.all)) >= 4, relation
        assert templates.clozes, relation
        assert templates.questions, relation
        assert not [text for text in templates.all if text.startswith("{}")]


def test_packaged_multi_answer_relations_have_templates():
    missing = set(packaged_relations()) - set(packaged_templates())
    assert missing == {"P78"}  # one top-level domain per country: nothing to append


@pytest.mark.parametrize(
    "path", sorted((PARAMS / "paper" / "02_peak_construction").glob("*.yaml")), ids=lambda p: p.stem
)
def test_relations_of_the_papers_runs_have_templates(path):
    asked = yaml.safe_load(path.read_text("utf-8"))["relations"]
    templates = packaged_templates()
    assert [r for r in asked if r not in templates and f"re_{r}" not in templates] == []


@pytest.mark.parametrize(
    "text", ["The capital of {} is", "Which cities lie in {}?", "In {}, cities:"]
)
def test_good_templates_have_no_faults(text):
    assert faults(text) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("The capital is", "0 slots"),
        ("{} and {} are", "2 slots"),
        ("The capital is in {}", "ends with the subject"),
        ("The capital of {} is.", "does not end where"),
        ("The capital of {} is ", "blanks"),
        ("The capital of {} is?", "a question mark without"),
        ("{} is", "fewer than two words"),
        ("The capital of {}, like New York, is", "holds the answer 'New York'"),
    ],
)
def test_each_rule_finds_its_fault(text, fault):
    assert any(found.startswith(fault) for found in faults(text, answers=["New York"]))


def test_an_answer_inside_a_longer_word_is_no_leak():
    assert faults("The Romanian side of {} is", answers=["Roman"]) == []


def test_a_draft_is_sorted_into_usable_and_faulty():
    asked = []

    def generate(prompt: str) -> str:
        asked.append(prompt)
        return (
            "1. {} has products such as\n- Which products does {} make?\n\n"
            "3. The iPod of {} is\n4) Buy it now\n{} has products such as…"
        )

    draft = draft_templates("product", [("Apple", "iPod")], generate, number=4)
    assert draft.accepted == ("{} has products such as", "Which products does {} make?")
    assert [text for text, _ in draft.rejected] == ["The iPod of {} is", "Buy it now"]
    assert "Apple: iPod" in asked[0]


def test_a_relation_without_templates_is_an_error_with_a_remedy():
    with pytest.raises(TemplateError, match="P9999 has no templates: add"):
        templates_of(packaged_templates(), "P9999")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a", "mapping"),
        ("P1: {cloze: []}", "lists named"),
        ("P1: {clozes: ['a {} b'], questions: ['Who is {}?']}", "2 wordings"),
        ("P1: {clozes: ['a {} b', 'c {} d', 'e {} f', 'g h {}']}", "ends with the subject"),
    ],
)
def test_bad_files_are_refused(tmp_path, text, message):
    path = tmp_path / "templates.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TemplateError, match=message):
        read_templates(path)
