"""Graphs of what a model recalls: proposals, validation, chains, and what is packaged of them."""

from functools import partial

import pandas as pd
import pytest

from helpers.results.store import ResultsStore
from helpers.thinkedit.grow.wordings import Proposal, neighbours, read_wordings, store_neighbours
from helpers.thinkedit.knowgic import load_edited_graphs, read_edits, write_edits
from helpers.triples.graph import Edge, Entity, Graph
from tools.recall.edits import recalled_edits
from tools.recall.facts import COLUMNS, Validation, recalled_facts, together


def proposer(*edges):
    """Proposes neighbours in a store of these edges, whose identifiers end in the labels."""
    ids = {i for edge in edges for i in (edge.subject, edge.object)}
    entities = {i: Entity(i, i.split("/")[-1], frozenset()) for i in ids}
    store = neighbours(Graph(entities, edges), read_wordings(), "packaged")
    return lambda *names: {(p.subject, p.relation, p.object) for p in together([store], names)}


def test_a_store_proposes_neighbours_inverses_and_compositions():
    france = Edge("France", "P30", "Europe"), Edge("France", "P37", "French")
    boston = Edge("Boston", "P17", "United States of America")
    proposed = proposer(Edge("Lyon", "P17", "France"), *france, boston)
    assert proposed("LYON") == {
        ("Lyon", "P17", "France"),
        ("Lyon", "P17/P30", "Europe"),
        ("Lyon", "P17/P37", "French"),
    }
    assert proposed("French") == {("French", "re_P37", "France")}
    assert proposed("Boston") == {("Boston", "P17", "United States")}
    assert proposed("nowhere") == set()


def test_a_name_means_one_entity_of_a_store():
    """The country Niger is proposed about, not the region; a city and its region are one place."""
    proposed = proposer(
        Edge("country/Nigeria", "P150", "region/Niger"),
        Edge("country/Niger", "P36", "city/Niamey"),
        Edge("country/Germany", "P150", "region/Berlin"),
        Edge("city/Berlin", "P17", "country/Germany"),
        Edge("religion/Islam", "P37", "language/Arabic"),  # as CoDEx-S has it
    )
    assert proposed("Niger") == {("Niger", "P36", "Niamey")}
    assert proposed("Berlin") == {("Berlin", "P17", "Germany"), ("Berlin", "re_P150", "Germany")}
    assert proposed("Islam") == set()


PROPOSALS = {
    "lyon": [
        Proposal("Lyon", "P17", "France"),
        Proposal("Lyon", "P17/P30", "Europe"),
        Proposal("Lyon", "P176", "Peugeot"),
    ],
    "france": [Proposal("France", "P30", "Europe")],
    "oslo": [Proposal("Oslo", "P17", "Norway")],
}


def test_the_first_of_several_stores_counts():
    own = {"lyon": [Proposal("Lyon", "P17", "france", "mine")]}
    found = {p.key[1:]: p.source for p in together([own, PROPOSALS], ["Lyon"])}
    assert found == {("P17", "france"): "mine", ("P17/P30", "europe"): "", ("P176", "peugeot"): ""}


def test_rounds_continue_from_what_the_model_named_and_answers_are_kept(
    tiny, tmp_path, monkeypatch
):
    """A scripted model: whole probabilities are the tiny model's, answers are written here."""
    asked = []

    def respond(_, prompts, **kwargs):
        asked.extend(prompts)
        last = [prompt.split("Question: ")[-1] for prompt in prompts]
        return [["It is in FRANCE." if "Which country" in p else "Europe"] for p in last]

    monkeypatch.setattr("tools.recall.facts.sample_responses", respond)
    validation = Validation(tiny("llama"), read_wordings(), ResultsStore(tmp_path))
    recalled = partial(recalled_facts, validation, [PROPOSALS], ["Lyon"], rounds=3)
    table = recalled(least=0.0)
    rows = table.set_index(["subject", "relation"])
    assert rows[["round", "question"]].T.to_dict("list") == {
        ("Lyon", "P17"): [1, "Which country is the city of Lyon in?"],
        ("Lyon", "P17/P30"): [1, "Which continent is the city of Lyon on?"],
        ("Lyon", "P176"): [1, ""],  # on no chain but its own: not asked
        ("France", "P30"): [2, "Which continent is France on?"],
    }
    assert not any("Peugeot" in prompt for prompt in asked)
    before = len(asked)
    pd.testing.assert_frame_equal(recalled(least=0.0), table)
    assert len(asked) == before  # all from the store
    assert not recalled(least=1.1)["validated"].any()


def facts_of(*links):
    rows = [
        (s, r, o, "test", 1, f"{r} of {{}} is", 0.5, True, True, f"Which {r} has {s}?", True)
        for s, r, o in links
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def test_edits_have_every_chain_their_own_subject_and_a_wrong_new_object(tmp_path):
    links = [("a", "r", "c"), ("a", "s", "b"), ("b", "r", "c"), ("x", "r", "y"), ("x", "r", "z")]
    table = facts_of(*links, ("d", "r", "w"))
    lost = facts_of(("c", "s", "x")).assign(validated=False, question="", likely=False, asked=False)
    recalled = recalled_edits(pd.concat([table, lost], ignore_index=True))
    (edit,) = recalled.edits
    assert (edit.subject, edit.original) == ("a", "c")
    assert sorted(chain.nodes for chain in edit.chains) == [("a", "b", "c"), ("a", "c")]
    assert edit.new in {"y", "z", "w"}
    assert recalled.links.set_index("relation").loc["all"].tolist() == [7, 6, 6, 6, 6, 3]
    assert recalled.chains["kept"].tolist() == [1, 1, 0, 0, 0]
    write_edits(recalled.edits, tmp_path / "own.json")
    assert read_edits(tmp_path / "own.json") == recalled.edits
    ways = [("a", "s", f"b{i}") for i in range(9)] + [(f"b{i}", "r", "c") for i in range(9)]
    many = facts_of(("a", "r", "c"), *ways, ("d", "r", "w"), ("e", "r", "v"))
    assert recalled_edits(many).chains.loc[1].tolist() == [2, 9, 4]  # no edit holds most chains
    with pytest.raises(ValueError, match="no recalled fact has a second way"):
        recalled_edits(facts_of(("a", "r", "c"), ("d", "r", "e")))


@pytest.mark.parametrize("model", ["smollm2-135m", "gemma3-270m", "qwen2.5-coder-1.5b"])
def test_every_packaged_link_is_one_that_a_store_still_proposes(model, data_folder):
    worded = read_wordings()
    relations = {c: r for r, wording in worded.relations.items() for c in wording.clozes}
    stores = [store_neighbours(source) for source in ("packaged", "codex-s")]
    facts = {
        fact.key: fact for edit in load_edited_graphs(f"recalled-{model}") for fact in edit.facts
    }
    proposed = {p.key for p in together(stores, {fact.subject for fact in facts.values()})}
    assert {(s, relations[prompt], o) for s, prompt, o in facts} <= proposed
