"""Packaged journals: graphs grown from the embedded model, replayed without it."""

import json
from types import SimpleNamespace

import pytest

from helpers.thinkedit.graph import Triplet
from helpers.thinkedit.grow.journal import JournalError, decisions, header
from helpers.thinkedit.grow.sessions import grown_journals, lacking, links_of, reasoned, replayed
from helpers.thinkedit.knowgic import load_edits
from tools import grow


def test_the_embedded_model_grew_graphs_and_their_replay_writes_nothing():
    paths = grown_journals("smollm2-135m")
    written = [path.read_bytes() for path in paths]
    grown = replayed(paths)
    assert all(g.graph.number_of_edges() >= 10 and len(g.chains) >= 3 for g in grown)
    for growth, path in zip(grown, paths, strict=True):
        assert all(
            len(chain) <= 5 and chain[-1].object == growth.fact.object for chain in growth.chains
        )
        assert len(decisions(path)) >= 3
    assert [path.read_bytes() for path in paths] == written


def test_reviews_and_reasoning_contribute():
    paths = grown_journals("smollm2-135m")
    grown = replayed(paths)
    for growth, path in zip(grown, paths, strict=True):
        added = growth.kept - growth.offered
        assert added & links_of(growth), path  # the reviewer's
    table = reasoned(grown)
    assert (table["reasoned only"] <= table["reasoned"]).all()
    assert table.loc["links (validated)", "reasoned"] > 0
    examples = {"marie curie", "bedřich smetana", "antonín dvořák", "rusalka", "the moldau"}
    told = [key for growth in grown for key in growth.reasoned]
    assert told
    assert not [key for key in told if examples & {key[0], key[2]}]


HARRY = ["--subject", "Harry Potter", "--relation", "studied at", "--answer", "Hogwarts"]
ADA = ["--subject", "Ada", "--relation", "studied at", "--answer", "North College"]


@pytest.fixture
def asked(world, monkeypatch):
    """The tiny world in place of the model that the command loads."""
    world.language_model = SimpleNamespace(name="world")
    monkeypatch.setattr(grow, "load", lambda name: name)
    monkeypatch.setattr(grow, "ModelRespondent", lambda model, sampling: world)


@pytest.mark.usefixtures("asked")
def test_a_fact_outside_geography_is_told_what_it_lacks(tmp_path, capsys):
    with pytest.raises(SystemExit, match=r"did not validate; read .* another --question"):
        grow.main(["world", *HARRY, "--into", str(tmp_path)])
    told = capsys.readouterr().err
    assert "No relation of wordings.yaml reads 'studied at'" in told
    assert "holds nothing about Harry Potter or Hogwarts" in told
    wrong = ["--question", "Did Harry Potter study at Hogwarts?"]
    with pytest.raises(SystemExit, match="must name 'Harry Potter' and not 'Hogwarts'"):
        grow.main(["world", *HARRY, *wrong, "--into", str(tmp_path)])
    assert not lacking(Triplet("Italy", "is on the continent of", "Europe"))


@pytest.mark.usefixtures("asked")
def test_any_fact_grows_into_an_edit_by_one_command(tmp_path):
    grow.main(["world", *ADA, "--into", str(tmp_path), "--new", "South College"])
    (edit,) = load_edits(str(tmp_path / "grown-world-ada.json"))
    assert (edit.subject, edit.original, edit.new) == ("Ada", "North College", "South College")
    assert [len(chain) for chain in edit.chains] == [1, 2]


def test_a_pipeline_that_leaves_the_record_is_named(tmp_path):
    lines = grown_journals("smollm2-135m")[0].read_text(encoding="utf-8").splitlines(keepends=True)
    path = tmp_path / "grown.jsonl"
    path.write_text("".join(lines[:4]), encoding="utf-8")
    with pytest.raises(JournalError, match=r"does not answer .* python -m tools.grow"):
        replayed([path])
    asked = next(i for i, line in enumerate(lines) if json.loads(line)["kind"] == "decision")
    path.write_text("".join(lines[:asked]), encoding="utf-8")
    with pytest.raises(JournalError, match="ends before its run"):
        replayed([path])


def test_a_file_without_a_run_is_no_journal(tmp_path):
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(JournalError, match="no journal of a run"):
        header(tmp_path / "empty.jsonl")
