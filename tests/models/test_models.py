"""Every architecture's table entry is right."""

from __future__ import annotations

import pytest

NAMES = ["gpt2", "gptj", "llama", "qwen2", "mistral", "gemma3"]
NAMES += ["qwen3", "olmo2", "gpt_neox", "falcon", "phi3"]


@pytest.mark.parametrize("name", NAMES)
def test_layout_names_the_mlp_matrices(tiny, name):
    language_model = tiny(name)
    layout = language_model.layout
    assert (layout.blocks, layout.hidden_size, layout.intermediate_size) == (4, 32, 48)
    assert language_model.weight(layout.mlp_out(3)).shape == (32, 48)
    fused = layout.architecture.fused_gate
    for module in layout.mlp_in(0):
        assert language_model.weight(module).shape == (48 * (1 + fused), 32)
    for place in (layout.block(1), layout.mlp(1), layout.architecture.final_norm):
        assert language_model.module(place) is not None
    head = language_model.model.get_output_embeddings()
    assert head is language_model.module(layout.architecture.head)
    embedding = language_model.model.get_input_embeddings()
    assert embedding is language_model.module(layout.architecture.embedding)
    assert not any(p.requires_grad for p in language_model.model.parameters())
    assert not language_model.model.training
