"""One edit looked at closely, from facts set by hand."""

from dataclasses import replace

import networkx as nx
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from helpers.thinkedit import case
from helpers.thinkedit.knowgic import Chain


@pytest.fixture
def facts() -> pd.DataFrame:
    """The direct fact is lost, the friend kept, the friend's home was never known."""
    return pd.DataFrame(
        {
            "case_id": 1,
            "item": [0, 1, 2],
            "before": [1.0, 0.8, 0.2],
            "after": [0.0, 0.4, 0.4],
            "known_before": [True, True, False],
            "known_after": [False, True, False],
        }
    )


def test_states_of_edges(edits, facts):
    states = case.edge_states(edits[0], facts)
    assert states["before"] == {
        ("ada", "rome"): "known",
        ("ada", "bo"): "known",
        ("bo", "rome"): "unknown",
    }
    assert states["after"][("ada", "rome")] == "lost"
    # Two relations between the same two are one edge.
    twin = replace(edits[0].facts[1], object="Rome")
    edit = replace(edits[0], chains=(edits[0].chains[0], Chain((twin,))))
    two = facts[:2].assign(known_after=[True, False])
    assert case.edge_states(edit, two)["after"] == {("ada", "rome"): "kept"}


def test_deep_editing_needs_every_path_broken(edits, facts):
    assert all(case.deep_edited_up_to(edits[0], facts).values())
    facts["known_after"] = [False, True, True]
    deep = case.deep_edited_up_to(edits[0], facts, steps=3)
    assert deep == {1: True, 2: False, 3: False}


def test_deep_editing_is_judged_in_the_words_of_the_graph(edits, facts):
    """The edit's own prompt is often another one: only the direct fact is still known here."""
    direct = replace(edits[0].facts[0], prompt="{} has its home in")
    edit = replace(edits[0], chains=(Chain((direct,)), *edits[0].chains[1:]))
    facts["known_after"] = [True, False, False]
    assert case.deep_edited_up_to(edit, facts, steps=2) == {1: False, 2: False}


def test_steps_and_what_is_left_of_the_context(edits, facts):
    table = case.step_table(edits[0], facts).set_index("steps")
    assert table["chains"].to_dict() == {"1": 1, "2": 1, "overall": 2}
    assert table["deducible before"].to_dict() == {"1": 1, "2": 0, "overall": 1}
    assert case.ckp_of_edit(edits[0], facts) == (1.0, 0)
    facts["known_before"] = True
    assert case.ckp_of_edit(edits[0], facts) == (2.0, 1)


def test_a_broken_graph_is_drawn_whole_and_named_by_its_subject(edits, facts):
    """Of the two chains one is deducible, and the edit breaks it: nothing leads out of Ada."""
    facts["known_after"] = [False, False, False]
    figure = case.stored_case(edits[0], facts, number="1", method="memit")
    (axes,) = figure.axes
    assert {text.get_text() for text in axes.texts} == {"Ada", "Rome"}
    assert figure.get_suptitle() == "After MEMIT nothing leads out of Ada"
    facts["known_after"] = [False, True, False]
    figure = case.stored_case(edits[0], facts, number="1", method="memit")
    assert figure.get_suptitle() == "After MEMIT no chain leads from Ada to Rome"


def test_an_arrow_is_never_hidden_by_a_node():
    """The three nodes of a chain are in one row, and the direct link passes the middle one."""
    graph = nx.DiGraph([("a", "b"), ("b", "c"), ("a", "c")])
    nx.set_node_attributes(graph, {node: node for node in graph}, "label")
    figure, axes = plt.subplots()
    case.draw_graph(graph, "a", "c", axes)
    figure.canvas.draw()
    boxes = {text.get_text(): text.get_bbox_patch().get_window_extent() for text in axes.texts}
    *_, longest = axes.patches
    path = longest.get_transform().transform_path(longest.get_path())
    plt.close(figure)
    assert path.intersects_bbox(boxes["a"].padded(3), filled=False)
    assert not path.intersects_bbox(boxes["b"], filled=False)


def test_only_chains_that_remain_are_drawn_and_the_direct_link(edits, facts):
    friend, home = edits[0].chains[1].facts
    other = (replace(friend, object="Gus"), replace(home, subject="Gus"))
    edit = replace(edits[0], chains=(*edits[0].chains, Chain(other)))
    more = pd.DataFrame({"case_id": 1, "item": [3, 4], "before": 1.0, "after": [1.0, 0.5]})
    table = pd.concat([facts.assign(after=[0.0, 0.8, 0.0]), more], ignore_index=True)
    table = table.assign(known_before=True, known_after=table["after"] > 0)
    assert {state: len(found) for state, found in case.chains_by_state(edit, table).items()} == {
        "deducible": 3,
        "active": 1,
    }
    figure = case.stored_case(edit, table, number="1", method="rome")
    (axes,) = figure.axes
    assert {text.get_text() for text in axes.texts} == {"Ada", "Gus", "Rome"}
    assert figure.get_suptitle() == "After ROME 1 of 3 known chains still lead from Ada to Rome"
    labels = {line.get_label() for line in axes.lines}
    assert labels == {"lost", "known after the edit"}


def test_links_look_by_the_share_that_is_left(edits, facts):
    """The direct fact is gone, half of the friend is left, and the friend's home was never known."""
    looks = case.looks_by_share(edits[0], facts)
    assert [looks[edge].label for edge in (("ada", "rome"), ("ada", "bo"), ("bo", "rome"))] == [
        "less than a tenth left",
        "half or more of the probability left",
        "never known",
    ]
