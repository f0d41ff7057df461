"""Probes: pools that no stream edits, edits on top of edits, and what the unedited model is compared with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from helpers.editing.sequence import SequenceState
from helpers.editing.weight_edit import WeightEdit, apply
from helpers.lifelong import probes as probes_module
from helpers.lifelong.probes import CONTEXT, KEYS, ProbeCounts, ProbedModel, on_top
from helpers.lifelong.streams import stream_named
from helpers.peak.metrics import metrics_table
from helpers.peak.run import edit_request, score_records
from helpers.records import comparable
from helpers.results.evaluation import joined
from helpers.scoring.answers import Question, score_answers, score_continuations
from tests.lifelong.conftest import KNOWN, stream_of


def test_no_stream_edits_a_probe_and_no_number_of_probes_changes_it(probes):
    stream = stream_named("recalled", probe_subjects=probes.subjects)
    edited = {comparable(request.request.subject) for request in stream.requests}
    assert not edited & {comparable(subject) for subject in probes.subjects}
    more = replace(probes, counts=ProbeCounts())
    assert more.subjects == probes.subjects
    assert more.settings != probes.settings
    assert len(more.asked_records) > len(probes.asked_records) == 2
    assert len({record.case_id for record in more.asked_records}) == len(more.asked_records)


@pytest.mark.parametrize("name", ["ft-m", "memit", "ultraedit", "memory-bm25", "grace", "ft-bf"])
def test_an_edit_on_top_holds_the_sequence_and_itself_alone(track_of, name):
    track = track_of(name, 3)
    *_, (_, edit, state) = track.states([3])
    requests = [request.request for request in stream_of(5).requests[3:]]
    both = on_top(track.editor, state, requests)
    (first,) = on_top(track.editor, state, requests[:1])
    questions = [Question(request.text, (request.target,)) for request in requests[:1]]
    under_both = score_answers(track.lm, questions, [both[0]], [0])["sum"][0]
    assert under_both == pytest.approx(
        score_answers(track.lm, questions, [first], [0])["sum"][0], abs=1e-4
    )
    assert under_both > score_answers(track.lm, questions, [edit], [0])["sum"][0]


def test_overlay_on_overlay_is_an_edit_of_the_edited_model(track_of):
    track = track_of("ft-m", 3)
    *_, (_, edit, state) = track.states([3])
    request = stream_of(4).requests[3].request
    (both,) = on_top(track.editor, state, [request])
    with apply(track.lm, edit):
        (alone,) = track.editor.edit([request])
        question = [Question(request.text, (request.target, "Rome"))]
        expected = score_answers(track.lm, question, [alone], [0])["sum"].tolist()
    overlaid = score_answers(track.lm, question, [both], [0])["sum"].tolist()
    assert overlaid == pytest.approx(expected, abs=1e-3)


def test_peak_records_are_scored_before_and_after_their_edit_on_top(run_of):
    run = run_of("ft-m", (2,))
    editor, lm = run.track.editor, run.track.lm
    *_, (_, edit, state) = run.track.states([2])
    table = run.probed.edited_on_top(editor, state)["peak"]
    records = run.probed.probes.asked_records
    edits = on_top(editor, state, [edit_request(record) for record in records])
    before = score_records(lm, records, edit)
    expected = joined(before, score_records(lm, records, edits), KEYS)
    assert table["sum_after"].tolist() == pytest.approx(expected["sum_after"].tolist(), abs=1e-4)
    assert metrics_table(table).index.tolist() == [0, 1]


def test_chains_are_asked_under_the_sequence_and_under_one_more(run_of):
    run = run_of("ft-m", (2,))
    ((_, _, state),) = run.track.states([0])
    facts = run.probed.edited_on_top(run.track.editor, state)["chains"]
    graphs = run.probed.probes.asked_graphs
    assert facts.groupby("case_id").size().tolist() == [
        len(graph.facts) for graph in sorted(graphs, key=lambda graph: graph.case_id)
    ]
    assert (facts["before"] != facts["after"]).any()


def test_the_unedited_model_agrees_with_itself(run_of):
    probed = run_of("ft-m", (2,)).probed
    tables = probed.unrelated(WeightEdit({}))
    assert tables["known"]["same"].all()
    assert np.allclose(tables["known"]["kl"], 0, atol=1e-6)
    question = Question("Togo has the capital", ("Rome",))
    assert tables["known"]["sum"][0] == pytest.approx(
        score_answers(probed.lm, [question])["sum"][0], abs=1e-4
    )
    window = probed.windows[0]
    expected = score_continuations(probed.lm, [(window[:CONTEXT], window[CONTEXT:])])
    assert tables["text"]["sum"][0] == pytest.approx(expected["sum"][0], abs=1e-3)
    scored_tokens = sum(len(window) - CONTEXT for window in probed.windows)
    assert tables["text"]["tokens"].sum() == scored_tokens
    assert sum(map(len, probed.windows)) <= 200
    assert len(tables["exam"]) == 4
    assert tables["exam"]["fired"].isna().all()


@pytest.mark.parametrize(("exam", "asked"), [(200, 4), (3, 3), (0, 0)])
def test_as_many_questions_of_the_exam_are_asked_as_are_counted(run_of, exam, asked):
    probed = run_of("ft-m", (2,)).probed
    counts = replace(probed.probes.counts, exam=exam)
    fewer = replace(probed, probes=replace(probed.probes, counts=counts))
    of_all = probed.exam(WeightEdit({}))
    pd.testing.assert_frame_equal(
        fewer.exam(WeightEdit({})), of_all.head(asked), check_dtype=asked > 0
    )
    assert (fewer.probes.settings == probed.probes.settings) == (exam == 200)


def test_an_answer_without_a_score_is_never_right(run_of, monkeypatch):
    probed = run_of("ft-m", (2,)).probed

    def right_answers(*means: float) -> list[bool]:
        scores = pd.DataFrame({"question": 0, "mean": means})
        monkeypatch.setattr(probes_module, "score_answers", lambda *_: scores)
        return probed.exam(WeightEdit({}))["right"].tolist()

    assert right_answers(-1.0, -2.0, -3.0) == [True]
    assert right_answers(-2.0, -1.0, -3.0) == [False]
    assert right_answers(np.nan, np.nan, np.nan) == [False]
    assert right_answers(np.nan, -1.0, -2.0) == [False]
    assert right_answers(-1.0, np.nan, -2.0) == [False]


def test_gates_fire_or_not(run_of):
    run = run_of("memory-bm25", (2,))
    *_, (_, edit, _) = run.track.states([2])
    fired = run.probed.exam(edit)["fired"]
    assert set(fired) <= {0.0, 1.0}


@pytest.mark.usefixtures("short_exam")
def test_a_fact_is_known_where_its_answer_is_the_most_probable(tiny, probes):
    lm = tiny("llama")
    letters = "abcdefghijklmnopqrstuvwxyz"
    answers = score_answers(lm, [Question("Togo has the capital", tuple(letters))])
    known = [letters[n] for n in answers.index[answers["top"] == answers["tokens"]]]
    facts = [replace_answer(fact, known[0] if known else "a") for fact in KNOWN[:1]]
    probed = ProbedModel(lm, replace(probes, candidates=(*facts, *KNOWN[1:])))
    assert [fact.subject for fact in probed.known_facts] == (["Togo"] if known else [])
    assert SequenceState().memory == {}


def replace_answer(fact, answer):
    return fact._replace(answers=(answer,))
