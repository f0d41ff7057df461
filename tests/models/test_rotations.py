"""Rotary positions as the suite runs them equal transformers' own, forward and gradient."""

from __future__ import annotations

import copy
import sys

import pytest
import torch

from helpers.models.rotations import ATTENTIONS, lean_rotations, rotated


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "gemma3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_and_gradient_equal_those_of_transformers(tiny, architecture, dtype):
    attention = tiny(architecture).network.get_submodule("model.layers.1.self_attn")
    modeling = sys.modules[type(attention).__module__]
    generator = torch.Generator().manual_seed(0)
    states = [torch.randn(2, heads, 5, 8, generator=generator).to(dtype) for heads in (4, 2)]
    # The two halves of an angle differ here, as some scaled positions have it.
    angles = [torch.randn(2, 5, 8, generator=generator).to(dtype) for _ in ("cosine", "sine")]
    outgoing = [torch.randn(state.shape, generator=generator).to(dtype) for state in states]
    results = []
    for rotate in (rotated, modeling.apply_rotary_pos_emb):
        entering = [state.clone().requires_grad_(True) for state in states]
        outputs = rotate(*entering, *angles)
        gradients = torch.autograd.grad(outputs, entering, outgoing)
        results.append((*outputs, *gradients))
    tolerance = {torch.float32: 1e-6, torch.bfloat16: 3e-2}[dtype]
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "gemma3"])
def test_a_network_calls_it_and_other_networks_do_not(tiny, architecture, monkeypatch):
    """Transformers' function stays as it is, for whoever uses it next to the suite."""
    tiny_network = tiny(architecture).network
    attention = tiny_network.get_submodule("model.layers.1.self_attn")
    assert type(attention).__name__ in ATTENTIONS
    network = type(tiny_network)(copy.deepcopy(tiny_network.config))
    other_network = type(tiny_network)(copy.deepcopy(tiny_network.config))
    rotations = []

    def counted(*tensors):
        rotations.append(len(tensors))
        return rotated(*tensors)

    monkeypatch.setattr("helpers.models.rotations.rotated", counted)
    lean_rotations(network)
    for called_network in (network, other_network):
        called_network.set_attn_implementation("eager")
        called_network(torch.tensor([[1, 2, 3]]))
        assert len(rotations) == network.config.num_hidden_layers
