"""FT-BF against a plain loop, and the end of the text as part of a target."""

from __future__ import annotations

import pytest
import torch

from helpers.editing.rows import edit_row
from helpers.models.tokens import answer_ids, prompt_ids
from tests.editing.conftest import assert_same


def plain_loop(lm, requests, module_name, *, epochs, lr, batch_size):
    """Epochs of Adam on the weights themselves; each loss from transformers' own forward pass."""
    weight = lm.module(module_name).weight
    before = weight.detach().clone()
    change = torch.zeros_like(before, requires_grad=True)
    adam = torch.optim.Adam([change], lr=lr)
    order = torch.Generator().manual_seed(0)
    end = lm.tokenizer.eos_token_id
    means = []

    def loss_of(request):
        ids = prompt_ids(lm, request.text)
        answer = (*answer_ids(lm, request.target), end)
        parameters = {f"{module_name}.weight": before + change}
        texts = torch.tensor([[*ids, *answer[:-1]]])
        logits = torch.func.functional_call(lm.network, parameters, (texts,)).logits[0]
        places = torch.arange(len(ids) - 1, len(ids) + len(answer) - 1)
        return -logits.log_softmax(-1)[places, torch.tensor(answer)].mean()

    for _ in range(epochs):
        shuffled = torch.randperm(len(requests), generator=order).tolist()
        losses = []
        for first in range(0, len(requests), batch_size):
            indices = shuffled[first : first + batch_size]
            loss = torch.stack([loss_of(requests[index]) for index in indices]).mean()
            losses += [loss.item()] * len(indices)
            if loss.item() >= 1e-2:
                adam.zero_grad()
                loss.backward()
                adam.step()
        means.append(sum(losses) / len(losses))
    return change.detach(), means


@pytest.mark.parametrize("batch_size", [2, 100])
def test_joint_training_is_that_of_a_plain_loop(tiny, make_editor, requests, batch_size) -> None:
    lm = tiny("llama")
    options = {"lr": 1e-3, "batch_size": batch_size}
    editor = make_editor("ft-bf", lm, num_steps=4, **options)
    edit = editor.edit_jointly(requests)
    ((module_name, delta),) = edit.items()
    change, means = plain_loop(lm, requests, module_name, epochs=4, **options)
    found = [losses["total"] for losses in edit.diagnostics["losses"]]
    assert found == pytest.approx(means, abs=1e-4)
    # Adam's first steps are signs: noise in a gradient near 0 may flip one.
    assert float((delta.dense() - change).abs().median()) < 1e-5


def test_one_request_without_an_end_is_ft_m(tiny, make_editor, requests) -> None:
    lm = tiny("llama")
    breadth = make_editor("ft-bf", lm, eos=False, lr=1e-3)
    joint = breadth.edit_jointly(requests[:1])
    (alone,) = make_editor("ft-m", lm, lr=1e-3).edit(requests[:1])
    (same,) = breadth.edit(requests[:1])
    assert_same(same, alone)
    module_name = next(iter(alone))
    gap = (joint[module_name].dense() - alone[module_name].dense()).abs()
    assert float(gap.median()) < 1e-5
    expected = [losses["nll"] for losses in alone.diagnostics["losses"]]
    assert [loss["total"] for loss in joint.diagnostics["losses"]] == pytest.approx(
        expected, abs=1e-4
    )


def test_a_sequence_is_trained_anew_on_all_so_far(tiny, make_editor, requests) -> None:
    lm = tiny("gpt2")
    editor = make_editor("ft-bf", lm, num_steps=2)
    totals = list(editor.edit_sequentially(requests))
    assert len(totals) == 3
    assert_same(totals[1], editor.edit_jointly(requests[:2]))
    assert totals[0][lm.layout.mlp_out(1)].bias is not None


def test_app_is_part_of_a_joint_training(tiny, make_editor, requests, protective) -> None:
    lm = tiny("llama")
    protected = make_editor("ft-bf", lm, app=protective).edit_jointly(requests)
    plain = make_editor("ft-bf", lm).edit_jointly(requests)
    module_name = next(iter(plain))
    assert not torch.equal(protected[module_name].dense(), plain[module_name].dense())


@pytest.mark.parametrize(
    "name", ["rome", "memit", "emmet", "ft-m", "ft-l", "mend", "ultraedit", "lora"]
)
def test_the_end_of_the_text_is_a_token_of_the_target(tiny, make_editor, requests, name) -> None:
    """It enters the loss of every editor that has one, and settings only where it is asked for."""
    lm = tiny("llama")
    request = requests[0]
    plain, ended = (make_editor(name, lm, **more) for more in ({}, {"eos": True}))
    assert "eos" not in plain.settings()["hyperparameters"]
    assert ended.settings()["hyperparameters"]["eos"] is True
    (without,), (with_end,) = (editor.edit([request]) for editor in (plain, ended))
    losses = [edit.diagnostics["losses"][0]["nll"] for edit in (without, with_end)]
    assert losses[0] != losses[1]


def test_a_targets_predictions_end_with_the_end_of_the_text(tiny, requests) -> None:
    lm = tiny("llama")
    plain, ended = (edit_row(lm, requests[0], eos=eos) for eos in (False, True))
    answer = answer_ids(lm, requests[0].target)
    assert [prediction.token for prediction in plain.target] == list(answer)
    assert [p.token for p in ended.target] == [*answer, lm.tokenizer.eos_token_id]
    assert sum(p.weight for p in ended.target) == pytest.approx(1)
    assert ended.correct == plain.correct
