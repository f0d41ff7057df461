"""The packaged templates obey the rules that the records need."""

import pytest
import yaml

from helpers import UserError
from helpers.paths import PARAMS
from helpers.triples.sources import packaged_relations
from helpers.triples.templates import packaged_templates, templates_of


def test_every_relation_has_sound_clozes_and_questions():
    for relation, templates in packaged_templates().items():
        assert len(set(templates.all)) >= 4, relation
        assert templates.clozes, relation
        assert templates.questions, relation
        for text in templates.all:
            assert text.count("{}") == 1
            assert text == " ".join(text.split())
            assert not text.startswith("{}")
            assert not text.endswith(("{}", "."))  # the answer follows
            assert text.endswith("?") == (text in templates.questions)
    missing = set(packaged_relations()) - set(packaged_templates())
    assert missing == {"P78"}  # one top-level domain per country: nothing to append


@pytest.mark.parametrize(
    "path", sorted((PARAMS / "paper" / "02_peak_construction").glob("*.yaml")), ids=lambda p: p.stem
)
def test_relations_of_the_papers_runs_have_templates(path):
    asked = yaml.safe_load(path.read_text("utf-8"))["relations"]
    templates = packaged_templates()
    assert [r for r in asked if r not in templates and f"re_{r}" not in templates] == []


def test_a_relation_without_templates_is_an_error_with_a_remedy():
    with pytest.raises(UserError, match="P9999 has no templates: add"):
        templates_of(packaged_templates(), "P9999")
