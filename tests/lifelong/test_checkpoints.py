"""Checkpoints: what is asked, what is kept, resumption, and when a method is stopped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from helpers import UserError
from helpers.lifelong import checkpoints as checkpoints_module
from helpers.lifelong.checkpoints import LifelongRun, sampled_positions, state_table
from helpers.lifelong.probes import ProbedModel
from helpers.lifelong.track import asked_requests
from helpers.models.tokens import TokenError
from helpers.results.store import Results, settings_key
from helpers.scoring.answers import Question, score_answers
from helpers.scoring.responses import Sampling
from tests.lifelong.conftest import stream_of


def values(table: pd.DataFrame, measure: str, edits: int) -> list[float]:
    rows = table[(table["measure"] == measure) & (table["case_id"] == edits)]
    return rows.sort_values("item")["value"].tolist()


def assert_same_but_seconds(*tables: pd.DataFrame) -> None:
    first, second = (table.query("measure != 'seconds'").reset_index(drop=True) for table in tables)
    pd.testing.assert_frame_equal(first, second)


def test_a_checkpoint_has_every_measure(run_of):
    run = run_of("ft-m", (2, 4))
    run.complete()
    table = run.measures()
    assert set(table["case_id"]) == {0, 2, 4}
    for measure in ("at once", "made", "now", "generality", "free text", "seconds"):
        assert values(table, measure, 4), measure
        assert not values(table, measure, 0), measure
    for measure in ("locality", "KL", "text", "exam", "fired", "bytes", "P(known)"):
        assert values(table, measure, 0), measure
    assert values(table, "locality", 0) == [1.0, 1.0]
    assert np.allclose(values(table, "text", 0), 0)
    *_, (_, edit, _) = run.track.states([4])
    requests = run.track.stream.requests
    expected = asked_requests(run.track.lm, requests, edit, wordings=2)
    assert values(table, "now", 4) == expected["matched"].astype(float).tolist()
    assert values(table, "P(new)", 4) == pytest.approx(
        np.exp(expected["target"]).tolist(), abs=1e-4
    )
    assert values(table, "generality", 4) == expected["matched_paraphrase"].tolist()
    assert len(values(table, "at once", 4)) == 4
    assert values(table, "at once", 4) == run.track.at_once()["matched"].astype(float).tolist()
    assert {"peak", "chains"} <= {path.name.split("-")[0] for path in run.results.folder.glob("*")}


def test_a_score_that_is_no_number_is_left_out_at_its_checkpoint_alone(run_of, monkeypatch):
    run = run_of("ft-m", (2,))
    run.complete()
    whole = run.measures()
    read = Results.read

    def measured_without_scores_at(count: int) -> pd.DataFrame:
        def read_with_gaps(results: Results, kind: str) -> pd.DataFrame:
            table = read(results, kind)
            if kind != "peak":
                return table
            return table.assign(sum_after=table["sum_after"].mask(table["case_id"] == count))

        with monkeypatch.context() as patched:
            patched.setattr(Results, "read", read_with_gaps)
            return run.measures()

    assert values(measured_without_scores_at(2), "AFF", 0) == values(whole, "AFF", 0) != []
    assert values(measured_without_scores_at(0), "AFF", 0) == []


def test_what_is_asked_on_top_only_at_some_checkpoints(run_of):
    run = run_of("ft-m", (2, 4))
    run.complete()
    assert sorted(set(run.results.read("chains")["case_id"])) == [0, 4]


@pytest.mark.slow
def test_a_killed_run_ends_as_one_that_was_not(run_of, monkeypatch):
    whole = run_of("ft-m", (2, 4), folder="whole")
    whole.complete()
    killed = run_of("ft-m", (2, 4), folder="killed")
    tables = LifelongRun._tables

    def stopping(run, count, edit, state):
        if count == 4:
            raise KeyboardInterrupt
        return tables(run, count, edit, state)

    with monkeypatch.context() as patched:
        patched.setattr(LifelongRun, "_tables", stopping)
        with pytest.raises(KeyboardInterrupt):
            killed.complete()
    again = run_of("ft-m", (2, 4), folder="killed")
    again.complete()
    assert_same_but_seconds(whole.measures(), again.measures())


def test_states_are_thinned_to_checkpoints(run_of, monkeypatch):
    monkeypatch.setattr("helpers.lifelong.track.KEPT_EVERY", 0.0)
    run = run_of("ft-m", (2, 4))
    run.complete()
    assert run.track._kept_counts() == [2, 4]


def test_a_longer_run_makes_what_is_missing(run_of, monkeypatch):
    run_of("ft-m", (2,)).complete()
    asked = []
    tables = LifelongRun._tables
    monkeypatch.setattr(
        LifelongRun, "_tables", lambda run, n, *rest: asked.append(n) or tables(run, n, *rest)
    )
    short = run_of("ft-m", (2,))
    short.complete()
    assert asked == []


@pytest.mark.slow
def test_what_a_run_has_does_not_depend_on_earlier_runs(run_of, monkeypatch):
    monkeypatch.setattr(checkpoints_module, "ON_TOP_AT", (0,))
    alone = run_of("ft-m", (2,), folder="alone")
    alone.complete()
    run_of("ft-m", (2, 4), count=4).complete()
    shorter = run_of("ft-m", (2,), count=4)
    assert shorter.finished() == {0}
    shorter.complete()
    assert set(shorter.measures()["case_id"]) == {0, 2}
    assert_same_but_seconds(shorter.measures(), alone.measures())
    longer = run_of("ft-m", (2, 4), count=4).measures()
    assert [count for count in (0, 2, 4) if values(longer, "AFF", count)] == [0, 4]


@pytest.mark.slow
def test_a_checkpoint_before_a_collapse_is_made_later(run_of, monkeypatch):
    monkeypatch.setattr("helpers.lifelong.measures.LEAST_EFFICACY", 1.1)  # every method is below
    monkeypatch.setattr("helpers.lifelong.measures.FEWEST_FOR_EFFICACY", 1)
    run_of("ft-m", (2, 3, 4), count=4).complete()
    assert set(run_of("ft-m", (2, 3, 4), count=4).measures()["case_id"]) == {0, 2, 3}
    added = run_of("ft-m", (1, 2, 3, 4), count=4)
    added.complete()
    assert set(added.measures()["case_id"]) == {0, 1, 2}


def test_a_collapsed_method_is_stopped(run_of, monkeypatch):
    monkeypatch.setattr("helpers.lifelong.measures.LEAST_EFFICACY", 1.1)  # every method is below
    monkeypatch.setattr("helpers.lifelong.measures.FEWEST_FOR_EFFICACY", 1)
    run = run_of("ft-m", (1, 2, 3))
    run.complete()
    assert set(run.measures()["case_id"]) == {0, 1, 2}


def test_a_method_that_outgrows_the_context_is_stopped(run_of, monkeypatch):
    run = run_of("ft-m", (1, 2))
    named = checkpoints_module.named_in_free_text

    def too_long(lm, requests, edit):
        if len(requests) == 2:
            raise TokenError("too long")
        return named(lm, requests, edit)

    monkeypatch.setattr(checkpoints_module, "named_in_free_text", too_long)
    run.complete()
    run.complete()
    table = run.measures()
    assert set(table["case_id"]) == {0, 1}
    assert values(table, "outgrew", 1) == [2.0]
    shorter = run_of("ft-m", (1,), count=2)
    assert not values(shorter.measures(), "outgrew", 1)


def test_probes_that_do_not_fit_the_context_are_one_line(run_of, monkeypatch):
    def too_long(*_):
        raise TokenError("too long")

    monkeypatch.setattr(ProbedModel, "exam", too_long)
    run = run_of("ft-m", (1,))
    with pytest.raises(UserError, match="too long"):
        run.complete()
    assert run.measures().empty


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("checkpoints.ON_TOP_AT", (0, 7)),
        ("checkpoints.SAMPLE", 7),
        ("checkpoints.WORDINGS", 7),
        ("checkpoints.FREE_TEXT", Sampling(max_new_tokens=7)),
        ("checkpoints.Sampling.version", 7),
        ("probes.EXAM_VERSION", 7),
        ("probes.PERPLEXITY_TEXT", Path(__file__)),
        ("probes.NAMING_VERSION", 7),
        ("probes.PEAK_VERSION", 7),
        ("probes.SCORING_VERSION", {"exact": 7}),
        ("probes.load_aliases", lambda _: {"Rome": ("Roma",)}),
    ],
)
def test_what_is_asked_is_in_the_key(run_of, monkeypatch, name, value):
    run = run_of("ft-m", (1,))
    key = settings_key(run.settings)
    monkeypatch.setattr(f"helpers.lifelong.{name}", value)
    probes = replace(run.probed.probes)  # without settings that are cached
    changed = LifelongRun(run.track, ProbedModel(run.track.lm, probes), (1,))
    assert settings_key(changed.settings) != key


def test_the_sample_is_even_by_age():
    stream = stream_of(1000)
    assert sampled_positions(stream, 7) == [1, 2, 3, 4, 5, 6, 7]
    positions = sampled_positions(stream, 1000)
    assert len(set(positions)) == 100
    assert np.bincount((np.array(positions) - 1) // 100).tolist() == [10] * 10
    other_order = sampled_positions(replace(stream, order=1), 1000)
    assert positions == sampled_positions(stream, 1000) != other_order


def test_what_a_later_request_contradicts_is_not_asked_again(run_of):
    run = run_of("ft-m", (3,))
    first, second, _ = run.track.stream.requests
    request = replace(first.request, target="Chile", correct=(first.request.target,))
    stream = replace(run.track.stream, requests=(first, second, replace(first, request=request)))
    assert sampled_positions(stream, 2) == [1, 2]
    assert sampled_positions(stream, 3) == [2, 3]
    run = LifelongRun(replace(run.track, stream=stream), run.probed, (3,))
    run.complete()
    measures = run.measures().set_index("item")
    newest = measures.loc[measures["measure"] == "newest above older", "value"]
    assert newest.index.tolist() == [3]
    assert newest[3] in (0.0, 1.0)
    others = measures.loc[measures["measure"] == "new above old", "value"].dropna()
    assert others.index.tolist() == [2]


def test_norms_are_those_of_the_written_matrix(run_of):
    run = run_of("ft-m", (2,))
    *_, (_, edit, state) = run.track.states([2])
    table = state_table(run.track.lm, edit, state).set_index("measure")["value"]
    ((module_name, delta),) = edit.items()
    weight = run.track.lm.weight(module_name)
    assert table["weights"] == pytest.approx(float((weight + delta.dense()).norm() / weight.norm()))
    assert table["change"] == pytest.approx(float(delta.dense().norm() / weight.norm()))
    tensors, names = edit.contents()
    text_bytes = len(json.dumps(names))
    assert table["bytes"] == sum(4 * tensor.numel() for tensor in tensors.values()) + text_bytes


def test_free_text_names_the_answer_or_not(run_of):
    run = run_of("ft-m", (2,))
    *_, (_, edit, _) = run.track.states([2])
    named = checkpoints_module.named_in_free_text(run.track.lm, run.track.stream.requests, edit)
    assert len(named) == 2
    scores = score_answers(run.track.lm, [Question("Mars 0 is near", ("Venus",))], [edit], [0])
    assert isinstance(named[0], bool)
    assert len(scores) == 1


def test_a_probes_subject_in_the_stream_is_refused(run_of, probes):
    run = run_of("ft-m", (2,))
    subject = run.track.stream.requests[0].request.subject
    record = replace(probes.asked_records[0], subject=subject)
    probed = ProbedModel(run.track.lm, replace(probes, records=((record,), ())))
    with pytest.raises(UserError, match="the subject of a probe"):
        LifelongRun(run.track, probed, (2,))


def test_a_further_edit_that_outgrows_the_context_ends_only_runs_that_ask_it(run_of, monkeypatch):
    monkeypatch.setattr(checkpoints_module, "ON_TOP_AT", (0,))
    run_of("ft-m", (2, 4), count=4).complete()
    shorter = run_of("ft-m", (2,), count=4)

    def too_long(*_):
        raise TokenError("too long")

    with monkeypatch.context() as patched:
        patched.setattr(ProbedModel, "edited_on_top", too_long)
        shorter.complete()
    assert set(shorter.measures()["case_id"]) == {0}
    assert values(shorter.measures(), "outgrew", 0) == [2.0]
    longer = run_of("ft-m", (2, 4), count=4).measures()
    assert set(longer["case_id"]) == {0, 2, 4}
    assert "outgrew" not in set(longer["measure"])
