"""Answers named in sampled responses: spotting, storing, resuming."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from helpers.editing.contexts import ContextTemplates
from helpers.editing.rome import Rome
from helpers.editing.update import Update
from helpers.peak import answer_lists
from helpers.peak.answer_lists import AnswerLists, named_answers, named_table
from helpers.peak.records import load_peak
from helpers.peak.run import PeakRun
from helpers.results.store import ResultsStore
from helpers.scoring.answers import Question
from helpers.scoring.responses import Sampling


@pytest.fixture
def record():
    return replace(
        load_peak("peak-mini-cf", limit=1).records[0],
        target_new="Chad",
        correct=("Guinea", "Guinea-Bissau", "Côte d'Ivoire"),
        hard_false=("Peru", "Papua New Guinea", "chad"),
        random_false=("opera", "Peru"),
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Guinea, Chad and Guinea.", [("correct", 0), ("target", 0)]),
        ("Guinea-Bissau", [("correct", 1)]),  # not Guinea as well
        ("papua  new guinea", [("hard", 1)]),
        ("COTE D'IVOIRE", [("correct", 2)]),
        ("Peru", [("hard", 0)]),  # in two lists: the first counts
        ("operas, chads", []),
        ("", []),
    ],
)
def test_named_answers(record, text, named):
    assert named_answers(text, record) == named


def test_every_sample_has_a_row(record):
    table = named_table([record], [["Chad, Peru", "nothing of the kind"]])
    places = table[["sample", "list", "answer_index"]].to_numpy().tolist()
    assert places == [[0, "target", 0], [0, "hard", 0], [1, "none", -1]]


@pytest.fixture
def lists(tiny, tmp_path):
    run = PeakRun(
        tiny("llama"), load_peak("peak-mini-cf", limit=3), ResultsStore(tmp_path), chunk=2
    )
    return AnswerLists(run, samples=4)


@pytest.fixture
def editor(tiny, rome_settings):
    return Rome(tiny("llama"), rome_settings, ContextTemplates((("{}",),)))


def test_responses_are_stored_and_resumed(lists, editor, monkeypatch):
    before, after = lists.said(), lists.said(editor)
    for table in (before, after):
        assert table.groupby("case_id")["sample"].nunique().tolist() == [4, 4, 4]
    assert len(lists.texts(editor)) == 12
    monkeypatch.setattr(answer_lists, "sample_responses", None)  # anything sampled again would fail
    pd.testing.assert_frame_equal(lists.said(editor), after)


def test_another_draw_is_kept_apart(lists):
    lists.said()
    lists.again().said()
    assert lists.results().folder != lists.again().results().folder
    assert lists.texts()["text"].tolist() != lists.again().texts()["text"].tolist()


def test_more_samples_are_other_results(lists, editor):
    for how in (None, editor):
        assert replace(lists, samples=5).results(how).folder != lists.results(how).folder
    assert lists.results().folder != lists.results(editor).folder


def test_a_given_up_edit_is_left_out(lists, editor, monkeypatch):
    plain = type(editor).edit

    lost, *others = lists.run.data.records
    given_up = Update({}, {"failure": "non-finite loss"})

    def with_failure(self, requests):
        pairs = zip(requests, plain(self, requests), strict=True)
        return [given_up if r.subject == lost.subject else update for r, update in pairs]

    monkeypatch.setattr(type(editor), "edit", with_failure)
    assert set(lists.said(editor)["case_id"]) == {record.case_id for record in others}


def test_a_raised_version_changes_the_keys_of_what_it_scores(lists, monkeypatch):
    def keys():
        return lists.run.results().folder.name, lists.results().folder.name

    before = keys()
    with monkeypatch.context() as raised:
        raised.setattr(Question, "version", Question.version + 1)
        assert keys()[0] != before[0]
        assert keys()[1] == before[1]
    monkeypatch.setattr(Sampling, "version", Sampling.version + 1)
    assert keys()[0] == before[0]
    assert keys()[1] != before[1]
