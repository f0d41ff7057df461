"""Half of what begins an edit's chains is shown to icd; the graph without it is scored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers import UserError
from helpers.editing.contexts import ContextTemplates
from helpers.editing.icd import Icd
from helpers.editing.rome import Rome
from helpers.params import defaults_of
from helpers.paths import NOTEBOOKS
from helpers.results.store import ResultsStore
from helpers.thinkedit import publish
from helpers.thinkedit.knowgic import Chain, ChainFact, EditedGraph, load_edited_graphs
from helpers.thinkedit.run import ThinkEditRun
from helpers.thinkedit.shown import chain_probe, split_graph, split_graphs

HOUSE = ChainFact("Ada", "{} lives in", "Red House", "Where does Ada live?")
ROOM = ChainFact("Ada", "{} sleeps in", "Room One", "Where does Ada sleep?")
PART = ChainFact("Red House", "{} belongs to", "North College", "Whose is it?")
INSIDE = ChainFact("Room One", "{} is inside", "Red House", "Where is it?")
DIRECT = ChainFact("Ada", "{} studied at", "North College", "Where did Ada study?")
EDIT = EditedGraph(
    case_id=3,
    subject="Ada",
    prompt="{} studied at",
    original="North College",
    new="South College",
    chains=(Chain((DIRECT,)), Chain((HOUSE, PART)), Chain((ROOM, INSIDE, PART))),
)


@pytest.fixture
def editor(tiny, rome_settings):
    contexts = ContextTemplates((("{}",),))
    return Rome(tiny("llama"), rome_settings, contexts, icd=Icd(kinds=("chain",)))


def test_the_context_states_the_new_fact_and_what_remains():
    probe = chain_probe(EDIT, EDIT.chains[2])
    assert (probe.kind, probe.prompt, probe.answer) == ("chain", "{} sleeps in", "Room One")
    assert probe.contexts == (
        "Ada studied at South College. Room One is inside Red House. Red House belongs to North"
        " College.",
    )


def test_a_shown_fact_begins_no_chain_that_is_scored():
    split = split_graph(EDIT)
    assert len(split.probes) == 1
    assert DIRECT in split.scored.facts
    for edit in load_edited_graphs("mini"):
        split = split_graph(edit)
        shown = {probe.text(edit.subject) for probe in split.probes}
        assert not shown & {fact.cloze for fact in split.scored.facts}
        first_facts = {chain.facts[0].key for chain in edit.chains if len(chain) > 1}
        left = {chain.facts[0].key for chain in split.scored.chains if len(chain) > 1}
        assert len(left) == len(first_facts) - len(first_facts) // 2
        assert replace(split.scored, chains=edit.chains) == edit


def test_a_published_run_makes_the_edits_of_which_something_is_shown(tiny, monkeypatch):
    unsplit = replace(EDIT, case_id=4, chains=EDIT.chains[:2])  # one first fact alone
    scored, probes = split_graphs([EDIT, unsplit])
    assert [edit.case_id for edit in scored] == [3, 4]
    assert scored[1] == unsplit
    assert set(probes) == {3}
    monkeypatch.setattr(publish, "load_aliases", lambda _: {})
    params = defaults_of(NOTEBOOKS / "06_thinkedit_case_study.ipynb")
    assert params["shown_half"] is False
    (run,) = publish.runs_of(params, tiny("llama"), scored, probes)
    assert (list(run.edits), run.universe) == (scored[:1], scored)
    assert run.request(scored[0]).probes == probes[3]
    (plain_run,) = publish.runs_of(params, tiny("llama"), scored, {})
    assert plain_run.edits == scored


def test_a_run_trains_on_what_it_does_not_score(tiny, editor, tmp_path):
    scored, probes = split_graphs([EDIT])
    options = {"aliases": {}, "store": ResultsStore(tmp_path)}
    run = ThinkEditRun(tiny("llama"), scored, scored, probes_shown=probes, **options)
    assert len(run.after(editor, "independent")) > 0
    table = run.evaluation(editor).read("probes")
    trained = set(table.loc[table["use"] == "trained", "prompt"])
    assert trained == {probe.text("Ada") for probe in probes[3]}
    assert not trained & set(table.loc[table["use"] == "scored", "prompt"])
    # The whole graph is scored on the very facts that train.
    leaking = ThinkEditRun(tiny("llama"), [EDIT], [EDIT], probes_shown=probes, **options)
    with pytest.raises(UserError, match=r"icd trains on .* which is scored"):
        leaking.after(editor, "independent")
    with pytest.raises(UserError, match="which is scored"):  # the original is no answer to keep
        run.after(replace(editor, icd=Icd()), "independent")
    with pytest.raises(UserError, match="does not state which texts train"):
        run.after(editor, "deep")


def test_without_probes_a_run_is_kept_as_it_was(tiny, tmp_path):
    run = ThinkEditRun(tiny("llama"), [EDIT], [EDIT], {}, ResultsStore(tmp_path))
    _, request_text, _ = run.content(EDIT)
    assert request_text.endswith("record='3', further=())")
