"""What is asked about an edit: kinds, rivals, reconstruction prompts."""

from dataclasses import replace

import pytest

from helpers.thinkedit.knowgic import Chain, ChainFact, EditedGraph
from helpers.thinkedit.probes import (
    OTHER_RIVALS,
    kind_of_question,
    kinds_of,
    neighbours_of,
    probes_of,
    rivals_of,
)


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("Who is Ada's friend?", "who"),
        ("In which city does Ada work?", "city"),
        ("Which leagues did he play in?", "league"),
        ("Where does Ada live?", "where"),
        ("What is the?", ""),
    ],
)
def test_kinds(question, kind):
    assert kind_of_question(question) == kind


def test_rivals_are_of_the_kind_and_never_correct(edits):
    kinds = kinds_of(edits)
    assert kinds["who"] == {"Bo", "Di", "Flo"}
    friend = edits[0].facts[1]
    # only two others are persons, too few to decide: the graph's own entities compete
    assert rivals_of(friend, edits[0], kinds) == ("Rome",)
    more = {"who": frozenset({"Bo", "Di", "Flo", "Gus", "ADA"})}
    assert rivals_of(friend, edits[0], more) == ("Di", "Flo", "Gus")
    # What the edit makes true is no rival of what was true.
    towns = {
        kind_of_question(edits[0].facts[0].question): frozenset({"Bonn", "Lima", "OSLO", "Turin"})
    }
    assert rivals_of(edits[0].facts[0], edits[0], towns) == ("Bonn", "Lima", "Turin")


def test_every_entity_of_the_kind_in_the_own_graph_is_a_rival():
    names = [f"N{i:02}" for i in range(20)]
    chains = tuple(
        Chain((ChainFact("Ada", f"{{}} has friend {i} called", name, "Who is it?"), end))
        for i, name in enumerate(names)
        for end in [ChainFact(name, "{} lives in", "Rome", "Where?")]
    )
    edit = EditedGraph(1, "Ada", "{} lives in", "Rome", "Oslo", chains)
    kinds = {"who": frozenset({*names, "A1", "A2"})}
    rivals = rivals_of(edit.facts[0], edit, kinds)
    assert rivals == tuple(names[1:])  # more than OTHER_RIVALS, so none from other graphs
    few = replace(edit, chains=chains[:5])
    assert rivals_of(few.facts[0], few, kinds)[:5] == ("N01", "N02", "N03", "N04", "A1")
    assert len(rivals_of(few.facts[0], few, kinds)) == OTHER_RIVALS


def test_all_forms_are_asked(edits):
    probes = probes_of(edits[0], edits, kinds_of(edits))
    by_form = {form: [p for p in probes if p.form == form] for form in {p.form for p in probes}}
    facts = by_form["fact"]
    assert [p.prompt for p in facts] == ["Ada lives in", "Ada's friend is", "Bo lives in"]
    assert [p.other for p in facts] == ["Oslo", None, "Oslo"]
    assert [p.item for p in by_form["reverse"]] == [0, 1]
    assert '"___ lives in Rome"' in by_form["reverse"][0].prompt
    assert "Ada lives in Rome?" in by_form["yes_no"][0].prompt
    assert (by_form["edit"][0].original, by_form["edit"][0].other) == ("Rome", "Oslo")
    assert len(by_form["paraphrase"]) == 2
    assert [p.prompt for p in by_form["neighbour"]] == [
        "Bo lives in",
        "Di lives in",
        "Flo lives in",
    ]


def test_neighbours_share_the_relation_in_either_wording(edits):
    direct = replace(edits[0].facts[0], prompt="{} has its home in")
    edit = replace(edits[0], chains=(Chain((direct,)), *edits[0].chains[1:]))
    alike = ChainFact("Gus", "{} has its home in", "Bonn", "What is it?")
    other = replace(edits[1], chains=(*edits[1].chains, Chain((alike,))))
    assert alike in neighbours_of(edit, [edit, other])
    assert alike not in neighbours_of(edits[0], [edits[0], other])
