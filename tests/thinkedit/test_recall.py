"""Graphs of what a model recalls: proposals, validation, chains, funnel."""

import pandas as pd
import pytest

from helpers.paths import PACKAGED
from helpers.results.archive import archive
from helpers.results.store import ResultsStore
from helpers.thinkedit import recalled_tables
from helpers.thinkedit.edits import chain_lengths
from helpers.thinkedit.gallery import RECALLED
from helpers.thinkedit.grow.people import (
    Listed,
    Proposal,
    StoreNeighbours,
    Together,
    store_neighbours,
)
from helpers.thinkedit.grow.wordings import WordingError, read_wordings
from helpers.thinkedit.knowgic import load_aliases, load_edits, read_edits, write_edits
from helpers.thinkedit.tables import chain_index
from helpers.triples.labelled_graph import Edge, Entity, Graph
from tools.recall.recalled import LINKS, Selection, recalled_edits
from tools.recall.recalling import RecallSettings, recalled_facts
from tools.recall.validation import Validation


def names(proposals):
    return {(p.subject, p.relation, p.object) for p in proposals}


@pytest.fixture
def store_graph():
    labels = ("Lyon", "France", "Europe", "French", "United States of America", "Boston")
    entities = {label: Entity(label, label, frozenset()) for label in labels}
    edges = (
        Edge("Lyon", "P17", "France"),
        Edge("France", "P30", "Europe"),
        Edge("France", "P37", "French"),
        Edge("Boston", "P17", "United States of America"),
    )
    return Graph(entities, edges)


def test_a_store_proposes_neighbours_inverses_and_compositions(store_graph):
    proposer = StoreNeighbours(store_graph, read_wordings(), "packaged")
    assert names(proposer.propose(["LYON"])) == {
        ("Lyon", "P17", "France"),
        ("Lyon", "P17/P30", "Europe"),
        ("Lyon", "P17/P37", "French"),
    }
    assert names(proposer.propose(["French"])) == {("French", "re_P37", "France")}
    assert names(proposer.propose(["Boston"])) == {("Boston", "P17", "United States")}
    assert proposer.subjects("P17") == ["Boston", "Lyon"]
    assert proposer.propose(["nowhere"]) == []


def test_a_name_stands_for_one_entity_of_a_store():
    """The country Niger is proposed about, not the region; a city and its region are one place."""
    labels = {"country/Niger": "Niger", "region/Niger": "Niger", "country/Nigeria": "Nigeria",
              "country/Germany": "Germany", "city/Berlin": "Berlin", "region/Berlin": "Berlin",
              "city/Niamey": "Niamey", "religion/Islam": "Islam", "language/Arabic": "Arabic"}  # fmt: skip
    edges = (
        Edge("country/Nigeria", "P150", "region/Niger"),
        Edge("country/Niger", "P36", "city/Niamey"),
        Edge("country/Germany", "P150", "region/Berlin"),
        Edge("city/Berlin", "P17", "country/Germany"),
        Edge("religion/Islam", "P37", "language/Arabic"),  # as CoDEx-S has it
    )
    entities = {i: Entity(i, label, frozenset()) for i, label in labels.items()}
    proposer = StoreNeighbours(Graph(entities, edges), read_wordings(), "packaged")
    assert names(proposer.propose(["Niger"])) == {("Niger", "P36", "Niamey")}
    assert names(proposer.propose(["Berlin"])) == {
        ("Berlin", "P17", "Germany"),
        ("Berlin", "re_P150", "Germany"),
    }
    assert proposer.propose(["Islam"]) == []


def test_the_first_of_several_proposers_counts(store_graph):
    mine = Listed(
        [Proposal("Lyon", "P17", "france", "me"), Proposal("Oslo", "P17", "Norway", "me")]
    )
    both = Together([mine, StoreNeighbours(store_graph, read_wordings(), "packaged")])
    found = {p.key[1:]: p.source for p in both.propose(["Lyon"])}
    assert found == {("P17", "france"): "me", ("P17/P30", "europe"): "packaged",
                     ("P17/P37", "french"): "packaged"}  # fmt: skip


def test_wordings_need_one_slot_each(tmp_path):
    path = tmp_path / "wordings.yaml"
    for own, match in (("reads: is, ", "exactly one"), ("", "lacks reads")):
        path.write_text(
            f"relations: {{P1: {{{own}questions: ['Who?'], clozes: ['{{}} is']}}}}"
            "\nexamples: []\naliases: {}"
        )
        with pytest.raises(WordingError, match=rf"wordings.yaml, P1: .*{match}"):
            read_wordings.__wrapped__(path)


def test_rounds_go_on_from_what_the_model_named_and_answers_are_kept(tiny, tmp_path, monkeypatch):
    """A scripted model: whole probabilities are the tiny model's, answers are written here."""
    model = tiny("llama")
    validation = Validation(model, read_wordings(), ResultsStore(tmp_path), attempts=2)
    asked = []

    def respond(_, prompts, **kwargs):
        asked.extend(prompts)
        return [
            ["It is in FRANCE." if "Lyon" in p and "In which" in p else "Europe"] for p in prompts
        ]

    monkeypatch.setattr("tools.recall.validation.sample_responses", respond)
    proposals = [
        Proposal("Lyon", "P17", "France"),
        Proposal("France", "P30", "Europe"),
        Proposal("Lyon", "P17/P30", "Europe"),
        Proposal("Lyon", "P176", "Peugeot"),
        Proposal("Oslo", "P17", "Norway"),
    ]
    settings = RecallSettings(least=0.0, rounds=3)
    table = recalled_facts(validation, Listed(proposals), ["Lyon"], settings)
    rows = table.set_index(["subject", "relation"])
    assert rows["round"].to_dict() == {
        ("Lyon", "P17"): 1,
        ("Lyon", "P17/P30"): 1,
        ("Lyon", "P176"): 1,
        ("France", "P30"): 2,
    }
    assert rows["question"].to_dict() == {
        ("Lyon", "P17"): "In which country is Lyon?",  # the second one tried
        ("Lyon", "P17/P30"): "Which continent is the city of Lyon on?",
        ("Lyon", "P176"): "",  # on no chain beside its own: not asked
        ("France", "P30"): "Which continent is France on?",
    }
    assert not any("makes" in prompt for prompt in asked)
    before = len(asked)
    again = recalled_facts(validation, Listed(proposals), ["Lyon"], settings)
    assert len(asked) == before  # all from the store
    pd.testing.assert_frame_equal(again, table)
    strict = RecallSettings(least=1.1)
    assert not recalled_facts(validation, Listed(proposals), ["Lyon"], strict)["validated"].any()


