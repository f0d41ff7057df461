"""Every architecture's table entry is right; names that do not exist give errors with a remedy."""

from __future__ import annotations

import pytest
import torch

from helpers import models
from helpers.models import ARCHITECTURES
from helpers.models.architectures import ModelError
from helpers.models.weights import prepare

NAMES = ["gpt2", "gptj", "llama", "qwen2", "mistral", "gemma3"]
NAMES += ["qwen3", "olmo2", "gpt_neox", "falcon"]


@pytest.mark.parametrize("name", NAMES)
def test_layout_names_the_mlp_matrices(tiny, name):
    language_model = tiny(name)
    layout = language_model.layout
    assert (layout.blocks, layout.hidden_size, layout.intermediate_size) == (4, 32, 48)
    assert language_model.weight(layout.mlp_out(3)).shape == (32, 48)
    for module in layout.mlp_in(0):
        assert language_model.weight(module).shape == (48, 32)
    for place in (layout.block(1), layout.mlp(1), layout.gate(1), layout.architecture.final_norm):
        assert language_model.module(place) is not None
    head = language_model.model.get_output_embeddings()
    assert head is language_model.module(layout.architecture.head)
    embedding = language_model.model.get_input_embeddings()
    assert embedding is language_model.module(layout.architecture.embedding)


def test_a_fused_gate_is_no_gate(tiny):
    layout = tiny("phi3").layout
    assert tiny("phi3").weight(layout.mlp_in(0)[0]).shape == (2 * 48, 32)
    with pytest.raises(ModelError, match="attribute them at 'activation'"):
        layout.gate(1)


@pytest.mark.parametrize("name", [*NAMES, "phi3"])
def test_weights_are_frozen(tiny, name):
    language_model = tiny(name)
    assert not any(p.requires_grad for p in language_model.model.parameters())
    assert not language_model.model.training


def test_fingerprint_tells_weights_apart(tiny):
    assert tiny("llama").fingerprint != tiny("llama", 1).fingerprint
    assert tiny("llama").fingerprint == tiny("llama").fingerprint


def test_layer_outside_the_model(tiny):
    with pytest.raises(ValueError, match="4 blocks"):
        tiny("gpt2").layout.mlp_out(4)


def test_unknown_architecture_names_the_table(tmp_path, tiny):
    from transformers import OPTConfig, OPTForCausalLM

    config = OPTConfig(
        hidden_size=16, ffn_dim=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=257
    )
    OPTForCausalLM(config).save_pretrained(tmp_path)
    tiny("llama").tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"ARCHITECTURES in helpers/models"):
        models.load(str(tmp_path))


def test_local_folder_round_trip(tmp_path, tiny):
    language_model = tiny("llama")
    language_model.model.save_pretrained(tmp_path)
    language_model.tokenizer.save_pretrained(tmp_path)
    again = models.load(str(tmp_path))
    assert again.fingerprint == language_model.fingerprint
    ids = torch.arange(10)[None]
    torch.testing.assert_close(again.model(ids).logits, language_model.model(ids).logits)


def test_bad_names(monkeypatch, tmp_path):
    with pytest.raises(ModelError, match="local folder"):
        models.load("no-such/model")
    with pytest.raises(ValueError, match="known: "):
        models.load("shape:no-such")
    with pytest.raises(ValueError, match="dtype"):
        models.load("smollm2-135m", dtype="float33")
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="accept_terms"):
        prepare("gemma3-270m")


def test_shape_model_is_random_but_real_sized():
    language_model = models.load("shape:smollm2-135m", seed=3)
    layout = language_model.layout
    assert (layout.blocks, layout.hidden_size, layout.intermediate_size) == (30, 576, 1536)
    assert language_model.model.config.vocab_size == 49152


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
def test_every_entry_has_a_slot_for_the_block(architecture):
    entry = ARCHITECTURES[architecture]
    for name in (entry.block, entry.mlp, entry.mlp_out, *entry.mlp_in):
        assert name.count("{}") == 1
