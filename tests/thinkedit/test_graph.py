"""Knowledge graphs: identity of entities, edits, closure and deep editing."""

import networkx as nx
import pytest

from helpers.thinkedit import graph, knowgic
from helpers.thinkedit.graph import Triplet
from tests.thinkedit.conftest import HOUSE, PART, SCHOOL

FRIEND = Triplet("Red House", "'s oldest member is", "Ada")


@pytest.fixture
def small() -> nx.DiGraph:
    return graph.knowledge_graph([SCHOOL, HOUSE, PART, FRIEND])


def test_entities_are_compared_case_folded_and_keep_their_first_spelling():
    made = graph.knowledge_graph([HOUSE, Triplet("RED HOUSE", "belongs to", "North College")])
    assert made.number_of_nodes() == 3
    assert [str(t) for t in graph.triplets(made)][1] == "(Red House, belongs to, North College)"


def test_one_relation_per_ordered_pair_and_both_directions(small):
    assert not graph.add_triplet(small, Triplet("ada", "was born in", "Red house"))
    assert small.edges["ada", "red house"]["relation"] == "lives in"
    assert small.has_edge("red house", "ada")


@pytest.mark.parametrize(
    "triplet", [Triplet("Ada", "is", "ada"), Triplet("Ada", " ", "Bo"), Triplet("", "is", "Bo")]
)
def test_impossible_triplets_are_refused(small, triplet):
    with pytest.raises(ValueError, match=r"itself|empty part"):
        graph.add_triplet(small, triplet)


def test_closure_by_hand(small):
    one = graph.deductive_closure(small, steps=1)
    assert one == {(t.subject, t.relation, t.object) for t in graph.triplets(small)}
    two = graph.deductive_closure(small, steps=2)
    assert two - one == {
        ("Ada", "lives in", "belongs to", "North College"),
        ("Red House", "'s oldest member is", "studied at", "North College"),
    }


def test_deep_editing_by_hand(small):
    elsewhere = Triplet("Ada", "studied at", "South College")
    shallow = graph.knowledge_graph([elsewhere, HOUSE, PART, FRIEND])
    assert graph.is_deep_edited(shallow, SCHOOL, steps=1)
    assert not graph.is_deep_edited(shallow, SCHOOL, steps=2)
    moved = Triplet("Ada", "lives in", "Blue House")
    deep = graph.knowledge_graph([elsewhere, moved, PART, FRIEND])
    assert graph.is_deep_edited(deep, SCHOOL, steps=5)


def test_chains_are_ordered_simple_and_bounded(small):
    found = graph.simple_chains(small, "ADA", "north college")
    assert found == [(SCHOOL,), (HOUSE, PART)]
    assert graph.simple_chains(small, "Ada", "North College", max_steps=1) == [(SCHOOL,)]
    assert graph.simple_chains(small, "Ada", "Nowhere") == []


def test_a_grown_graph_becomes_an_edit_that_reads_back(small, tmp_path):
    with pytest.raises(ValueError, match="no validated question"):
        graph.as_edit(small, SCHOOL, new="South College")
    for number, (a, b) in enumerate(small.edges):
        small.edges[a, b]["question"] = f"Question {number}?"
    edit = graph.as_edit(small, SCHOOL, new="South College", case_id=3)
    assert [len(chain) for chain in edit.chains] == [1, 2]
    knowgic.write_edits([edit], tmp_path / "edit.json")
    assert knowgic.read_edits(tmp_path / "edit.json") == (edit,)
    with pytest.raises(ValueError, match="no chain"):
        graph.as_edit(small, Triplet("North College", "is", "Ada"), new="x")


@pytest.mark.usefixtures("data_folder")
def test_published_chains_are_exactly_the_simple_paths_of_their_graphs():
    for edit in knowgic.load_edited_graphs("2025-06"):
        made = graph.graph_of_facts(edit.facts)
        found = graph.simple_chains(made, edit.subject, edit.original)
        paths = {(chain[0].key[0], *(t.key[2] for t in chain)) for chain in found}
        published = {tuple(n.casefold() for n in chain.nodes) for chain in edit.chains}
        assert paths == published
        assert len(found) == len(edit.chains)
