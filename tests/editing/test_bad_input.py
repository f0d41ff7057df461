"""What goes wrong is said clearly, and stops only what it concerns."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from helpers.editing import vector as vector_module
from helpers.editing.batch import EditBatch
from helpers.editing.moments import SecondMomentError
from helpers.editing.presets import LayerHyperparameters
from helpers.editing.request import EditRequest, RequestError

EDITORS = ["rome", "memit", "alphaedit"]


@pytest.mark.parametrize("name", EDITORS)
def test_statistics_of_another_model_are_refused(tiny, make_editor, moments_of, name) -> None:
    editor = make_editor(name, tiny("llama"))
    foreign = moments_of(tiny("qwen2"))
    with pytest.raises(SecondMomentError, match="was made with model"):
        replace(editor, second_moments=foreign)


@pytest.mark.parametrize("name", EDITORS)
def test_missing_statistics_and_layers_are_named(tiny, make_editor, name) -> None:
    editor = make_editor(name, tiny("llama"))
    with pytest.raises(SecondMomentError, match="needs the second moment of layer 1"):
        replace(editor, second_moments={})
    with pytest.raises(ValueError, match="layer 9 is not in this model"):
        make_editor(name, tiny("llama"), layers=(9,))


def test_rome_needs_no_statistics_without_the_second_moment(tiny, make_editor, requests) -> None:
    editor = make_editor("rome", tiny("llama"), mom2_adjustment=False, v_num_grad_steps=2)
    bare = replace(editor, second_moments={})
    assert bare.edit(requests[:1])[0].norm() > 0


@pytest.mark.parametrize("name", EDITORS)
def test_a_non_finite_loss_ends_that_edit_only(
    tiny, make_editor, requests, monkeypatch, name
) -> None:
    editor = make_editor(name, tiny("llama"), v_num_grad_steps=4)
    sound = editor.edit(requests)
    original = vector_module._loss_terms

    def spoiled(batch, *rest):
        terms = original(batch, *rest)
        # The longest row is first in its batch, as long as it is there.
        if len(batch.active.ids) == len(requests):
            spoiled_row = torch.zeros_like(terms["nll"])
            spoiled_row[0] = float("nan")
            terms["nll"] = terms["nll"] + spoiled_row
        return terms

    monkeypatch.setattr(vector_module, "_loss_terms", spoiled)
    monkeypatch.setattr(vector_module, "token_batches", lambda lengths, *_, **__: [[1, 0, 2]])
    updates = editor.edit(requests)
    assert [update.failed for update in updates] == [False, True, False]
    assert "non-finite loss at step 0" in updates[1].diagnostics["failure"]
    assert len(updates[1]) == 0
    for i in (0, 2):
        for module in sound[i]:
            torch.testing.assert_close(
                updates[i][module].dense(), sound[i][module].dense(), rtol=1e-3, atol=1e-5
            )
    if name != "rome":
        joint = editor.edit_jointly(requests)
        assert "failure" in joint.diagnostics["edits"][1]
        assert not joint.failed
        assert all(delta.rank == 2 for delta in joint.values())


@pytest.mark.parametrize("name", [*EDITORS, "rect", "prune"])
def test_a_joint_edit_of_which_nothing_is_left_has_failed(
    tiny, make_editor, requests, name
) -> None:
    language_model = tiny("llama")
    editor = make_editor(name, language_model)
    norm = language_model.model.base_model.norm.weight
    sound = norm.detach().clone()
    with torch.no_grad():
        norm.fill_(float("nan"))  # every loss is NaN
        joint = editor.edit_jointly(requests[:2])
        norm.copy_(sound)
    assert joint.failed
    assert len(joint) == 0
    assert len(joint.diagnostics["edits"]) == 2


@pytest.mark.parametrize("name", ["memit", "alphaedit"])
def test_an_update_that_is_not_finite_is_given_up(tiny, make_editor, requests, monkeypatch, name):
    editor = make_editor(name, tiny("llama"), v_num_grad_steps=2)
    solve = type(editor).solve_each

    def spoiled(self, layer, keys, residuals):
        left, right = solve(self, layer, keys, residuals)
        left[0, 1] = float("inf")
        return left, right

    monkeypatch.setattr(type(editor), "solve_each", spoiled)
    updates = editor.edit(requests)
    assert [update.failed for update in updates] == [False, True, False]
    assert updates[1].diagnostics["failure"] == "the update is not finite"


@pytest.mark.parametrize("name", EDITORS)
def test_out_of_memory_halves_the_batch(tiny, make_editor, requests, monkeypatch, name) -> None:
    editor = make_editor(name, tiny("llama"), v_num_grad_steps=3)
    plain = editor.edit(requests)
    build = EditBatch.build.__func__

    def tight(cls, language_model, rows, *rest):
        if len(rows) > 1:
            raise torch.OutOfMemoryError("out of memory")
        return build(cls, language_model, rows, *rest)

    monkeypatch.setattr(EditBatch, "build", classmethod(tight))
    monkeypatch.setattr(vector_module, "token_batches", lambda lengths, *_, **__: [[0, 1, 2]])
    with pytest.warns(UserWarning, match="going on with halves"):
        updates = editor.edit(requests)
    for one, other in zip(updates, plain, strict=True):
        for module in one:
            torch.testing.assert_close(
                one[module].dense(), other[module].dense(), rtol=1e-3, atol=1e-5
            )


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("subject", " ", "the subject is empty"),
        ("prompt", "no slot", "exactly one {}"),
        ("target", "", "the target is empty"),
        ("target", "Earth", "already a correct answer"),
        ("target", " Earth", "already a correct answer"),  # the same tokens
    ],
)
def test_requests_that_cannot_be_edited(requests, field, value, message) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        replace(requests[0], **{field: value})
    assert "record a" in str(caught.value)


def test_a_single_answer_is_not_taken_for_its_letters(requests) -> None:
    with pytest.raises(TypeError, match="several texts, not 'Egypt'"):
        replace(requests[0], correct="Egypt")
    assert replace(requests[0], correct=["Egypt"]).correct == ("Egypt",)


@pytest.mark.parametrize("layers", [(1, 1), (2, 1)])
def test_layers_are_named_once_and_in_order(layers) -> None:
    with pytest.raises(ValueError, match="ascending"):
        LayerHyperparameters(layers=layers)


@pytest.mark.parametrize("name", EDITORS)
def test_a_target_longer_than_the_context_names_the_record(tiny, make_editor, name) -> None:
    request = EditRequest("Mars", "{} is", "long " * 200, record="r7")
    with pytest.raises(RequestError, match=r"record 'r7'.*exceed the context"):
        make_editor(name, tiny("llama")).edit([request])


@pytest.mark.parametrize("name", [*EDITORS, "rect", "prune"])
def test_no_requests_give_no_updates(tiny, make_editor, name) -> None:
    editor = make_editor(name, tiny("llama"))
    assert editor.edit([]) == []
    assert len(editor.edit_jointly([])) == 0
    assert list(editor.edit_sequentially([])) == []
