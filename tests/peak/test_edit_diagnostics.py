"""Edits made again are those that were published, and their records are stored beside the run."""

from __future__ import annotations

import pytest

from helpers.editing.update import Update
from helpers.peak import edit_diagnostics
from helpers.peak.edit_diagnostics import edits_again, edits_table, largest_difference
from helpers.peak.records import load_peak
from helpers.peak.run import PeakRun
from helpers.peak.stored_scores import caption_of
from helpers.results.archive import archive
from helpers.results.store import ResultsStore

STORED = "smollm2-135m_peak-cf"


class Recorder:
    """An editor that counts its edits and changes nothing."""

    def __init__(self):
        self.edited = []

    def settings(self):
        return {"editor": "recorder"}

    def edit(self, requests):
        self.edited += [request.record for request in requests]
        return [Update({}, diagnostics={"steps": 3}) for _ in requests]


@pytest.fixture
def run(tmp_path, tiny):
    return PeakRun(
        tiny("gpt2"), load_peak("peak-mini-cf", limit=3), ResultsStore(tmp_path), chunk=2
    )


def test_edits_are_made_once_and_not_scored(run, monkeypatch):
    monkeypatch.setattr(edit_diagnostics, "score_records", None)
    editor = Recorder()
    assert edits_again(run, editor, finished=True).empty
    first = edits_again(run, editor)
    assert first["steps"].tolist() == [3, 3, 3]
    assert len(editor.edited) == 3
    assert edits_again(run, editor).equals(first)
    assert len(editor.edited) == 3


def test_the_difference_is_that_of_the_scores(run):
    editor = Recorder()
    scores = run.before().rename(columns={"sum": "sum_after"})
    assert largest_difference(run, editor, scores, records=2) == pytest.approx(0, abs=1e-3)
    moved = scores.assign(sum_after=scores["sum_after"] + 0.5)
    assert largest_difference(run, editor, moved, records=2) == pytest.approx(0.5, abs=1e-3)


def test_the_published_edits_are_of_the_published_records():
    table = edits_table(STORED)
    assert "ROME" in table.index
    assert table.loc["ROME", "edits"] == caption_of(archive("peak").get(STORED)).records
    assert table.loc["ROME", "flagged"] == 12
    assert float(table.loc["ROME", "agreement"]) < 0.005
    assert edits_table("no-such-run").empty
