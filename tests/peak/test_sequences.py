"""PEAK under sequential edits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from helpers.editing.contexts import ContextTemplates
from helpers.editing.rect_prune import Prune, PruneHyperparameters
from helpers.editing.rome import Rome
from helpers.editing.update import Update, apply
from helpers.peak import sequences
from helpers.peak.metrics_table import metrics_table
from helpers.peak.records import load_peak
from helpers.peak.run import KEYS, PeakRun, edit_request, score_records
from helpers.peak.sequences import PeakSequence
from helpers.results.store import ResultsStore


@pytest.fixture
def editor(tiny, rome_settings):
    return Rome(tiny("llama"), rome_settings, ContextTemplates((("{}",),)))


@pytest.fixture
def run(tiny, tmp_path):
    return PeakRun(tiny("llama"), load_peak("peak-mini-cf", limit=4), ResultsStore(tmp_path))


def by_hand(run, editor, count):
    """Scores of the first records with the edits written into the weights, one after the other."""
    records, total = run.data.records[:count], Update({})
    for record in records:
        with apply(run.language_model, total):
            (step,) = editor.edit([edit_request(record)])
        total = total.plus(step)
    with apply(run.language_model, total):
        return score_records(run.language_model, records)


def test_scores_are_those_of_weights_edited_one_after_the_other(run, editor):
    found = PeakSequence(run, editor).scores([1, 3])
    for count in (1, 3):
        written = by_hand(run, editor, count)
        both = found[count].merge(written, on=KEYS)
        assert both["case_id"].nunique() == count
        np.testing.assert_allclose(both["sum_after"], both["sum"], atol=5e-3, rtol=1e-3)


def test_first_edit_of_a_sequence_is_the_independent_edit(run, editor):
    first = PeakSequence(run, editor).scores([1])[1]
    alone = run.scores(editor)
    alone = alone[alone["case_id"] == first["case_id"].iloc[0]]
    np.testing.assert_allclose(first["sum_after"], alone["sum_after"], atol=1e-3)


def test_additivity_counts_what_later_edits_did_to_earlier_records(run):
    """Two records; the second edit halves the first record's correct answers: AFF by hand."""
    keys = [("edit", 0, name, 0) for name in ("target", "correct", "hard", "random")]
    rows = [(case, *key) for case in (1, 2) for key in keys]
    table = pd.DataFrame(rows, columns=KEYS).assign(tokens=1)
    before = np.log([0.05, 0.4, 0.1, 0.1] * 2)
    after = np.log([0.5, 0.2, 0.1, 0.1, 0.5, 0.4, 0.1, 0.1])
    metrics = metrics_table(table.assign(sum_before=before, sum_after=after))
    # CPC = 0.2 / 0.4 and no rank is lost: AFF = 1 - (1 - 0) * 0.5; the second record lost nothing.
    assert metrics["AFF_hard"].tolist() == pytest.approx([0.5, 0.0])
    assert metrics["AFF_hard"].mean() == pytest.approx(0.25)


def test_a_longer_sequence_goes_on_where_a_shorter_one_ended(run, editor, monkeypatch):
    whole = PeakSequence(run, editor).scores([4])[4]
    other = PeakRun(run.language_model, run.data, ResultsStore(run.store.root / "other"))
    sequence = PeakSequence(other, editor)
    sequence.scores([2])
    calls = []
    plain = Rome.edit_after

    def counted(self, earlier, requests):
        calls.append(requests)
        return plain(self, earlier, requests)

    monkeypatch.setattr(Rome, "edit_after", counted)
    resumed = sequence.scores([2, 4])[4]
    assert len(calls) == 2
    np.testing.assert_allclose(resumed["sum_after"], whole["sum_after"], atol=1e-3)
    assert sequence.edits(4)["case_id"].tolist() == [r.case_id for r in run.data.records[2:]]
    monkeypatch.setattr(sequences, "score_records", None)  # anything computed again would fail
    sequence.scores([2, 4])


def test_a_lost_update_is_made_again(run, editor):
    sequence = PeakSequence(run, editor)
    sequence.scores([1])
    for file in sequence.results(1).folder.glob("*.safetensors"):
        file.unlink()
    found = sequence.scores([1, 2])[2]
    other = PeakRun(run.language_model, run.data, ResultsStore(run.store.root / "other"))
    expected = PeakSequence(other, editor).scores([2])[2]
    pd.testing.assert_frame_equal(found, expected)


def test_an_editor_that_remembers_more_starts_anew(run, editor):
    """PRUNE goes on from unrestrained edits, which its yielded updates do not hold."""
    prune = Prune(editor, PruneHyperparameters(base="rome"))
    sequence = PeakSequence(run, prune)
    sequence.scores([1])
    assert len(sequence.scores([1, 2])) == 2
    assert sequence.edits(2)["case_id"].tolist() == [r.case_id for r in run.data.records[:2]]


def test_other_records_are_another_sequence(run, editor):
    """Slices of one data set, and the same records in another order."""
    records = run.data.records
    folders = {
        PeakSequence(replace(run, data=replace(run.data, records=part)), editor).results(2).folder
        for part in (records, records[2:], records[1::-1])
    }
    assert len(folders) == 3


@pytest.mark.parametrize("checkpoints", [[], [0, 1], [5]])
def test_checkpoints_must_fit_the_records(run, editor, checkpoints):
    with pytest.raises(ValueError, match="checkpoints"):
        PeakSequence(run, editor).scores(checkpoints)
