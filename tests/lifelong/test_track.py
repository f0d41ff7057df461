"""A track goes on where it was interrupted, bit for bit, and asks every request right after its turn."""

from __future__ import annotations

import errno
import random

import pandas as pd
import pytest
import torch

from helpers import UserError
from helpers.editing.sequence import SequenceState
from helpers.lifelong import track as track_module
from helpers.lifelong.track import Track, asked_requests
from helpers.scoring.answers import Question, score_answers
from tests.lifelong.conftest import stream_of


def tensors_at(track: Track, checkpoints: list[int]) -> dict[str, torch.Tensor]:
    *_, (_, edit, _) = track.states(checkpoints)
    return edit.contents()[0]


@pytest.mark.parametrize("name", ["ft-m", "memit-seq", "ultraedit", "grace", "memory-bm25"])
def test_a_killed_track_goes_on_bit_for_bit(track_of, monkeypatch, name):
    monkeypatch.setattr(track_module, "KEPT_EVERY", 0.0)
    whole = tensors_at(track_of(name, 12, "whole"), [12])
    killed = track_of(name, 12, "killed")
    kill_at = random.Random(name).randrange(2, 11)
    turn = type(killed.editor).after_turn
    turns = []

    def stopping(editor, state, requests):
        turns.append(requests)
        if len(turns) == kill_at:
            raise KeyboardInterrupt
        return turn(editor, state, requests)

    with monkeypatch.context() as patched:
        patched.setattr(type(killed.editor), "after_turn", stopping)
        with pytest.raises(KeyboardInterrupt):
            tensors_at(killed, [12])
        again = track_of(name, 12, "killed")
        resumed = tensors_at(again, [12])
    assert len(turns) == 13  # the killed turn is the only one that is made twice
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[key], resumed[key]) for key in whole)
    assert again.at_once()["case_id"].tolist() == list(range(1, 13))


def test_each_request_is_asked_after_its_turn(track_of):
    track = track_of("ft-m", 4, turn_size=2)
    (_, first_edit, _), (_, second_edit, _) = track.states([2, 4])
    at_once = track.at_once()
    for rows, requests, edit in (
        (at_once.iloc[:2], track.stream.requests[:2], first_edit),
        (at_once.iloc[2:], track.stream.requests[2:], second_edit),
    ):
        expected = asked_requests(track.lm, requests, edit)
        pd.testing.assert_series_equal(
            rows["target"].reset_index(drop=True), expected["target"], atol=1e-5
        )
    assert (at_once["seconds"] > 0).all()


def test_requests_are_asked_as_their_answers_are_scored(tiny):
    lm = tiny("llama")
    (request,) = stream_of(1).requests
    (row,) = asked_requests(lm, [request], None, wordings=1).to_dict("records")
    scores = score_answers(lm, [Question(request.request.text, ("Venus", "Rome", "Paris"))])["sum"]
    assert row["target"] == pytest.approx(scores[0], abs=1e-4)
    assert row["original"] == pytest.approx(max(scores[1:]), abs=1e-4)
    paraphrase = score_answers(lm, [Question("Close to Mars 0 is", ("Venus",))])["sum"]
    assert row["target_paraphrase"] == pytest.approx(paraphrase[0], abs=1e-4)


def test_a_longer_track_goes_on_from_a_shorter_one(track_of, monkeypatch):
    track = track_of("ft-m", 6)
    tensors_at(track, [3])
    longer = track_of("ft-m", 6)
    assert longer.settings == track.settings
    monkeypatch.setattr(track_module, "KEPT_EVERY", 1e9)
    assert longer._last_kept(6)[0] == 3
    tensors_at(longer, [6])
    assert longer._kept_counts() == [3, 6]


def test_the_stream_the_order_and_the_turns_are_in_the_key(track_of):
    track = track_of("ft-m", 6)
    assert track.settings != track_of("ft-m", 5).settings
    assert track.settings != track_of("ft-m", 6, turn_size=2).settings


