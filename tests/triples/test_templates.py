"""Packaged templates obey the rules; the rules and the drafting hook do what they state."""

import pytest
import yaml

from helpers import UserError
from helpers.paths import PARAMS
from helpers.triples.sources import packaged_relations
from helpers.triples.templates import draft_templates, faults, packaged_templates, templates_of


def test_every_relation_has_sound_clozes_and_questions():
    for relation, templates in packaged_templates().items():
        assert len(set(templates.all)) >= 4, relation
        assert templates.clozes, relation
        assert templates.questions, relation
        assert not [text for text in templates.all if faults(text) or text.startswith("{}")]
        assert all(text.endswith("?") for text in templates.questions)
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
    ("text", "fault"),
    [
        ("The capital of {} is", None),
        ("Which cities lie in {}?", None),
        ("In {}, cities:", None),
        ("The York side of {} is", None),  # no leak: a part of the answer only
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
    found = faults(text, answers=["New York"])
    assert any(each.startswith(fault) for each in found) if fault else found == []


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
    with pytest.raises(UserError, match="P9999 has no templates: add"):
        templates_of(packaged_templates(), "P9999")
