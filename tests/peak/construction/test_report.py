"""The validation report finds what is planted; tables hold what records hold."""

from dataclasses import replace

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from helpers.peak.construction.report import (
    example_table,
    linked_share,
    lookalikes,
    relation_names,
    template_table,
    validation_report,
)
from helpers.peak.records import PeakRecord
from helpers.results.archive import About, Archive
from helpers.results.figure import published
from helpers.triples.graph import Edge, Entity, Graph
from helpers.triples.templates import packaged_templates

SOUND = PeakRecord(
    0, "P47", "Next to {} lies", "Peru", "Spain", "Chile", ("Chile", "Brazil"),
    ("Portugal", "France"), tuple(f"r{i}" for i in range(10)), ("Near Peru lies",),
    (("Next to Bolivia lies", "Chile"),),
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"hard_false": ("Chile", "France")}, "correct answer among hard false"),
        ({"target_new": "Chile"}, "appended answer among correct"),
        ({"correct": ("Chile", "Brazil", "Peru")}, "subject among correct"),
        ({"target_new": "Next"}, "edit prompt gives o* away"),
        ({"locality": (("Near Peru lies", "Chile"),)}, "locality prompt in scope"),
        ({"locality": (("Next to Bolivia lies", "Spain"),)}, "locality answer not correct"),
    ],
)
def test_each_contradiction_is_found(change, kind):
    assert validation_report([SOUND]) == []
    assert kind in {warning.kind for warning in validation_report([replace(SOUND, **change)])}


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


def test_links_and_lookalikes_are_counted():
    edges = tuple(Edge(*triple) for triple in (("E", "P47", "A"), ("B", "P47", "E")))
    graph = Graph({name: Entity(name, name, frozenset({"country"})) for name in "ABEZ"}, edges)
    record = replace(SOUND, target_new="E", hard_false=("A", "B", "Z"))
    assert linked_share([record], graph) == (2, 3)
    twin = replace(SOUND, correct=("Labor Day",), hard_false=("Labour Day", "May Day"))
    assert lookalikes([twin]) == [(0, "Labor Day", "Labour Day")]


@pytest.fixture
def drawn(tmp_path):
    """A construction's figures from stored tables, by kind."""
    source = {"facts": "ours", "model": "m", "dtype": "float32", "device": "cpu", "rule": "rank"}
    rows = [("CF", "facts", 900), ("CF", "enough", 40), ("CF", "known", 2), ("T", "facts", 900)]
    funnel = pd.DataFrame(rows, columns=["set", "step", "left"])
    table = pd.DataFrame(
        {
            "set": ["CF", "T", "CF"],
            "name": ["borders", "borders", "country"],
            "step": ["", "model knows correct answers", ""],
            "correct": [10, 8, 20],
            "correct_kept": [5, 0, 10],
        }
    )
    tables = {"funnel": funnel, "filter": table}
    Archive(tmp_path / "construction").put("ours_m", tables, About(source))
    entries = published(tmp_path, chapter="02")
    yield {name.removesuffix("_ours_m"): entry.draw() for name, entry in entries.items()}
    plt.close("all")


def test_figures_hold_the_stored_numbers(drawn):
    left, right = drawn["02_funnel"].axes
    assert [bar.get_width() for bar in left.patches] == [900, 40, 2]
    assert [text.get_text() for text in right.texts] == ["900"]
    assert drawn["02_funnel"].get_suptitle().startswith("2 of 900 facts become CF records")
    kept, lost, means = drawn["02_known"].axes[0].collections
    assert list(kept.get_offsets()[:, 0]) == [50, 50]
    assert list(lost.get_offsets()[:, 0]) == [0]
    assert list(means.get_offsets()[:, 0]) == [25, 50]
    assert drawn["02_known"].get_suptitle().startswith("In 1 of 2 relations")
    assert "ours facts, m, float32 on cpu, rule rank" in drawn["02_known"].get_supxlabel()
