"""APP with half of the answers: the halves, what the loss is given, what is stored, measures by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from helpers import UserError
from helpers.costs import held_out_run
from helpers.costs.held_out_answers import (
    FOREIGN,
    GIVEN,
    HALF,
    HALF_OF_CORRECT,
    NOT_SPLIT,
    SHOWN,
    UNSHOWN,
    half_measures,
    held_out_table,
)
from helpers.costs.held_out_run import HeldOutAnswers, foreign_answers, halves, shown_request
from helpers.editing.app import App
from helpers.editing.contexts import ContextTemplates
from helpers.editing.rome import Rome
from helpers.peak.records import load_peak
from helpers.peak.run import PeakRun, edit_request, score_records
from helpers.results.archive import About, Archive, Run, TableKey
from helpers.results.publish import publish_parts
from helpers.results.store import ResultsStore

NUMBER = 4


@pytest.fixture
def record():
    return load_peak("peak-mini-cf", limit=1).records[0]


@pytest.fixture
def studied(tiny, tmp_path):
    data = load_peak("peak-mini-cf", limit=NUMBER)
    run = PeakRun(tiny("llama"), data, ResultsStore(tmp_path / "store"), chunk=2)
    return HeldOutAnswers(run, load_peak("peak-mini-cf").records)


@pytest.fixture
def editor(tiny, rome_settings):
    return Rome(tiny("llama"), rome_settings, ContextTemplates((("{}",),)), app=App())


def test_the_halves_are_seeded_disjoint_and_of_one_size(record):
    drawn = {seed: halves(record, seed) for seed in range(20)}
    assert drawn[0] == halves(record, 0)
    assert len({labels["correct"] for labels in drawn.values()}) > 10
    sizes = set()
    for labels in drawn.values():
        assert set(labels["correct"]) == {SHOWN, UNSHOWN}
        assert abs(labels["correct"].count(SHOWN) - labels["correct"].count(UNSHOWN)) == 0
        sizes.add(labels["hard"].count(SHOWN))
    assert sizes == {4}  # of eight
    odd = [halves(replace(record, correct=("a", "b", "c")), seed) for seed in range(20)]
    assert {labels["correct"].count(SHOWN) for labels in odd} == {1, 2}  # by a coin


def test_a_name_that_is_twice_in_a_list_is_in_one_half(record):
    names = ("Chad", "Mali", "chad ", "Peru")
    for seed in range(10):
        labels = halves(replace(record, correct=names), seed)["correct"]
        assert labels[0] == labels[2]
        assert {SHOWN, UNSHOWN} == set(labels)


def test_a_list_of_one_name_is_shown_and_not_measured(record):
    alone = replace(record, correct=("Chad", "chad"))
    assert halves(alone, 0)["correct"] == (NOT_SPLIT, NOT_SPLIT)
    assert shown_request(alone, 0).correct == ("Chad", "chad")


def test_the_loss_is_given_the_shown_half_and_never_the_new_answer(record):
    loose = replace(record, correct=(*record.correct, record.target_new))
    request = shown_request(loose, 0)
    labels = halves(loose, 0)
    assert labels["correct"][-1] == NOT_SPLIT
    shown = [a for a, label in zip(loose.correct, labels["correct"], strict=True) if label == SHOWN]
    assert list(request.correct) == shown
    assert len(shown) == len(record.correct) // 2
    assert request.target == record.target_new


def test_what_the_loss_is_given(studied):
    for record in studied.run.data.records:
        half = studied.request(record, HALF)
        assert half == shown_request(record, 0)
        assert studied.request(record, HALF_OF_CORRECT) == replace(half, false=())
        foreign = studied.request(record, FOREIGN)
        other = studied.foreign[record.case_id]
        assert other.relation == record.relation
        assert other.subject != record.subject
        assert set(foreign.correct) <= set(other.correct) - set(record.correct)
        assert 0 < len(foreign.correct) <= len(half.correct)
        assert foreign.false == half.false


def test_answers_of_another_record_are_none_of_the_records_own(record):
    other = replace(record, subject="x", correct=("Ukraine ", "Elbonia", record.target_new))
    assert foreign_answers(record, other) == ("Elbonia",)


def test_records_without_another_of_their_relation_are_left_out(studied):
    (first, *others) = studied.run.data.records
    without = replace(studied, pool=[r for r in studied.pool if r.relation != first.relation])
    assert without.run_of(FOREIGN).data.records == tuple(others)
    assert without.run_of(HALF).data.records == studied.run.data.records
    with pytest.raises(UserError, match="no record has another one of its relation"):
        replace(studied, pool=[]).run_of(FOREIGN)


def test_scores_are_those_of_the_edit_with_the_given_answers(studied, editor):
    scores = studied.scores(editor, HALF)
    (record, *_) = studied.run.data.records
    (edit,) = editor.edit([shown_request(record, 0)])
    alone = score_records(studied.run.lm, [record], [edit])["sum"]
    of_record = scores[scores["case_id"] == record.case_id]
    assert of_record["sum_after"].to_numpy() == pytest.approx(alone.to_numpy(), abs=2e-3)
    (whole,) = editor.edit([edit_request(record)])
    of_whole = score_records(studied.run.lm, [record], [whole])["sum"]
    assert not np.allclose(alone, of_whole, atol=2e-3)
    labels = of_record[(of_record["role"] == "edit") & (of_record["list"] == "hard")]["half"]
    assert tuple(labels) == halves(record, 0)["hard"]
    others = of_record[
        of_record["list"].isin(("target", "random")) | (of_record["role"] == "locality")
    ]
    assert set(others["half"]) == {NOT_SPLIT}


def test_the_key_differs_by_what_is_given_and_by_seed(studied, editor):
    others = (replace(studied, seed=1), studied, studied, studied)
    numbers = set()
    for study, given in zip(others, (HALF, *GIVEN), strict=True):
        evaluation = study.run.evaluation(editor, study.mode(given))
        numbers |= set(evaluation.cases._numbers.values())
    assert len(numbers) == NUMBER * len(others)


def table(sums_of_lists, labels):
    """Scores of one record at its edit prompt: by list pairs of scores before and after."""
    rows = []
    for list_name, pairs in sums_of_lists.items():
        for index, (before, after) in enumerate(pairs):
            half = labels.get(list_name, {}).get(index, NOT_SPLIT)
            rows.append((7, "P47", "edit", 0, list_name, index, 2, 2 * before, 2 * after, half))
    columns = ["case_id", "relation", "role", "prompt_index", "list", "answer_index"]
    return pd.DataFrame(rows, columns=[*columns, "tokens", "sum_before", "sum_after", "half"])


def test_measures_by_hand():
    lists = {
        "target": [(-5.0, -0.5)],
        "correct": [(-1.0, -1.5), (-1.2, -4.0), (-9.0, -9.0)],  # the last is unknown before
        "hard": [(-3.0, -3.0), (-2.0, -1.0), (-2.5, -2.5), (-2.6, -2.6), (-2.7, -2.7)],
        "random": [(-6.0, -6.0)],
    }
    labels = {
        "correct": {0: SHOWN, 1: UNSHOWN, 2: SHOWN},
        "hard": {0: SHOWN, 1: UNSHOWN, 2: SHOWN, 3: UNSHOWN, 4: SHOWN},
    }
    (measures,) = half_measures(table(lists, labels)).to_dict("records")
    assert measures["correct", SHOWN] == pytest.approx(-0.5)
    assert measures["correct", UNSHOWN] == pytest.approx(-2.8)
    assert measures["hard", SHOWN] == pytest.approx(0)
    assert measures["hard", UNSHOWN] == pytest.approx(0.5)
    # The shown correct answer is below the most probable false one (-1.0): forgotten in its ranking.
    assert measures["AFF", SHOWN] == pytest.approx(1.0)
    assert measures["AFF", UNSHOWN] == pytest.approx(1.0)
    # All false answers are above the least probable correct one (-4.0).
    assert measures["ANF", SHOWN] == pytest.approx(1.0)
    kept = {**lists, "correct": [(-1.0, -0.5), (-1.2, -0.9), (-9.0, -9.0)]}
    (measures,) = half_measures(table(kept, labels)).to_dict("records")
    assert measures["AFF", SHOWN] == pytest.approx(0.0)  # above all false ones, and more probable
    assert measures["AFF", UNSHOWN] == pytest.approx(0.0)
    assert measures["ANF", SHOWN] == pytest.approx(0.0)
    share = (np.exp(-1.0) + np.exp(-2.6)) / (np.exp(-2.0) + np.exp(-2.6))
    assert measures["ANF", UNSHOWN] == pytest.approx(1 - 1 / share)


def test_a_list_that_is_not_split_is_left_out_of_its_kind():
    lists = {"target": [(-5.0, -0.5)], "correct": [(-1.0, -1.5)], "random": [(-6.0, -6.0)]}
    lists["hard"] = [(-3.0, -3.0), (-2.0, -1.0)]
    (measures,) = half_measures(table(lists, {"hard": {0: SHOWN, 1: UNSHOWN}})).to_dict("records")
    assert np.isnan(measures["AFF", SHOWN])
    assert np.isnan(measures["correct", UNSHOWN])
    assert not np.isnan(measures["ANF", UNSHOWN])


def test_a_record_of_which_no_answer_counts_has_no_measures():
    lists = {"target": [(-5.0, -0.5)], "correct": [(-9.0, -9.0), (-8.0, -8.0)]}
    lists |= {"hard": [(-3.0, -3.0), (-2.0, -1.0)], "random": [(-6.0, -6.0)]}
    labels = {name: {0: SHOWN, 1: UNSHOWN} for name in ("correct", "hard")}
    measures = half_measures(table(lists, labels))
    assert measures.index.tolist() == [(7, "P47")]
    assert measures.isna().all(axis=None)


def test_it_is_published_and_shown(studied, editor, tmp_path, monkeypatch):
    plain = replace(editor, app=None)
    monkeypatch.setattr(held_out_run, "studied_run", lambda _: studied.run)
    monkeypatch.setattr(held_out_run, "editors_of", lambda *_: {"rome": plain, "rome+app": editor})
    params = {"dataset": "peak-mini-cf", "strict_lists": True, "seed": 0, "preset": "tuned"}
    publication = held_out_run.publication({**params, "held_out": ["rome"]})
    archive = Archive(tmp_path / "archive")
    publish_parts(publication, archive)
    (run,) = archive.runs()
    keys = [TableKey("", "rome"), *(TableKey("", "rome+app", given) for given in (*GIVEN, ""))]
    assert set(run.keys) == set(keys)
    for fractions in (True, False):
        shown = held_out_table(run, fractions=fractions).table
        assert len(shown) == 8
        assert (shown["Holm"] != "").sum() == 2  # half of both lists: the primary tests


def test_the_table_by_hand():
    """Ten records of ten relations: alone each half loses a nat, with APP the shown half a tenth of one."""
    labels = {"correct": {0: SHOWN, 1: UNSHOWN}, "hard": {0: SHOWN, 1: UNSHOWN}}
    false = {"hard": [(-3.0, -3.0), (-3.5, -3.5)], "random": [(-6.0, -6.0)]}
    false["target"] = [(-5.0, -0.5)]
    losses = {"rome": (1.0, 1.0), "rome+app, half": (0.1, 0.6)}
    tables = {}
    for name, (shown, unshown) in losses.items():
        correct = [(-1.0, -1.0 - shown), (-1.2, -1.2 - unshown)]
        of_record = table({**false, "correct": correct}, labels).drop(columns="relation")
        tables[name] = pd.concat([of_record.assign(case_id=number) for number in range(10)])
    relations = {str(number): f"P{number}" for number in range(10)}
    caption = {"records": 10, "relations": relations, "preset": "tuned"}
    run = Run("a_peak-cf", About({"model": "a", "dataset": "peak-cf"}, caption=caption), tables)
    in_nats = held_out_table(run, fractions=False).table
    row = in_nats.loc[("ROME+APP", HALF, "correct, nats")]
    assert row["n"] == 10
    assert (row["alone, unshown"], row["APP, unshown"]) == ("-1.00", "-0.60")
    assert row["protects shown"].startswith("+0.90")
    assert row["protects unshown"].startswith("+0.40")
    assert row["shown - unshown"].startswith("+0.50")
    assert float(row["p"]) == pytest.approx(2 / 2**10, abs=1e-4)
    assert float(row["Holm"]) == pytest.approx(4 / 2**10, abs=1e-4)  # of correct and hard false
    in_points = held_out_table(run).table.loc[("ROME+APP", HALF, "AFF")]
    assert in_points["alone, shown"] == f"{100 * (1 - np.exp(-1.0)):.1f}"
    assert in_points["APP, unshown"] == f"{100 * (1 - np.exp(-0.6)):.1f}"