def test_what_is_kept_between_checkpoints_goes(track_of, monkeypatch):
    monkeypatch.setattr(track_module, "KEPT_EVERY", 0.0)
    track = track_of("ft-m", 5)
    tensors_at(track, [2, 5])
    assert track._kept_counts() == [2, 5]
    tensors_at(track, [4])
    track.thin([2])
    assert track._kept_counts() == [2, 5]


def test_a_checkpoint_within_a_turn_is_refused(track_of):
    with pytest.raises(UserError, match="checkpoint 3 is in the middle of a turn of 2 edits"):
        tensors_at(track_of("ft-m", 6, turn_size=2), [3])


def test_an_editor_that_sees_all_is_trained_anew(track_of):
    track = track_of("ft-bf", 4)
    edits = [edit for _, edit, _ in track.states([2, 4])]
    expected = track.editor.edit_jointly([each.request for each in track.stream.requests[:2]])
    for module_name, delta in expected.items():
        assert torch.equal(edits[0][module_name].dense(), delta.dense())
    assert edits[1] is not edits[0]


def test_requests_of_an_editor_that_sees_all_are_asked_at_their_first_checkpoint(track_of):
    track = track_of("ft-bf", 4)
    (_, first_edit, _), (_, second_edit, _) = track.states([2, 4])
    at_once = track.at_once([2, 4])
    assert at_once["position"].tolist() == [1, 2, 3, 4]
    requests = track.stream.requests
    expected = [
        *asked_requests(track.lm, requests[:2], first_edit)["target"],
        *asked_requests(track.lm, requests[2:], second_edit)["target"],
    ]
    assert at_once["target"].tolist() == pytest.approx(expected, abs=1e-4)


def test_what_is_asked_of_an_editor_that_sees_all_does_not_depend_on_earlier_calls(track_of):
    alone, after_another = track_of("ft-bf", 4, "alone"), track_of("ft-bf", 4)
    list(alone.states([2, 4]))
    list(after_another.states([4]))
    assert after_another.at_once([4])["case_id"].tolist() == [4, 4, 4, 4]
    list(after_another.states([2, 4]))
    first, second = (
        track.at_once([2, 4]).drop(columns="seconds") for track in (alone, after_another)
    )
    pd.testing.assert_frame_equal(first, second)
    assert first["case_id"].tolist() == [2, 2, 4, 4]


def test_nothing_is_edited_at_zero(track_of):
    for name in ("ft-m", "ft-bf"):
        ((count, edit, state),) = track_of(name, 2).states([0])
        assert (count, edit.contents()[0], state.memory) == (0, {}, {})


def test_states_of_another_track_are_refused(track_of):
    track = track_of("ft-m", 3)
    tensors_at(track, [3])
    settings = track.results.folder / "settings.json"
    settings.write_text(settings.read_text().replace("by hand", "another"))
    with pytest.raises(UserError, match="holds the states of another model, editor or stream"):
        tensors_at(track_of("ft-m", 3), [3])


def test_a_full_disk_at_a_checkpoint_is_one_line_and_loses_nothing(track_of, monkeypatch):
    track = track_of("ft-m", 4)
    tensors_at(track, [2])

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(SequenceState, "save", full)
        with pytest.raises(UserError, match="No space left on device") as error:
            tensors_at(track, [4])
    assert "\n" not in str(error.value)
    assert track._kept_counts() == [2]
    again = track_of("ft-m", 4, "whole")
    resumed, whole = tensors_at(track, [4]), tensors_at(again, [4])
    assert all(torch.equal(resumed[key], whole[key]) for key in whole)


def test_several_wordings_are_averaged(tiny):
    lm = tiny("llama")
    (request,) = stream_of(1).requests
    (row,) = asked_requests(lm, [request], None, wordings=2).to_dict("records")
    questions = [Question(text, ("Venus",)) for text in request.paraphrases]
    scores = score_answers(lm, questions)["sum"]
    assert row["target_paraphrase"] == pytest.approx(scores.mean(), abs=1e-4)
