"""Answers named in sampled responses: spotting, storing, resuming; measures worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd
import pytest

from helpers.editing.contexts import ContextTemplates
from helpers.editing.rome import Rome
from helpers.peak import said
from helpers.peak.ablations import said_metrics
from helpers.peak.records import load_peak
from helpers.peak.run import PeakRun
from helpers.peak.said import NOTHING, AnswerLists, named_answers
from helpers.results.store import ResultsStore


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


@pytest.fixture
def lists(tiny, tmp_path):
    data = load_peak("peak-mini-cf", limit=3)
    return AnswerLists(PeakRun(tiny("llama"), data, ResultsStore(tmp_path), chunk=2), samples=4)


@pytest.fixture
def editor(tiny, rome_settings):
    return Rome(tiny("llama"), rome_settings, ContextTemplates((("{}",),)))


def test_responses_are_stored_and_resumed(lists, editor, monkeypatch):
    before, after = lists.said(), lists.said(editor)
    for table in (before, after):
        assert table.groupby("case_id")["sample"].nunique().tolist() == [4, 4, 4]
    lists.again().said()
    monkeypatch.setattr(said, "sample_responses", None)  # anything sampled again would fail
    pd.testing.assert_frame_equal(lists.said(editor), after)


TARGET, HARD, RANDOM = ("target", 0), ("hard", 1), ("random", 0)


def named(*samples, case_id=7):
    """A table of samples, each a list of (list, index) pairs."""
    rows = [
        (case_id, i, *place) for i, places in enumerate(samples) for place in places or [NOTHING]
    ]
    return pd.DataFrame(rows, columns=["case_id", "sample", "list", "answer_index"])


def correct(index):
    return ("correct", index)


def test_measures_by_hand():
    # Before: correct 0, 1, 2 in four of five samples; hard 1 in one.
    before = named([correct(0)], [correct(1), correct(0)], [correct(2)], [correct(0), HARD], [])
    # After: correct 0 and 3 in two samples; hard 1 and random 0 in two; the target in two.
    after = named([correct(0), TARGET], [correct(3)], [HARD], [RANDOM], [TARGET])
    other = named([TARGET], case_id=2)  # in one table only
    row = said_metrics(before, pd.concat([after, other])).loc[7]
    assert row["named_before"] == 3
    assert row["list_forgetting"] == pytest.approx(2 / 3)  # 1 and 2 of {0, 1, 2}
    assert row["list_noise"] == pytest.approx(1 / 5)  # random 0 of {0, 3, hard 1, random 0, target}
    assert row["share_forgetting"] == pytest.approx(1 - (2 / 5) / (4 / 5))
    assert row["share_noise"] == pytest.approx(2 / 5 - 1 / 5)
    assert row["target_share"] == pytest.approx(2 / 5)


def test_measures_are_undefined_where_there_is_nothing_to_lose_or_to_hear():
    silent, loud = named([], []), named([correct(0)], [HARD])
    row = said_metrics(silent, loud).loc[7]
    assert math.isnan(row["list_forgetting"])
    assert math.isnan(row["share_forgetting"])
    row = said_metrics(loud, silent).loc[7]
    assert (row["list_forgetting"], row["share_forgetting"], row["share_noise"]) == (1, 1, 0)
    assert math.isnan(row["list_noise"])
