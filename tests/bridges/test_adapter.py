"""An edit of weights in PEFT's format gives plain transformers and peft the edited model's logits."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from helpers.bridges.adapter import save_adapter
from helpers.editing.edit import EditError
from helpers.editing.in_context import ContextEdit
from helpers.editing.interventions import Dense, LowRank, Masked
from helpers.editing.weight_edit import WeightEdit, apply

ARCHITECTURES = ["gpt2", "gptj", "llama", "gemma3", "gpt_neox", "falcon", "phi3"]
IDS = torch.tensor([[72, 101, 108, 108, 111, 32, 119, 111]])


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return 0.1 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def unequal_ranks(lm) -> WeightEdit:
    """Rank one at two layers, rank three at another and at a matrix that reads the stream."""
    layout = lm.layout
    d, f = layout.hidden_size, layout.intermediate_size
    first = layout.mlp_in(1)[0]
    out_features, in_features = lm.weight(first).shape
    return WeightEdit(
        {
            layout.mlp_out(0): LowRank(normal(d, 1), normal(f, 1, seed=1)),
            layout.mlp_out(1): LowRank(normal(d, 3), normal(f, 3, seed=2)),
            layout.mlp_out(3): LowRank(normal(d, 1), normal(f, 1, seed=3)),
            first: LowRank(normal(out_features, 3), normal(in_features, 3, seed=4)),
        }
    )


@torch.no_grad()
def logits(network) -> torch.Tensor:
    return network(IDS).logits


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_peft_gives_the_edited_models_logits(tiny, tmp_path, architecture):
    peft = pytest.importorskip("peft", reason="needs the extra 'peft'")
    from transformers import AutoModelForCausalLM

    lm = tiny(architecture)
    edit = unequal_ranks(lm)
    errors = save_adapter(lm, edit, tmp_path / "adapter")
    assert set(errors) == set(edit)
    assert max(errors.values()) <= 1e-6
    lm.network.save_pretrained(tmp_path / "model")
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32).eval()
    unedited = logits(base)
    adapted = peft.PeftModel.from_pretrained(base, tmp_path / "adapter")
    with apply(lm, edit):
        expected = logits(lm.network)
    torch.testing.assert_close(logits(adapted), expected, atol=1e-5, rtol=1e-5)
    assert (expected - unedited).abs().max() > 1e-2
    merged = adapted.merge_and_unload()
    torch.testing.assert_close(logits(merged), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_the_files_are_what_pefts_format_says(tiny, tmp_path, architecture):
    lm = tiny(architecture)
    edit = unequal_ranks(lm)
    save_adapter(lm, edit, tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text("utf-8"))
    assert (config["peft_type"], config["task_type"]) == ("LORA", "CAUSAL_LM")
    assert config["r"] == config["lora_alpha"]
    ranks = {name: config["rank_pattern"].get(name, config["r"]) for name in edit}
    assert list(ranks.values()) == [1, 3, 1, 3]
    assert config["alpha_pattern"] == config["rank_pattern"]
    assert config["target_modules"] == sorted(edit)
    assert config["fan_in_fan_out"] is (architecture == "gpt2")
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    for name, delta in edit.items():
        lora_a = tensors.pop(f"base_model.model.{name}.lora_A.weight")
        lora_b = tensors.pop(f"base_model.model.{name}.lora_B.weight")
        out_features, in_features = delta.shape
        assert lora_a.shape == (ranks[name], in_features)
        assert lora_b.shape == (out_features, ranks[name])
        torch.testing.assert_close(lora_b @ lora_a, delta.dense(), atol=1e-6, rtol=1e-5)
    assert tensors == {}


def test_a_truncated_delta_has_the_error_that_is_stated(tiny, tmp_path):
    """Singular values 1, 0.1 and 0.01 in known directions: the ranks that are kept follow on paper."""
    lm = tiny("llama")
    name = lm.layout.mlp_out(1)
    left = torch.eye(32)[:, :3] * torch.tensor([1.0, 0.1, 0.01])
    delta = LowRank(left, torch.eye(48)[:, :3])
    norm = (1 + 0.1**2 + 0.01**2) ** 0.5
    expected = {1e-6: 0.0, 0.05: 0.01 / norm, 0.2: (0.1**2 + 0.01**2) ** 0.5 / norm}
    for same_delta in (delta, Dense(delta.dense())):
        for rank, (tolerance, error) in zip((3, 2, 1), expected.items(), strict=True):
            errors = save_adapter(lm, WeightEdit({name: same_delta}), tmp_path, tolerance=tolerance)
            tensors = load_file(tmp_path / "adapter_model.safetensors")
            lora_a = tensors[f"base_model.model.{name}.lora_A.weight"]
            lora_b = tensors[f"base_model.model.{name}.lora_B.weight"]
            assert len(lora_a) == rank
            assert errors[name] == pytest.approx(error, abs=1e-7)
            missed = float((lora_b @ lora_a - delta.dense()).norm() / delta.dense().norm())
            assert missed == pytest.approx(error, abs=1e-6)


def test_ranks_that_repeat_each_other_are_stored_once(tiny, tmp_path):
    lm = tiny("llama")
    name = lm.layout.mlp_out(1)
    delta = LowRank(normal(32, 1), normal(48, 1, seed=1))
    twice = WeightEdit({name: delta.plus(delta)})
    save_adapter(lm, twice, tmp_path)
    assert json.loads((tmp_path / "adapter_config.json").read_text("utf-8"))["r"] == 1


@pytest.mark.parametrize(
    ("deltas", "message"),
    [
        (lambda: Dense(normal(32, 48)), r"no low-rank form, 32 ranks of 32 are needed .* 1e-06"),
        (
            lambda: Masked.from_mask(
                LowRank(normal(32, 1), normal(48, 1)), normal(32, 48, seed=5) > 0
            ),
            "no low-rank form",
        ),
        (lambda: Dense(normal(32, 48), normal(32)), "changes a bias, which a LoRA adapter does"),
    ],
)
def test_what_has_no_adapter_is_refused_before_anything_is_written(tiny, tmp_path, deltas, message):
    lm = tiny("gpt2")  # whose matrices have biases
    edit = WeightEdit({lm.layout.mlp_out(1): deltas()})
    with pytest.raises(EditError, match=message) as caught:
        save_adapter(lm, edit, tmp_path / "adapter")
    assert len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "adapter").exists()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (ContextEdit("So it is. "), "takes an edit of weights alone, not a context edit"),
        (WeightEdit({}), "changes no weight"),
        (WeightEdit({"nowhere": LowRank(normal(2, 1), normal(3, 1))}), "made for another model"),
    ],
)
def test_what_changes_no_weight_of_the_model_is_refused(tiny, tmp_path, edit, message):
    with pytest.raises(EditError, match=message):
        save_adapter(tiny("llama"), edit, tmp_path)
