"""A sequence goes on from where it stands as if it had never been interrupted."""

from __future__ import annotations

import pytest
import torch

from helpers.editing.edit import Edit, EditError
from helpers.editing.editor import Memoised
from helpers.editing.editors import EDITORS
from helpers.editing.sequence import SequenceState

# IKE's demonstrations are of one fact; FT-BF has no turns.
SEQUENTIAL = [name for name in EDITORS if name not in ("ike", "ft-bf")]


def tensors_of(edit: Edit) -> dict[str, torch.Tensor]:
    tensors, _ = edit.contents()
    return dict(tensors)


def assert_equal(first: Edit, second: Edit) -> None:
    tensors = tensors_of(first)
    other_tensors = tensors_of(second)
    assert tensors.keys() == other_tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, other_tensors[name]), name


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_a_sequence_goes_on_from_a_saved_state(tiny, make_editor, requests, tmp_path, name):
    lm = tiny("llama")
    editor = make_editor(name, lm)
    *_, uninterrupted = editor.edit_sequentially(requests[:3])
    state = SequenceState()
    for number, request in enumerate(requests[:3]):
        state = editor.after_turn(state, [request])
        state.save(tmp_path / str(number))
        state = SequenceState.load(tmp_path / str(number))
        editor = make_editor(name, lm)  # which remembers nothing
    assert_equal(editor.edit_of(state), uninterrupted)


@pytest.mark.parametrize("name", ["memit-seq", "alphaedit", "simie", "ultraedit"])
def test_what_is_remembered_counts(tiny, make_editor, requests, name):
    """Without its memory a sequence goes on otherwise."""
    lm = tiny("llama")
    editor = make_editor(name, lm)
    state = editor.after_turn(SequenceState(), requests[:1])
    assert state.memory_bytes
    remembering = editor.after_turn(state, requests[1:2]).edit
    forgetful = editor.after_turn(SequenceState(state.edit), requests[1:2]).edit
    name_of_matrix = next(iter(remembering))
    difference = remembering[name_of_matrix].dense() - forgetful[name_of_matrix].dense()
    assert difference.norm() > 1e-4 * remembering[name_of_matrix].norm()


def test_a_turn_of_several_is_a_joint_edit(tiny, make_editor, requests):
    lm = tiny("llama")
    for name in ("memit-seq", "alphaedit", "ultraedit"):
        editor = make_editor(name, lm)
        joint_edit = editor.edit_jointly(requests[:2])
        assert_equal(editor.after_turn(SequenceState(), requests[:2]).edit, joint_edit)


def test_an_editor_that_sees_all_requests_has_no_turns(tiny, make_editor, requests):
    editor = make_editor("ft-bf", tiny("llama"))
    assert editor.sees_all
    assert Memoised(editor, {}).sees_all
    assert not make_editor("ft-m", tiny("llama")).sees_all
    assert [row.name for row in EDITORS.values() if row.information == "all"] == ["ft-bf"]
    with pytest.raises(EditError, match="use edit_jointly"):
        editor.after_turn(SequenceState(), requests[:1])
