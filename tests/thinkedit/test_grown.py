"""Packaged journals replayed without their model, and graphs grown by one command."""

from types import SimpleNamespace

import pytest

from helpers import UserError
from helpers.thinkedit.graph import Triplet, triplets
from helpers.thinkedit.grow.pipeline import FOLDER, reasoned, replayed
from helpers.thinkedit.knowgic import load_edited_graphs
from tools import grow

PATHS = sorted(FOLDER.glob("grown-smollm2-135m-*.jsonl"))


@pytest.mark.slow
def test_the_embedded_model_grew_graphs_and_their_replay_writes_nothing():
    written = [path.read_bytes() for path in PATHS]
    grown = replayed(PATHS)
    assert [path.read_bytes() for path in PATHS] == written
    examples = {"marie curie", "bedřich smetana", "antonín dvořák", "rusalka", "the moldau"}
    for growth in grown:
        assert growth.graph.number_of_edges() >= 10
        assert len(growth.chains) >= 3
        assert {chain[-1].object for chain in growth.chains} == {growth.fact.object}
        linked = {triplet.key for triplet in triplets(growth.graph)}
        assert (growth.kept - growth.offered) & linked  # the reviewer's
        assert not [key for key in growth.reasoned if examples & {key[0], key[2]}]
    table = reasoned(grown)
    assert (table["reasoned only"] <= table["reasoned"]).all()
    assert table.loc["links (validated)", "reasoned"] > 0


def test_a_pipeline_that_leaves_the_record_is_named(tmp_path):
    lines = PATHS[0].read_text(encoding="utf-8").splitlines(keepends=True)
    path = tmp_path / "grown.jsonl"
    decided = next(i for i, line in enumerate(lines) if '"kind": "decision"' in line)
    for kept, message in (
        (0, "no journal of a run"),
        (2, r"does not answer .*python -m tools.grow"),
        (decided, "ends before its run"),
    ):
        path.write_text("".join(lines[:kept]), encoding="utf-8")
        with pytest.raises(UserError, match=message):
            replayed([path])


HARRY = ["--subject", "Harry Potter", "--relation", "studied at", "--answer", "Hogwarts"]
ADA = ["--subject", "Ada", "--relation", "studied at", "--answer", "North College"]


@pytest.fixture
def asked(world, monkeypatch):
    """The tiny world in place of the model that the command loads, and how it was loaded."""
    world.lm = SimpleNamespace(name="world")
    how = {}
    monkeypatch.setattr(grow, "load", lambda name, **given: how.update(given))
    monkeypatch.setattr(grow, "ModelRespondent", lambda *_, **given: how.update(given) or world)
    return how


@pytest.mark.usefixtures("asked")
def test_a_fact_that_the_model_does_not_know_or_a_question_that_tells_it_is_one_line(tmp_path):
    with pytest.raises(SystemExit, match=r"did not validate; read .* another --question"):
        grow.main(["world", *HARRY, "--into", str(tmp_path)])
    wrong = ["--question", "Did Harry Potter study at Hogwarts?"]
    with pytest.raises(SystemExit, match="must name 'Harry Potter' and not 'Hogwarts'"):
        grow.main(["world", *HARRY, *wrong, "--into", str(tmp_path)])


def test_any_fact_grows_into_an_edit_by_one_command(asked, tmp_path):
    chat = ["--chat", "--dtype", "bfloat16"]
    grow.main(["world", *ADA, *chat, "--into", str(tmp_path), "--new", "South College"])
    assert asked == {"dtype": "bfloat16", "turns": True}
    (edit,) = load_edited_graphs(str(tmp_path / "grown-world-ada.json"))
    assert (edit.subject, edit.original, edit.new) == ("Ada", "North College", "South College")
    assert [len(chain) for chain in edit.chains] == [1, 2]


@pytest.mark.parametrize(
    ("candidate", "dropped"),
    [
        (("Vienna", "is a city in the country of", "Austria"), ""),  # the store holds it
        (("The Eiffel Tower", "is on", "France"), ""),  # it knows one of the two only
        (("France", "is an island in", "Europe"), "does not hold France as island"),
        (("Paris", "is in", "Germany"), "does not relate them"),
        (("Apple", "makes", "phones"), "no name"),
        (("Hogwarts School", "was founded in", "1946"), "another number"),
    ],
)
def test_rules_drop_what_the_store_contradicts(candidate, dropped):
    ruled = grow.Ruled()
    assert not ruled.dropped(Triplet("The Hogwarts School", "was founded in", "1945"))
    reason = ruled.dropped(Triplet(*candidate))
    assert (dropped in reason, bool(reason)) == (True, bool(dropped))
