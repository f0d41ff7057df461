"""Packaged journals: graphs grown from the embedded model, replayed without it."""

import json

import pytest

from helpers.thinkedit.graph import Triplet
from helpers.thinkedit.grown import grown_journals, replayed
from helpers.thinkedit.journal import JournalError, decisions, header


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


@pytest.mark.parametrize("country", ["brazil", "japan", "kenya"])
def test_some_graphs_were_curated_at_the_panel(country):
    (path,) = [path for path in grown_journals("smollm2-135m") if country in path.name]
    taken = decisions(path)
    occasions = {entry["review"]["occasion"] for entry in taken}
    assert occasions == {"refine", "prune"}
    added = [
        triplet
        for entry in taken
        for triplet in entry["decision"]["triplets"]
        if triplet not in entry["review"]["candidates"]
    ]
    (growth,) = replayed([path])
    assert growth.graph.number_of_edges() >= 10
    assert len(growth.chains) >= 3
    used = {step.key for chain in growth.chains for step in chain}
    assert used & {Triplet(**triplet).key for triplet in added}


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
