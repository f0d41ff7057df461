"""Half of each list is shown to an objective; the other half is what is scored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers import UserError
from helpers.editing.contexts import ContextTemplates
from helpers.editing.icd import Icd, ScoredTexts
from helpers.editing.rome import Rome
from helpers.peak.metrics import metrics_table
from helpers.peak.records import load_peak
from helpers.peak.run import PeakRun, PeakSequence, edit_request, questions
from helpers.peak.shown import split_record
from helpers.records import comparable
from helpers.results.store import ResultsStore


@pytest.fixture
def data():
    return load_peak("peak-mini-cf", limit=2)


@pytest.fixture
def editor(tiny, rome_settings):
    contexts = ContextTemplates((("{}",),))
    return Rome(tiny("llama"), rome_settings, contexts, icd=Icd(gamma=0.1))


@pytest.fixture
def run(tiny, tmp_path, data):
    return PeakRun(tiny("llama"), data, ResultsStore(tmp_path))


def test_each_list_is_split_and_the_rest_stays():
    larger_halves = set()
    for record in load_peak("peak-mini-cf").records:
        split = split_record(record)
        for name in ("correct", "hard_false"):
            shown, unshown = getattr(split.shown, name), getattr(split.unshown, name)
            assert sorted((*shown, *unshown)) == sorted(getattr(record, name))
            assert unshown
            if len(set(map(comparable, (*shown, *unshown)))) == len((*shown, *unshown)) > 1:
                larger_halves.add(len(unshown) - len(shown))
        for half in (split.shown, split.unshown):
            whole_lists = {"correct": record.correct, "hard_false": record.hard_false}
            assert replace(half, **whole_lists, locality=record.locality) == record
        assert split.shown.locality == record.locality
        assert split == split_record(record)
    assert larger_halves == {-1, 0, 1}


def test_no_locality_prompt_names_the_subject_of_what_is_shown(data):
    """After such a prompt a shown answer can be scored: PEAK scores each one's first answer as well."""
    record = data.records[0]
    others = record.locality
    named = (f"The oldest part of {record.subject} is", record.correct[0])
    split = split_record(replace(record, locality=(*others, named)))
    assert split.unshown.locality == others


@pytest.mark.parametrize("name", ["peak-cf", "peak-t"])
def test_icd_trains_on_nothing_that_an_official_record_is_scored_by(data_folder, name):
    for record in load_peak(name).records:
        split = split_record(record)
        asked, _ = questions(split.unshown)
        scored = ScoredTexts((question.prompt, question.answers) for question in asked)
        scored.check_unscored(Icd(gamma=0.1), edit_request(split.shown))


def test_names_that_are_alike_are_in_one_half_and_one_alone_is_scored(data):
    record = replace(data.records[0], correct=("Nile", "nile", "Rhine"), hard_false=("Oder",))
    split = split_record(record)
    assert {"Nile", "nile"} in (set(split.shown.correct), set(split.unshown.correct))
    assert (split.shown.hard_false, split.unshown.hard_false) == ((), ("Oder",))


def test_without_the_split_a_method_with_icd_is_refused_before_it_edits(run, editor, monkeypatch):
    monkeypatch.setattr(Rome, "edit", None)  # any edit would fail
    with pytest.raises(UserError, match=r"icd trains on .* which is scored; set shown_half"):
        run.scores(editor)
    with pytest.raises(UserError, match="which is scored"):
        PeakSequence(run, editor).scores([2])


def test_what_trains_and_what_scores_are_named_and_disjoint(run, editor):
    half = replace(run, shown_half=True)
    assert len(metrics_table(half.scores(editor))) == 2
    probes = half.evaluation(editor).read("probes")
    trained, scored = (probes[probes["use"] == use] for use in ("trained", "scored"))
    assert set(trained["kind"]) == {"list", "false"}
    about_record = scored[scored["answer"].isin(trained["answer"])]
    in_both = about_record.merge(trained, on=["case_id", "answer"], suffixes=("", "_trained"))
    subjects = {record.case_id: record.subject for record in run.data.records}
    assert not any(subjects[row.case_id] in row.prompt for row in in_both.itertuples(index=False))
    for record in half.data.records:
        rows = trained[trained["case_id"] == record.case_id]
        shown = split_record(record).shown
        assert set(rows.loc[rows["kind"] == "list", "answer"]) == set(shown.correct[:8])
        assert set(rows.loc[rows["kind"] == "false", "answer"]) == set(shown.hard_false)


def test_all_methods_of_such_a_run_are_scored_on_the_same_answers(run, editor):
    half = replace(run, shown_half=True)
    plain = replace(editor, icd=None)
    keys = ["case_id", "role", "prompt_index", "list", "answer_index"]
    assert half.scores(plain)[keys].equals(half.scores(editor)[keys])
    assert half.evaluation(plain).settings != run.evaluation(plain).settings
    assert "shown_half" not in run.evaluation(plain).settings
    assert half.evaluation(plain).read("probes").empty


def test_a_mode_whose_edits_are_made_otherwise_is_refused(run, editor):
    from helpers.peak.placebo_run import PeakPlacebo

    with pytest.raises(UserError, match="does not state which texts train"):
        PeakPlacebo(replace(run, shown_half=True)).scores(editor)


def test_a_sequence_is_made_of_what_is_shown(run, editor, monkeypatch):
    requests, plain = [], Rome.edit_on

    def noted(self, earlier, more):
        requests.extend(more)
        return plain(self, earlier, more)

    monkeypatch.setattr(Rome, "edit_on", noted)
    PeakSequence(replace(run, shown_half=True), editor).scores([2])
    shown = [split_record(record).shown for record in run.data.records]
    assert [request.correct for request in requests] == [record.correct for record in shown]
