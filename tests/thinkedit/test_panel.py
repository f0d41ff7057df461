"""The curation panel, driven by its widgets: what is clicked is what the journal holds."""

import json

import pytest

from helpers.thinkedit.graph import Triplet, triplets
from helpers.thinkedit.grow.panel import CurationPanel
from helpers.thinkedit.grow.pipeline import Journal, Session
from helpers.thinkedit.grow.wordings import Wordings
from tests.thinkedit.conftest import HOUSE, PART, SCHOOL, header_of


@pytest.fixture
def open_panel(world, tmp_path):
    def opened(fact=SCHOOL):
        journal = Journal(tmp_path / "j.jsonl", header_of(world, fact, target_chains=4))
        session = Session(journal, world, {}, Wordings())
        return CurationPanel(session), session

    return opened


def decisions(tmp_path):
    lines = (tmp_path / "j.jsonl").read_text().splitlines()
    return [r["outcome"] for r in map(json.loads, lines) if r["kind"] == "decision"]


def fill(row, *values):
    for part, value in zip(row.children[1:], values, strict=True):
        part.value = value


def test_pruning_adding_and_resuming(open_panel, world, tmp_path):
    world.known.append(Triplet("Ada", "likes", "<script>"))
    panel, session = open_panel()
    assert panel.question.value == "Ada studied at what?"
    assert "Ada lives in Red House." in panel.responses.value
    assert "&lt;script&gt;" in panel.responses.value
    shown = [[part.value for part in row.children[1:]] for row in panel.rows]
    assert [Triplet(*parts) for parts in shown[:2]] == [HOUSE, PART]
    panel.rows[0].children[0].value = panel.rows[2].children[0].value = False
    panel.add.click()
    fill(panel.rows[-1], "Ada", "", "Red House")
    panel.accept.click()  # a half-filled triplet is named and nothing is decided
    assert "empty part" in panel.message.value
    assert decisions(tmp_path) == []
    assert panel.rows[-1] in panel.children
    fill(panel.rows[-1], "Ada", "lives in", "Red House")
    panel.accept.click()
    assert [Triplet(**t) for t in decisions(tmp_path)[0]["triplets"]] == [PART, HOUSE]
    asked = len(world.asked)
    panel, resumed = open_panel()  # where the journal ends
    assert len(world.asked) == asked
    assert resumed.pending == session.pending
    while resumed.pending is not None:
        panel.accept.click()
    assert "Finished" in panel.message.value
    assert panel.progress.value == len(resumed.growth.chains) == 2
    assert set(triplets(resumed.growth.graph)) >= {SCHOOL, HOUSE, PART}


def test_refining_and_discarding(open_panel, tmp_path):
    panel, session = open_panel(Triplet("Ada", "went to", "North College"))
    assert "I do not know." in panel.responses.value
    assert panel.accept.description == "Ask again"
    panel.question.value = "Ada went where?"
    panel.accept.click()
    assert decisions(tmp_path)[0]["question"] == "Ada went where?"
    panel.discard.click()
    assert session.pending is None
    assert "did not validate" in panel.message.value
