"""The curation panel, driven by its widgets: what is clicked is what the journal holds."""

import json

import pytest

from helpers import UserError
from helpers.thinkedit.graph import Triplet, triplets
from helpers.thinkedit.grow.journal import Journal
from helpers.thinkedit.grow.panel import CurationPanel
from helpers.thinkedit.grow.pipeline import Session, Settings

SCHOOL = Triplet("Ada", "studied at", "North College")
HOUSE = Triplet("Ada", "lives in", "Red House")
PART = Triplet("Red House", "belongs to", "North College")


@pytest.fixture
def open_panel(world, tmp_path):
    def opened(fact=SCHOOL):
        journal = Journal(tmp_path / "j.jsonl", model=world.fingerprint, settings={})
        session = Session(fact, world, journal, settings=Settings(target_chains=4))
        return CurationPanel(session), session

    return opened


def decisions(tmp_path):
    lines = (tmp_path / "j.jsonl").read_text().splitlines()
    return [r["outcome"] for r in map(json.loads, lines) if r["kind"] == "decision"]


def fill(row, *values):
    for part, value in zip(row.parts, values, strict=True):
        part.value = value


def test_pruning_and_adding(open_panel, tmp_path):
    panel, session = open_panel()
    assert panel.question.value == "Ada studied at what?"
    assert "Ada lives in Red House." in panel.responses.value
    assert [t for row in panel.rows for t in row.triplets] == [
        HOUSE,
        PART,
    ]  # SCHOOL is a link already
    panel.rows[0].keep.value = False
    panel.add.click()
    fill(panel.rows[-1], "Ada", "lives in", "Red House")
    panel.accept.click()
    kept = [Triplet(**t) for t in decisions(tmp_path)[0]["triplets"]]
    assert kept == [PART, HOUSE]
    assert "facts" in panel.status.value
    assert set(triplets(session.growth.graph)) == {SCHOOL, HOUSE, PART}


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


def test_a_half_filled_triplet_is_named_and_nothing_is_decided(open_panel, tmp_path):
    panel, session = open_panel()
    pending = session.pending
    fill(panel.rows[0], "Ada", "", "North College")
    panel.accept.click()
    assert "empty part" in panel.message.value
    assert session.pending is pending
    assert decisions(tmp_path) == []
    assert not panel.accept.disabled


def test_responses_are_escaped(open_panel, world):
    world.known.append(Triplet("Ada", "likes", "<script>"))
    panel, _ = open_panel()
    assert "<script>" not in panel.responses.value
    assert "&lt;script&gt;" in panel.responses.value


def test_reopening_resumes_where_the_journal_ends(open_panel, world, tmp_path):
    panel, session = open_panel()
    panel.accept.click()
    asked = len(world.asked)
    again, resumed = open_panel()
    assert len(world.asked) == asked
    assert resumed.pending == session.pending
    assert again.question.value == panel.question.value
    world.fingerprint = "another"
    with pytest.raises(UserError, match="another model"):
        open_panel()


def test_the_end_is_announced(open_panel):
    panel, session = open_panel()
    while session.pending is not None:
        panel.accept.click()
    assert "Finished" in panel.message.value
    assert panel.progress.value == len(session.growth.chains) == 2
