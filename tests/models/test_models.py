"""Every architecture's table entry is right."""

from __future__ import annotations

import pytest

from tests.conftest import FURTHER

NAMES = ["gpt2", "gptj", "llama", "qwen2", "mistral", "gemma3"]
NAMES += FURTHER


@pytest.mark.parametrize("name", NAMES)
def test_layout_names_the_mlp_matrices(tiny, name):
    model = tiny(name)
    layout = model.layout
    assert (layout.blocks, layout.hidden_size, layout.intermediate_size) == (4, 32, 48)
    assert model.weight(layout.mlp_out(3)).shape == (32, 48)
    fused = layout.architecture.fused_gate
    for module in layout.mlp_in(0):
        assert model.weight(module).shape == (48 * (1 + fused), 32)
    for place in (layout.block(1), layout.mlp(1), layout.architecture.final_norm):
        assert model.module(place) is not None
    head = model.network.get_output_embeddings()
    assert head is model.module(layout.architecture.head)
    embedding = model.network.get_input_embeddings()
    assert embedding is model.module(layout.architecture.embedding)
    assert not any(p.requires_grad for p in model.network.parameters())
    assert not model.network.training
