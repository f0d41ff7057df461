"""An edit that is edited back: the request, the states, the control, what has returned by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from helpers.costs import undo_run
from helpers.costs.undo import (
    BACK_TO_FIRST,
    BACK_TO_LIST,
    EDITED,
    REMOVED,
    STATES,
    return_measures,
    undo_table,
)
from helpers.costs.undo_run import Undone, request_back
from helpers.editing.contexts import ContextTemplates
from helpers.editing.rome import Rome
from helpers.peak.records import load_peak
from helpers.peak.run import PeakRun, edit_request, score_records
from helpers.results.archive import Archive, TableKey
from helpers.results.publish import publish_parts
from helpers.results.store import ResultsStore


@pytest.fixture
def run(tiny, tmp_path):
    data = load_peak("peak-mini-cf", limit=3)
    return PeakRun(tiny("llama"), data, ResultsStore(tmp_path / "store"), chunk=2)


@pytest.fixture
def editor(tiny, rome_settings):
    return Rome(tiny("llama"), rome_settings, ContextTemplates((("{}",),)))


@pytest.fixture
def undone(run, editor):
    return Undone(run, replace(editor, targets="all-sum"))


def test_the_way_back_is_to_the_first_answer(run):
    record = run.data.records[0]
    request = request_back(record)
    assert request.target == record.correct[0]
    assert request.correct == record.correct[1:]
    assert (request.subject, request.prompt) == (record.subject, record.prompt)


def test_states_are_scored_one_upon_the_other(undone, editor):
    record = undone.run.data.records[0]
    (first,) = editor.edit([edit_request(record)])
    expected = {
        EDITED: first,
        BACK_TO_FIRST: editor.edit_on(first, [request_back(record)]),
        BACK_TO_LIST: undone.list_editor.edit_on(first, [request_back(record)]),
    }
    sums = {}
    for state, edit in expected.items():
        table = undone.states.scores(editor, state)
        stored = table.loc[table["case_id"] == record.case_id, "sum_after"].to_numpy()
        alone = score_records(undone.run.lm, [record], [edit])["sum"].to_numpy()
        assert stored == pytest.approx(alone, abs=5e-3)
        sums[state] = stored
    assert not np.allclose(sums[EDITED], sums[BACK_TO_FIRST], atol=5e-3)
    assert not np.allclose(sums[BACK_TO_LIST], sums[BACK_TO_FIRST], atol=5e-3)


def test_removing_the_update_brings_everything_back(undone, editor):
    removed = undone.states.scores(editor, REMOVED)
    before = removed["sum_before"].to_numpy()
    assert removed["sum_after"].to_numpy() == pytest.approx(before, abs=1e-3)
    assert len(removed) == len(undone.states.scores(editor, EDITED))


def test_a_way_back_that_was_given_up_is_left_out_of_its_state_alone(undone, editor, monkeypatch):
    given_up = undone.run.data.records[1]

    def edit_on(self, earlier, requests):
        failed = requests[0].record == str(given_up.case_id)
        return earlier.with_diagnostics({"failure": "x"} if failed else {})

    monkeypatch.setattr(Rome, "edit_on", edit_on)
    cases = {state: set(undone.states.scores(editor, state)["case_id"]) for state in STATES}
    assert given_up.case_id in cases[EDITED] & cases[REMOVED]
    assert given_up.case_id not in cases[BACK_TO_FIRST] | cases[BACK_TO_LIST]


def test_the_key_has_the_editor_of_the_list(undone, editor):
    other = replace(undone, list_editor=replace(undone.list_editor, targets="all"))
    folders = {each.states.evaluation(editor).results.folder for each in (undone, other)}
    assert len(folders) == 2


def test_what_has_returned_by_hand():
    lists = {
        "target": [(-5.0, -0.5)],
        "correct": [(-1.0, -0.4), (-1.5, -1.9), (-1.8, -4.8), (-9.0, -1.0)],  # the last: unknown
        "hard": [(-3.0, -3.0), (-2.5, -2.5)],
        "random": [(-6.0, -6.0)],
    }
    rows = []
    for list_name, pairs in lists.items():
        for index, (before, after) in enumerate(pairs):
            rows.append((7, "edit", 0, list_name, index, 2, 2 * before, 2 * after))
    columns = ["case_id", "role", "prompt_index", "list", "answer_index", "tokens"]
    table = pd.DataFrame(rows, columns=[*columns, "sum_before", "sum_after"])
    (measures,) = return_measures(table).to_dict("records")
    assert measures["first"] == pytest.approx(0.6)
    assert measures["change"] == pytest.approx((-0.4 - 3.0) / 2)
    assert measures["returned"] == pytest.approx(2 / 3)  # -0.4 nats is more than half
    assert measures["order"] == pytest.approx(1.0)


def test_it_is_published_and_shown(run, editor, tmp_path, monkeypatch):
    monkeypatch.setattr(undo_run, "studied_run", lambda _: run)
    built = {"rome": editor, "rome+all-sum": replace(editor, targets="all-sum")}
    monkeypatch.setattr(undo_run, "editors_of", lambda *_: built)
    archive = Archive(tmp_path / "archive")
    publish_parts(undo_run.publication({"undone": ["rome"], "seed": 0, "preset": "tuned"}), archive)
    (stored,) = archive.runs()
    assert stored.keys == [TableKey("", "rome", state) for state in STATES]
    table = undo_table(stored).table
    assert table.index.get_level_values("state").tolist() == list(STATES)
    assert (table["Holm"] != "").tolist() == [False, True, True, False]
