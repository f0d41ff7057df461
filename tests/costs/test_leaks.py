"""Other subjects under an edit: which are asked, the similarity of their keys, what is stored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from helpers.costs import leaks_run
from helpers.costs.leaks import leak_table, leaks_of_run, slope_by_record
from helpers.costs.leaks_run import Leaks, whitened_cosines
from helpers.editing.contexts import ContextTemplates
from helpers.editing.moments import SecondMoment
from helpers.editing.rome import Rome
from helpers.peak.records import load_peak
from helpers.peak.run import PeakRun, edit_request
from helpers.records import comparable
from helpers.results.archive import Archive
from helpers.results.publish import publish_parts
from helpers.results.store import ResultsStore
from helpers.scoring.answers import Question, score_answers

SUBJECTS = 3
WIDTH = 48  # of the tiny models' keys


def moment(matrix):
    return SecondMoment(matrix, 10, 1, "tiny", "a corpus")


@pytest.fixture
def leaks(tiny, tmp_path):
    data = load_peak("peak-mini-cf", limit=4)
    run = PeakRun(tiny("llama"), data, ResultsStore(tmp_path / "store"), chunk=2)
    pool = load_peak("peak-mini-cf").records
    return Leaks(run, pool, SUBJECTS, {1: moment(torch.eye(WIDTH))})


@pytest.fixture
def editor(tiny, rome_settings):
    return Rome(tiny("llama"), rome_settings, ContextTemplates((("{}",),)))


def test_other_subjects_are_of_the_relation_and_o_is_wrong_for_them(leaks):
    for record in leaks.run.data.records:
        own, *others = leaks.others[record.case_id]
        assert own is record
        assert 0 < len(others) <= SUBJECTS
        for other in others:
            assert other.relation == record.relation
            assert comparable(other.subject) != comparable(record.subject)
            assert comparable(record.target_new) not in map(comparable, other.correct)
        assert len({comparable(other.subject) for other in others}) == len(others)
    assert replace(leaks, seed=1).others != leaks.others


def test_the_whitened_cosine_by_hand():
    keys = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    plain = whitened_cosines(keys, keys)
    assert plain.numpy() == pytest.approx([1.0, 0.0, 2**-0.5])
    second_moment = torch.tensor([[2.0, 1.0], [1.0, 2.0]])  # C⁻¹ = [[2, -1], [-1, 2]] / 3
    solved = moment(second_moment).solve(keys.T).T
    assert whitened_cosines(keys, solved).numpy() == pytest.approx([1.0, -0.5, 0.5])


def test_scores_are_those_of_the_edit_about_each_subject(leaks, editor):
    table = leaks.scores(editor)
    (record, *_) = leaks.run.data.records
    of_record = table[table["case_id"] == record.case_id]
    prompts = [record.prompt.replace("{}", o.subject) for o in leaks.others[record.case_id]]
    questions = [Question(prompt, (record.target_new,)) for prompt in prompts]
    edits = editor.edit([edit_request(record)])
    after = score_answers(leaks.run.lm, questions, edits, [0] * len(questions))["sum"]
    before = score_answers(leaks.run.lm, questions)["sum"]
    assert of_record["sum_after"].to_numpy() == pytest.approx(after.to_numpy(), abs=2e-3)
    assert of_record["sum_before"].to_numpy() == pytest.approx(before.to_numpy(), abs=1e-3)
    assert of_record["whitened"].iloc[0] == pytest.approx(1.0)  # the edited subject itself
    # With C the unit matrix both are the plain cosine.
    assert of_record["whitened"].to_numpy() == pytest.approx(of_record["cosine"].to_numpy())


def test_the_key_has_the_subjects(leaks, editor):
    others = (leaks, replace(leaks, seed=1))
    assert len({each.evaluation(editor).results.folder for each in others}) == 1
    numbers = [set(each.evaluation(editor).cases._numbers.values()) for each in others]
    assert not numbers[0] & numbers[1]
    other_corpus = {1: replace(leaks.moments[1], corpus="another")}
    elsewhere = replace(leaks, moments=other_corpus).evaluation(editor)
    assert elsewhere.results.folder != leaks.evaluation(editor).results.folder


def test_rank_correlations_by_record():
    rows = [(1, "P1", False, change, change**3) for change in range(6)]
    rows += [(2, "P2", False, change, -change) for change in range(6)]
    rows += [(3, "P2", False, 1.0, 1.0)] * 4 + [(1, "P1", True, 100.0, -1.0)]
    columns = ["case_id", "relation", "is_own", "change", "whitened"]
    by_record = slope_by_record(pd.DataFrame(rows, columns=columns), "whitened")
    assert by_record.to_dict() == pytest.approx({(1, "P1"): 1.0, (2, "P2"): -1.0})


def test_it_is_published_and_shown(leaks, editor, tmp_path, monkeypatch):
    monkeypatch.setattr(leaks_run, "studied_run", lambda _: leaks.run)
    monkeypatch.setattr(leaks_run, "editors_of", lambda *_: {"rome": editor})
    monkeypatch.setattr(leaks_run, "second_moments", lambda *_: leaks.moments)
    params = {"dataset": "peak-mini-cf", "strict_lists": True, "seed": 0, "preset": "tuned"}
    params |= {"corpus": "self", "leaks": ["rome"], "subjects": SUBJECTS}
    archive = Archive(tmp_path / "archive")
    publish_parts(leaks_run.publication(params), archive)
    (run,) = archive.runs()
    (table,) = leaks_of_run(run).values()
    assert table["is_own"].sum() == 4
    others = table[~table["is_own"]].groupby("case_id")["change"].mean()
    cell = leak_table(run).table["others, nats"].iloc[0]
    assert cell.startswith(f"{others.mean():+z.2f}")
    assert np.isfinite(table["probability"]).all()
