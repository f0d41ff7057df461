"""The validation report finds what is planted; tables hold what records hold."""

from dataclasses import replace

import pytest

from helpers import UserError
from helpers.peak.construction.tables import (
    example_table,
    relation_names,
    statistics_table,
    template_table,
    validation_report,
)
from helpers.peak.schema import PeakRecord
from helpers.triples.sources import open_source
from helpers.triples.store import TripleStore
from helpers.triples.templates import packaged_templates

SOUND = PeakRecord(
    0, "P47", "Next to {} lies", "Peru", "Spain", "Chile", ("Chile", "Brazil"),
    ("Portugal", "France"), tuple(f"r{i}" for i in range(10)), ("Near Peru lies",),
    (("Next to Bolivia lies", "Chile"),),
)  # fmt: skip


def test_a_sound_record_has_no_contradictions():
    assert validation_report([SOUND]) == []


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"hard_false": ("Chile", "France")}, "correct answer among hard false"),
        ({"hard_false": ("CHILE", "France")}, "correct answer among hard false"),
        ({"target_new": "Chile"}, "appended answer among correct"),
        ({"hard_false": ("spain",)}, "appended answer among hard false"),
        ({"correct": ("Chile", "CHILE", "Brazil")}, "correct answer repeated"),
        (
            {"random_false": ("Portugal", *SOUND.random_false[1:])},
            "hard false answer among random false",
        ),
        ({"random_false": SOUND.random_false[1:]}, "unusual number of random false"),
        ({"correct": ("Chile", "Brazil", "Peru")}, "subject among correct"),
        ({"target_new": "Next"}, "edit prompt gives o* away"),
        ({"locality": (("Near Peru lies", "Chile"),)}, "locality prompt in scope"),
        ({"locality": (("Next to Bolivia lies", "Spain"),)}, "locality answer not correct"),
    ],
)
def test_each_contradiction_is_found(change, kind):
    assert kind in {warning.kind for warning in validation_report([replace(SOUND, **change)])}


def test_statistics_count_lists_over_records():
    table = statistics_table({"two": [SOUND, SOUND]})["two"]
    assert table.to_dict() == {
        "records": 2,
        "correct answers": 4,
        "paraphrase prompts": 2,
        "locality prompts": 2,
        "hard false answers": 4,
        "random false answers": 20,
    }


def test_example_shows_every_part_and_says_what_it_leaves_out():
    text = example_table(SOUND, shown=3)["text"]
    assert text["O"] == "Chile, Brazil"
    assert text["O_r"] == "r0, r1, r2, … (7 more)"
    assert text["locality"] == "Next to Bolivia lies → Chile"


def test_template_table_shows_a_cloze_and_a_question():
    names = relation_names(["P47", "re_P17", "P9999"])
    assert names == {"P47": "shares border with", "re_P17": "country (inverse)", "P9999": "P9999"}
    shown = template_table(packaged_templates(), {"P47": names["P47"]}).loc["shares border with"]
    assert shown["templates"].endswith("?”")


def test_sources_open_by_name(tmp_path):
    assert isinstance(open_source("packaged"), TripleStore)
    table = tmp_path / "mine.tsv"
    table.write_text("subject\trelation\tobject\nA\tP47\tB\n", encoding="utf-8")
    assert (
        len(
            open_source(str(table)).select(
                "SELECT ?o WHERE { ?s <http://www.wikidata.org/prop/direct/P47> ?o }"
            )
        )
        == 1
    )
    with pytest.raises(UserError, match="no source 'dbpedia': use packaged"):
        open_source("dbpedia")
