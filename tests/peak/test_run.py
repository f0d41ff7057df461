"""A PEAK run on a tiny model: scores, sequences and store fit together and resume."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from helpers import UserError
from helpers.editing.contexts import ContextTemplates
from helpers.editing.grace import Grace, GraceHyperparameters
from helpers.editing.interventions import LowRank
from helpers.editing.rome import Rome
from helpers.editing.weight_edit import WeightEdit, apply
from helpers.peak.metrics import KEYS, metrics_table
from helpers.peak.records import load_peak
from helpers.peak.run import (
    PeakRun,
    PeakSequence,
    edit_prompt_probabilities,
    edit_request,
    joined_scores,
    questions,
    score_records,
)
from helpers.results import evaluation
from helpers.results.evaluation import joined, small
from helpers.results.store import ResultsStore


@pytest.fixture
def data():
    return load_peak("peak-mini-t", limit=3)


@pytest.fixture
def editor(tiny, rome_settings):
    return Rome(tiny("llama"), rome_settings, ContextTemplates((("{}",),)))


@pytest.fixture
def run(tiny, tmp_path, data):
    return PeakRun(tiny("llama"), data, ResultsStore(tmp_path), chunk=2)


def test_questions_and_keys_are_in_one_order(data):
    for record in data.records:
        asked, keys = questions(record)
        texts = keys.assign(answer=[answer for each in asked for answer in each.answers])
        correct = texts[(texts["role"] == "edit") & (texts["list"] == "correct")]
        assert tuple(correct["answer"]) == record.correct
        near = texts[texts["role"] == "locality"].groupby("list")["answer"].apply(list)
        assert near["locality"] == [answer for _, answer in record.locality]
        assert set(near["first"]) == {record.locality[0][1]}
    assert any(len({answer for _, answer in record.locality}) > 1 for record in data.records)


def test_run_is_scored_stored_and_resumed(run, editor, monkeypatch):
    assert run.scores(editor, from_store_only=True).empty
    first = run.scores(editor)
    assert set(metrics_table(first).index) == {record.case_id for record in run.data.records}
    monkeypatch.setattr(evaluation, "score_cases", None)  # anything computed again would fail
    pd.testing.assert_frame_equal(run.scores(editor), first)
    pd.testing.assert_frame_equal(run.scores(editor, from_store_only=True), first)
    assert run.edits(editor)["steps"].tolist() == [3, 3, 3]


def test_a_repaired_record_leaves_the_others_as_they_are(run, editor, monkeypatch):
    """Whichever file records are from, whatever else is in it: their own content counts."""
    first, (record, *others) = run.scores(editor), run.data.records
    repaired = replace(record, target_new="Ultima Thule")
    data = replace(run.data, name="copy", checksum="other", records=(repaired, *others))
    edited, plain = [], type(editor).edit

    def noted(self, requests):
        edited.extend(request.record for request in requests)
        return plain(self, requests)

    monkeypatch.setattr(type(editor), "edit", noted)
    again = replace(run, data=data).scores(editor)
    assert edited == [str(repaired.case_id)]
    unchanged = [table[table["case_id"] != repaired.case_id] for table in (first, again)]
    pd.testing.assert_frame_equal(*(table.reset_index(drop=True) for table in unchanged))


def test_records_a_model_cannot_be_asked_are_all_named_before_the_first_edit(
    run, editor, monkeypatch
):
    long = [replace(record, subject="x " * 5000) for record in run.data.records[1:]]
    broken = replace(run, data=replace(run.data, records=(run.data.records[0], *long)))
    monkeypatch.setattr(type(editor), "edit", None)  # any edit would fail
    with pytest.raises(UserError) as caught:
        broken.scores(editor)
    assert all(f"case_id {record.case_id}: " in str(caught.value) for record in long)
    assert not broken.evaluation(editor).results.done()


@pytest.mark.parametrize("how", ["given up", "overflow"])
def test_an_edit_that_cannot_be_used_is_recorded_and_omitted(run, editor, monkeypatch, how):
    plain, (lost, *others) = type(editor).edit, run.data.records

    def spoiled(update):
        if how == "given up":
            return WeightEdit({}, {"failure": "non-finite loss"})
        ((name, delta),) = update.items()
        return WeightEdit({name: LowRank(delta.left * float("nan"), delta.right)})

    def with_failure(self, requests):
        pairs = zip(requests, plain(self, requests), strict=True)
        return [spoiled(u) if r.subject == lost.subject else u for r, u in pairs]

    monkeypatch.setattr(type(editor), "edit", with_failure)
    assert set(run.scores(editor)["case_id"]) == {record.case_id for record in others}
    failure = run.edits(editor).set_index("case_id").loc[lost.case_id, "failure"]
    assert {"given up": "non-finite loss", "overflow": "not finite"}[how] in failure


def test_one_record_agrees_with_scoring(tiny, data, editor):
    record = data.records[0]
    (update,) = editor.edit([edit_request(record)])
    states = {"before": None, "ROME": update}
    shown = edit_prompt_probabilities(tiny("llama"), record, states)
    assert shown["answer"].iloc[0] == record.target_new
    joined = joined_scores(tiny("llama"), record, update).iloc[: len(shown)]
    assert joined["list"].tolist() == shown["list"].tolist()
    for state, column in (("before", "sum_before"), ("ROME", "sum_after")):
        means = joined[column] / joined["tokens"]
        np.testing.assert_allclose(np.log(shown[state]), means, atol=1e-4)


@pytest.fixture
def longer(run):
    return replace(run, data=load_peak("peak-mini-cf", limit=4), chunk=None)


def by_hand(run, editor, count):
    """Scores of the first records with the edits written into the weights, one after the other."""
    records, total = run.data.records[:count], WeightEdit({})
    for record in records:
        with apply(run.lm, total):
            (step,) = editor.edit([edit_request(record)])
        total = total.plus(step)
    with apply(run.lm, total):
        return score_records(run.lm, records)


def test_sequence_scores_are_those_of_weights_edited_one_after_the_other(longer, editor):
    sequence = PeakSequence(longer, editor)
    for count, found in ((3, sequence.scores([1, 3])), (1, sequence.scores([1]))):
        both = found.merge(by_hand(longer, editor, count), on=KEYS)
        assert both["case_id"].nunique() == count
        np.testing.assert_allclose(both["sum_after"], both["sum"], atol=5e-3, rtol=1e-3)


def test_a_sequence_that_ends_in_no_numbers_is_refused(longer, editor, monkeypatch):
    no_number = pd.DataFrame({"sum": [np.nan]})
    monkeypatch.setattr(evaluation, "score_cases", lambda *_, **__: no_number)
    with pytest.raises(UserError, match="rome: a score is not finite; use a wider dtype"):
        PeakSequence(longer, editor).scores([1])


def test_a_longer_sequence_continues_where_a_shorter_one_ended(longer, editor, monkeypatch):
    whole = PeakSequence(longer, editor).scores([4])
    sequence = PeakSequence(replace(longer, store=ResultsStore(longer.store.root / "b")), editor)
    sequence.scores([2])
    calls, plain = [], Rome.edit_after

    def counted(self, earlier, requests):
        calls.append(requests)
        return plain(self, earlier, requests)

    monkeypatch.setattr(Rome, "edit_after", counted)
    resumed = sequence.scores([2, 4])
    assert len(calls) == 2
    np.testing.assert_allclose(resumed["sum_after"], whole["sum_after"], atol=1e-3)
    monkeypatch.setattr(evaluation, "score_cases", None)  # anything computed again would fail
    sequence.scores([2, 4])


def test_what_gates_recognise_is_stored_with_the_scores(tiny) -> None:
    lm = tiny("llama")
    data = load_peak("peak-mini-cf", limit=2)
    hyperparameters = GraceHyperparameters(layers=(2,), num_steps=2, epsilon=1e-3)
    editor = Grace(lm, hyperparameters)
    edits = editor.edit([edit_request(record) for record in data.records])
    table = score_records(lm, data.records, edits)
    by_role = table.groupby("role")["entry"]
    assert (by_role.get_group("edit") == 0).all()  # its own prompt is its key
    assert (by_role.get_group("locality") == -1).all()
    assert (table.loc[table["role"] == "edit", "nearness"] > -1e-3).all()
    assert "entry" not in score_records(lm, data.records)
    assert score_records(lm, [], []).empty
    after = joined(score_records(lm, data.records), table)
    assert {"entry", "nearness"} <= set(small(after))
