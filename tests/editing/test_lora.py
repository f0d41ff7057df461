"""LoRA: its first step by hand, its modes in a sequence, and its export."""

from __future__ import annotations

import json
from copy import deepcopy

import pytest
import torch

from helpers.bridges.adapter import save_adapter
from helpers.editing.app import App
from helpers.editing.edit import Edit, EditError
from helpers.editing.editors import EDITORS
from helpers.editing.interventions import LowRank
from helpers.editing.lora import Lora, LoraHyperparameters
from helpers.editing.weight_edit import WeightEdit, apply
from helpers.models.tokens import answer_ids, prompt_ids
from tests.editing.conftest import assert_same

SGD = {"lr": 0.1, "alpha": 6.0, "rank": 2}


def first_step_by_hand(lm, editor: Lora, request, module_name: str) -> torch.Tensor:
    """-(alpha / rank) G A^T of one matrix, from transformers and one plain backward pass: dL / dB."""
    weight = lm.module(module_name).weight
    ids = prompt_ids(lm, request.text)
    answer = answer_ids(lm, request.target)
    weight.requires_grad_(True)
    try:
        logits = lm.network(torch.tensor([[*ids, *answer]])).logits[0]
        places = torch.arange(len(ids) - 1, len(ids) + len(answer) - 1)
        loss = -logits.log_softmax(-1)[places, torch.tensor(answer)].mean()
        (gradient,) = torch.autograd.grad(loss, weight)  # G [out, in]
    finally:
        weight.requires_grad_(False)
    begun = editor._factors(editor._begun(editor.rows([request])))
    return editor._scale * gradient @ begun[module_name].a[0].T


def test_the_first_step_is_that_of_the_equation(tiny, make_editor, requests, monkeypatch) -> None:
    """With plain steps in Adam's place B = -lr (alpha / rank) G A^T, since B = 0 leaves A alone."""
    lm = tiny("llama")

    def plain_step(self, parameter, gradient, rate):
        parameter.sub_(gradient, alpha=rate)

    monkeypatch.setattr("helpers.editing.lora.RowAdam.step", plain_step)
    editor = make_editor("lora", lm, matrices=("q", "down"), layers=(1, 2), num_steps=1, **SGD)
    edits = editor.edit(requests)
    for request, edit in zip(requests, edits, strict=True):
        assert len(edit) == 4
        begun = editor._factors(editor._begun(editor.rows([request])))
        for module_name, delta in edit.items():
            expected = -SGD["lr"] * first_step_by_hand(lm, editor, request, module_name)
            torch.testing.assert_close(delta.left / editor._scale, expected, rtol=1e-3, atol=1e-6)
            torch.testing.assert_close(delta.right, begun[module_name].a[0].T)


def test_every_attention_has_its_matrices(tiny, make_editor, requests) -> None:
    """Also those that hold query, key and value in one."""
    for architecture, count in {
        "gpt2": 1,
        "gptj": 2,
        "falcon": 1,
        "gpt_neox": 1,
        "phi3": 1,
    }.items():
        editor = make_editor("lora", tiny(architecture), layers=(0,), num_steps=1)
        (edit,) = editor.edit(requests[:1])
        assert len(edit) == count
        assert all(isinstance(delta, LowRank) for delta in edit.values())


def test_a_batch_draws_each_adapter_from_its_record(tiny, make_editor, requests) -> None:
    editor = make_editor("lora", tiny("llama"))
    together = editor._begun(editor.rows(requests))
    alone = torch.cat([editor._begun(editor.rows([request])) for request in requests])
    assert torch.equal(together, alone)
    assert not torch.equal(together[0], together[1])
    protected = make_editor("lora", tiny("llama"), app=App(1, 1, 1))
    assert torch.equal(protected._begun(protected.rows(requests)), together)


def test_a_sequence_continues_stacks_or_merges(tiny, make_editor, requests) -> None:
    lm = tiny("llama")

    def totals(mode: str) -> list[WeightEdit]:
        return list(make_editor("lora", lm, sequence=mode).edit_sequentially(requests))

    alone = make_editor("lora", lm).edit(requests)
    modes = {mode: totals(mode) for mode in ("continue", "stack", "merge")}
    for of_mode in modes.values():
        assert_same(of_mode[0], alone[0])
    module_name = next(iter(alone[0]))
    ranks = {mode: of_mode[-1][module_name].dense() for mode, of_mode in modes.items()}
    assert {mode: int(torch.linalg.matrix_rank(total)) for mode, total in ranks.items()} == {
        "continue": 2,
        "stack": 6,
        "merge": 6,
    }
    mean = torch.stack([edit[module_name].dense() for edit in alone]).mean(0)
    torch.testing.assert_close(ranks["merge"], mean, rtol=1e-3, atol=1e-5)
    assert modes["merge"][-1].diagnostics["adapters"] == 3


@pytest.mark.parametrize("mode", ["continue", "stack", "merge"])
def test_a_sequence_goes_on_from_a_file(tiny, make_editor, requests, tmp_path, mode) -> None:
    editor = make_editor("lora", tiny("llama"), sequence=mode)
    first, second = list(editor.edit_sequentially(requests[:2]))
    first.save(tmp_path / "edit.safetensors")
    again = editor.edit_on(Edit.load(tmp_path / "edit.safetensors"), requests[1:2])
    assert_same(again, second)


def test_an_edit_of_another_form_is_not_continued(tiny, make_editor, requests) -> None:
    lm = tiny("llama")
    (rome,) = make_editor("rome", lm).edit(requests[:1])
    with pytest.raises(EditError, match=r"continues an adapter of rank 2, .*: use sequence: stack"):
        make_editor("lora", lm).edit_on(rome, requests[1:2])
    stacked = make_editor("lora", lm, sequence="stack").edit_on(rome, requests[1:2])
    assert len(stacked) == 9


def test_peft_reads_it(tiny, make_editor, requests, tmp_path) -> None:
    peft = pytest.importorskip("peft", reason="needs the extra 'peft'")
    from transformers import AutoModelForCausalLM

    lm = tiny("llama")
    (edit,) = make_editor("lora", lm, lr=5e-3).edit(requests[:1])
    save_adapter(lm, edit, tmp_path / "adapter")
    assert json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["r"] == 2
    lm.network.save_pretrained(tmp_path / "model")
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32).eval()
    adapted = peft.PeftModel.from_pretrained(base, tmp_path / "adapter")
    ids = torch.tensor([prompt_ids(lm, requests[0].text)])
    with torch.no_grad(), apply(lm, edit):
        edited = deepcopy(lm.network).double()  # in fp32, processors differ by as much as we allow
    with torch.no_grad():
        torch.testing.assert_close(
            adapted.double()(ids).logits, edited(ids).logits, atol=1e-5, rtol=1e-5
        )


def test_a_matrix_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="matrices"):
        LoraHyperparameters(layers=(1,), num_steps=1, lr=1, matrices=("k",))
    assert EDITORS["lora"].loss
