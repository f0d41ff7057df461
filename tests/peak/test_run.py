"""A PEAK run on a tiny model: scores, store and metrics fit together and resume."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from helpers.editing.contexts import ContextTemplates
from helpers.editing.editors import EditorError, method_label
from helpers.editing.rome import Rome
from helpers.editing.update import LowRank, Update
from helpers.peak import run as peak_scores
from helpers.peak.metrics_table import metrics_table
from helpers.peak.one_record import edit_prompt_probabilities, joined_scores, record_scores
from helpers.peak.records import load_peak
from helpers.peak.run import PeakRun, edit_request, questions
from helpers.results.store import ResultsStore
from helpers.scoring.answers import score_answers


@pytest.fixture
def data():
    return load_peak("peak-mini-t", limit=3)


@pytest.fixture
def editor(tiny, rome_settings):
    return Rome(tiny("llama"), rome_settings, ContextTemplates((("{}",),)))


def test_questions_and_keys_are_in_one_order(data):
    for record in data.records:
        asked, keys = questions(record)
        answers = [answer for question in asked for answer in question.answers]
        assert len(answers) == len(keys)
        texts = keys.assign(answer=answers)
        correct = texts[(texts["role"] == "edit") & (texts["list"] == "correct")]
        assert tuple(correct["answer"]) == record.correct
        own = texts[(texts["role"] == "locality") & (texts["list"] == "locality")]
        assert own["answer"].tolist() == [answer for _, answer in record.locality]
        first = texts[(texts["role"] == "locality") & (texts["list"] == "first")]
        assert set(first["answer"]) == {record.locality[0][1]}
    assert any(len({answer for _, answer in record.locality}) > 1 for record in data.records)


def test_a_list_that_holds_the_new_answer_goes_without_it(data):
    record = data.records[0]
    contradictory = replace(record, correct=(*record.correct, record.target_new))
    assert edit_request(contradictory) == edit_request(record)
    assert record.target_new in questions(contradictory)[0][0].answers


def test_run_is_scored_stored_and_resumed(tiny, tmp_path, data, editor, monkeypatch):
    run = PeakRun(tiny("llama"), data, ResultsStore(tmp_path), chunk=2)
    first = run.scores(editor)
    assert set(metrics_table(first).index) == {record.case_id for record in data.records}
    monkeypatch.setattr(peak_scores, "score_records", None)  # anything computed again would fail
    pd.testing.assert_frame_equal(run.scores(editor), first)
    assert run.edits(editor)["steps"].tolist() == [3, 3, 3]


def test_finished_scores_are_those_in_the_store(tiny, tmp_path, data, editor):
    store = ResultsStore(tmp_path)
    run = PeakRun(tiny("llama"), data, store)
    assert run.scores(editor, finished=True).empty
    assert not run.results().done()  # nothing was computed, the unedited scores neither
    first = replace(data, records=data.records[:2])
    done = PeakRun(tiny("llama"), first, store).scores(editor)
    pd.testing.assert_frame_equal(run.scores(editor, finished=True), done)


def test_chunks_change_nothing(tiny, tmp_path, data, editor):
    whole = PeakRun(tiny("llama"), data, ResultsStore(tmp_path / "a"), chunk=3).scores(editor)
    single = PeakRun(tiny("llama"), data, ResultsStore(tmp_path / "b"), chunk=1).scores(editor)
    np.testing.assert_allclose(whole["sum_after"], single["sum_after"], atol=1e-3)


def test_other_settings_have_other_results(tiny, tmp_path, data, editor, rome_settings):
    run = PeakRun(tiny("llama"), data, ResultsStore(tmp_path))
    changed = rome_settings.model_copy(update={"v_lr": 0.1})
    other = Rome(tiny("llama"), changed, editor.contexts)
    assert run.results(editor).folder != run.results(other).folder


def test_mending_one_record_of_a_file_leaves_the_results_of_the_others(
    tiny, tmp_path, data, editor, monkeypatch
):
    run = PeakRun(tiny("llama"), data, ResultsStore(tmp_path))
    first = run.scores(editor)
    mended = replace(data.records[1], paraphrases=data.records[1].paraphrases[:1])
    records = (data.records[0], mended, data.records[2])
    other = replace(run, data=replace(data, records=records, checksum="0" * 64))
    edited: list[str] = []
    plain = type(editor).edit

    def noted(self, requests):
        edited.extend(request.record for request in requests)
        return plain(self, requests)

    monkeypatch.setattr(type(editor), "edit", noted)
    again = other.scores(editor)
    assert edited == [str(mended.case_id)]
    unchanged = first["case_id"] != mended.case_id
    pd.testing.assert_frame_equal(
        first[unchanged].reset_index(drop=True),
        again[again["case_id"] != mended.case_id].reset_index(drop=True),
    )
    pd.testing.assert_frame_equal(run.scores(editor), first)


def test_other_models_have_other_results(tiny, tmp_path, data, editor):
    """One name and yet another thing: each part of the key is there by itself."""
    language_model = tiny("llama")
    run = PeakRun(language_model, data, ResultsStore(tmp_path))
    others = [
        replace(run, language_model=replace(language_model, name="other")),
        replace(run, language_model=replace(tiny("llama", 1), name=language_model.name)),
    ]
    for how in (None, editor):
        folders = {each.results(how).folder for each in (run, *others)}
        assert len(folders) == 1 + len(others)


def test_a_model_in_another_type_has_other_results(tiny, tmp_path, data, editor):
    """Weights that bfloat16 holds exactly have one fingerprint in both types."""
    half = replace(tiny("llama"), model=copy.deepcopy(tiny("llama").model).bfloat16())
    full = replace(half, model=copy.deepcopy(half.model).float())
    assert half.fingerprint == full.fingerprint
    runs = [PeakRun(model, data, ResultsStore(tmp_path)) for model in (half, full)]
    for how in (None, editor):
        assert runs[0].results(how).folder != runs[1].results(how).folder


def test_the_largest_change_is_the_one_that_is_told(data):
    norms = {"layer 1": 0.5, "layer 2": 2.0, "layer 3": 1.0}
    losses = [{"nll": 3.0}, {"nll": 1.5}]
    update = Update({}, {"relative_norm": norms, "losses": losses, "steps": 1, "exploding": True})
    row = peak_scores.diagnostics_table(data.records[:1], [update]).iloc[0]
    assert (row["relative_norm"], row["final_nll"], row["steps"]) == (2.0, 1.5, 1)
    assert row["exploding"]


def test_a_given_up_edit_is_recorded_and_left_out(tiny, tmp_path, data, editor, monkeypatch):
    plain = type(editor).edit

    def with_failure(self, requests):
        updates = plain(self, requests)
        return [Update({}, {"failure": "non-finite loss"}), *updates[1:]]

    monkeypatch.setattr(type(editor), "edit", with_failure)
    run = PeakRun(tiny("llama"), data, ResultsStore(tmp_path))
    broken = data.records[0].case_id
    assert broken not in set(run.scores(editor)["case_id"])
    assert run.edits(editor).set_index("case_id").loc[broken, "failure"] == "non-finite loss"


def test_an_edit_under_which_nothing_can_be_scored_is_left_out(
    tiny, tmp_path, data, editor, monkeypatch
):
    plain = type(editor).edit

    def with_an_overflow(self, requests):
        updates = plain(self, requests)
        for place, request in enumerate(requests):
            if request.subject == data.records[0].subject:
                ((name, delta),) = updates[place].items()
                updates[place] = Update({name: LowRank(delta.left * float("nan"), delta.right)})
        return updates

    monkeypatch.setattr(type(editor), "edit", with_an_overflow)
    run = PeakRun(tiny("llama"), data, ResultsStore(tmp_path))
    broken = data.records[0].case_id
    table = metrics_table(run.scores(editor))
    assert set(table.index) == {record.case_id for record in data.records} - {broken}
    assert "not finite" in run.edits(editor).set_index("case_id").loc[broken, "failure"]


def test_a_lost_record_of_a_given_up_edit_does_not_make_it_a_good_one(
    tiny, tmp_path, data, editor, monkeypatch
):
    monkeypatch.setattr(
        type(editor),
        "edit",
        lambda self, requests: [Update({}, {"failure": "non-finite loss"}) for _ in requests],
    )
    run = PeakRun(tiny("llama"), data, ResultsStore(tmp_path), chunk=2)
    assert run.scores(editor).empty
    part = next(run.results(editor).folder.glob("edits-*.parquet"))
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="computed again"):
        assert run.scores(editor).empty
    assert set(run.edits(editor)["case_id"]) == {record.case_id for record in data.records}


def test_one_record_agrees_with_scoring(tiny, data, editor):
    record = data.records[0]
    (update,) = editor.edit([edit_request(record)])
    table = record_scores(tiny("llama"), record, {"before": None, "ROME": update})
    shown = edit_prompt_probabilities(table)
    assert shown["answer"].iloc[0] == record.target_new
    direct = score_answers(
        tiny("llama"), questions(record)[0], [update], [0] * len(questions(record)[0])
    )
    np.testing.assert_allclose(table["ROME"], direct["mean"], atol=1e-4)
    joined = joined_scores(tiny("llama"), record, update)
    np.testing.assert_allclose(joined["sum_after"] / joined["tokens"], table["ROME"], atol=1e-4)


def test_method_names():
    assert method_label("rome+app") == "ROME+APP"
    assert method_label("ft-m+all") == "FT-M+ (mean)"
    for bad in ("rom", "rome+ap", ""):
        with pytest.raises(EditorError, match="write an editor"):
            method_label(bad)


def test_determinism(tiny, data, editor):
    torch.manual_seed(1)
    first = editor.edit([edit_request(r) for r in data.records])
    torch.manual_seed(2)
    again = editor.edit([edit_request(r) for r in data.records])
    for one, other in zip(first, again, strict=True):
        for name in one:
            assert torch.equal(one[name].dense(), other[name].dense())