def facts_of(*links):
    rows = [
        (s, r, o, "test", 1, f"{r} of {{}} is", 0.5, True, True, f"Which {r} has {s}?", True)
        for s, r, o in links
    ]
    columns = ["subject", "relation", "object", "source", "round", "cloze", "probability", "likely", "asked",
               "question", "validated"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def test_edits_have_every_chain_their_own_subject_and_a_wrong_new_object(tmp_path):
    links = [("a", "r", "c"), ("a", "s", "b"), ("b", "r", "c"), ("x", "r", "y"), ("x", "r", "z")]
    table = facts_of(*links, ("d", "r", "w"))
    lost = facts_of(("c", "s", "x")).assign(validated=False, question="", likely=False, asked=False)
    recalled = recalled_edits(pd.concat([table, lost], ignore_index=True))
    (edit,) = recalled.edits
    assert (edit.subject, edit.original) == ("a", "c")
    assert sorted(chain.nodes for chain in edit.chains) == [("a", "b", "c"), ("a", "c")]
    assert edit.new in {"y", "z", "w"}
    whole = recalled.links.set_index("relation")
    assert whole.loc["all"].tolist() == [7, 6, 6, 6, 6, 3]
    assert recalled.chains.set_index("steps")["kept"].to_dict() == {1: 1, 2: 1, 3: 0, 4: 0, 5: 0}
    write_edits(recalled.edits, tmp_path / "own.json")
    assert read_edits(tmp_path / "own.json") == recalled.edits


def test_no_edit_holds_most_chains():
    ways = [("a", "s", f"b{i}") for i in range(9)] + [(f"b{i}", "r", "c") for i in range(9)]
    table = facts_of(("a", "r", "c"), *ways, ("d", "r", "w"), ("e", "r", "v"))
    found = recalled_edits(table, Selection(per_length=4)).chains.set_index("steps")
    assert found.loc[2].tolist() == [9, 4]
    with pytest.raises(ValueError, match="no recalled fact has a second way"):
        recalled_edits(facts_of(("a", "r", "c"), ("d", "r", "e")))


@pytest.mark.parametrize("model", ["smollm2-135m", "gemma3-270m"])
def test_what_an_embedded_model_recalls_is_packaged_with_its_counts(model):
    edits = load_edits(f"recalled-{model}")
    lengths = chain_lengths(edits)
    assert len(edits) >= 80
    assert sum(lengths.values()) >= 600
    assert set(lengths) == {1, 2, 3, 4, 5}
    folder = PACKAGED / "thinkedit"
    counted = pd.read_csv(folder / f"recalled-{model}-chains.csv")
    assert dict(zip(counted["steps"], counted["kept"], strict=True)) == lengths
    links = pd.read_csv(folder / f"recalled-{model}-links.csv").set_index("relation")
    used = {fact.key for edit in edits for fact in edit.facts}
    assert links.loc["all", "on a kept chain"] == len(used)
    assert (links.loc["all"].diff().dropna() <= 0).all()
    assert load_aliases(f"recalled-{model}")["united states"][1] == "USA"


@pytest.mark.parametrize("model", ["smollm2-135m", "gemma3-270m"])
def test_every_packaged_link_is_one_that_a_store_still_proposes(model, data_folder):
    worded = read_wordings()
    relations = {c: r for r, wording in worded.relations.items() for c in wording.clozes}
    stores = Together([store_neighbours(source, worded) for source in ("packaged", "codex-s")])
    facts = {fact.key: fact for edit in load_edits(f"recalled-{model}") for fact in edit.facts}
    proposed = {p.key for p in stores.propose({fact.subject for fact in facts.values()})}
    lost = [f for f in facts.values()
            if (f.subject.casefold(), relations[f.prompt], f.object.casefold()) not in proposed]  # fmt: skip
    assert not lost


@pytest.mark.parametrize("model", ["smollm2-135m", "gemma3-270m"])
def test_published_scores_are_of_the_packaged_chains(model):
    tables = archive("thinkedit").get(f"{model}_recalled-{model}").tables
    edits = load_edits(f"recalled-{model}")
    pd.testing.assert_frame_equal(tables["chains"], chain_index(edits))
    facts = tables["exact"].query("form == 'fact'").groupby("case_id")["item"].nunique()
    counts = {edit.case_id: len(edit.facts) for edit in edits}
    assert facts.to_dict() == {case: counts[case] for case in facts.index}


def test_the_funnel_shows_every_stage_of_both_models():
    figure = recalled_tables.funnel(RECALLED)
    left, right = figure.axes
    assert [text.get_text() for text in left.get_yticklabels()] == list(LINKS)
    bars = [sum(bar.get_height() for bar in bars) for bars in right.containers]
    assert bars == [606, 1086]
