"""The noise floor of PEAK: each record under the edit of another one."""

import numpy as np
import pandas as pd
import pytest

from helpers.editing.contexts import ContextTemplates
from helpers.editing.rome import Rome
from helpers.peak.metrics import method_metrics
from helpers.peak.placebo import COMPARED_METRICS, placebo_table
from helpers.peak.placebo_run import PeakPlacebo
from helpers.peak.records import load_peak
from helpers.peak.run import PeakRun, edit_request, score_records
from helpers.results.store import ResultsStore

RECORDS = 6


@pytest.fixture
def placebo(tiny, tmp_path):
    run = PeakRun(
        tiny("llama"), load_peak("peak-mini-cf", limit=RECORDS), ResultsStore(tmp_path), chunk=4
    )
    return PeakPlacebo(run)


@pytest.fixture
def editor(tiny, rome_settings):
    return Rome(tiny("llama"), rome_settings, ContextTemplates((("{}",),)))


def test_a_record_is_scored_under_another_records_edit(placebo, editor):
    scores = placebo.scores(editor)
    (record, *_) = placebo.run.data.records
    foreign = placebo.edited_instead[record.case_id]
    assert foreign.relation != record.relation
    assert foreign.subject != record.subject
    (update,) = editor.edit([edit_request(foreign)])
    alone = score_records(placebo.run.lm, [record], [update])["sum"]
    stored = scores.loc[scores["case_id"] == record.case_id, "sum_after"]
    assert stored.to_numpy() == pytest.approx(alone.to_numpy(), abs=1e-3)
    unedited = score_records(placebo.run.lm, [record])["sum"]
    before = scores.loc[scores["case_id"] == record.case_id, "sum_before"]
    assert before.to_numpy() == pytest.approx(unedited.to_numpy(), abs=1e-4)
    assert not np.allclose(stored, before)


def test_a_placebo_is_kept_apart_from_the_edits_and_made_once(placebo, editor, monkeypatch):
    assert placebo.scores(editor, from_store_only=True).empty
    first = placebo.scores(editor)
    own = placebo.run.scores(editor)
    assert not np.allclose(first["sum_after"], own["sum_after"])
    monkeypatch.setattr(Rome, "edit", lambda *_: pytest.fail("made again"))
    pd.testing.assert_frame_equal(placebo.scores(editor), first)
    pd.testing.assert_frame_equal(placebo.scores(editor, from_store_only=True), first)
    other = PeakPlacebo(placebo.run, seed=1)
    assert other.edited_instead != placebo.edited_instead


def test_the_table_compares_the_same_records(placebo, editor):
    own = method_metrics({"ROME": placebo.run.scores(editor)})
    foreign = method_metrics({"ROME": placebo.scores(editor)})
    table = placebo_table(own, foreign)
    assert table.loc["ROME"].index.tolist() == [
        *COMPARED_METRICS,
        "AFF hard - random",
        "ANF hard - random",
    ]
    both = pd.concat([own["ROME"]["AFF_hard"], foreign["ROME"]["AFF_hard"]], axis=1).dropna()
    row = table.loc[("ROME", "AFF_hard")]
    assert row["n"] == len(both)
    difference = 100 * (both.iloc[:, 0] - both.iloc[:, 1]).mean()
    assert row["difference"].startswith(f"{difference:+.1f}")


def test_the_tests_of_the_table_are_corrected_together():
    index = pd.Index(range(8), name="case_id")
    own = pd.DataFrame({name: np.linspace(0.5, 0.9, 8) for name in COMPARED_METRICS}, index=index)
    foreign = own - 0.3  # eight changes in one direction: p is 2 / 2^8
    foreign["ANF_hard"] = own["ANF_hard"] - np.array([0.3] * 7 + [-0.1])
    table = placebo_table({"ROME": own, "FT-M": own}, {"ROME": foreign, "FT-M": foreign})
    tested = table["p"].astype(float)
    assert tested[("ROME", "AFF_hard")] == pytest.approx(2 / 2**8, abs=1e-4)
    # Fourteen tests: the smallest p-value counts fourteen times, as do those that are equal to it.
    assert float(table.loc[("ROME", "AFF_hard"), "Holm"]) == pytest.approx(14 * 2 / 2**8, abs=1e-4)
    assert (table["Holm"].astype(float) >= tested).all()
