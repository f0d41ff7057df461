"""Gated MLPs as the suite runs them equal transformers' own, forward and gradient."""

from __future__ import annotations

import copy

import pytest
import torch

from helpers.models.mlps import MLPS, lean_mlps


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_and_gradient_equal_those_of_transformers(tiny, architecture, dtype):
    network = tiny(architecture).network
    mlp = copy.deepcopy(network.get_submodule("model.layers.1.mlp")).to(dtype)
    assert type(mlp).__name__ in MLPS
    lean_mlps(torch.nn.ModuleList([mlp]))
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(3, 5, network.config.hidden_size, generator=generator).to(dtype)
    outgoing = torch.randn(states.shape, generator=generator).to(dtype)
    results = []
    for forward in (mlp.forward, type(mlp).forward.__get__(mlp)):
        entering = states.clone().requires_grad_(True)
        output = forward(entering)
        (gradient,) = torch.autograd.grad(output, entering, outgoing)
        results.append((output, gradient))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_only_two_matrices_are_kept_for_the_gradient(tiny):
    mlp = tiny("llama").network.get_submodule("model.layers.1.mlp")
    kept_shapes = []

    def count(kept):
        kept_shapes.append(kept.shape)
        return kept

    states = torch.randn(2, 7, 32, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(count, lambda kept: kept):
        mlp(states)
    assert kept_shapes.count((2, 7, 48)) == 2


def test_a_mlp_with_another_activation_function_stays_as_it_is(tiny):
    mlp = copy.deepcopy(tiny("llama").network.get_submodule("model.layers.1.mlp"))
    del mlp.forward
    mlp.config.hidden_act = "gelu"
    lean_mlps(torch.nn.ModuleList([mlp]))
    assert "forward" not in vars(mlp)
