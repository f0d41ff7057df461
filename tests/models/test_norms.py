"""Norms as the suite runs them equal transformers' own, forward and gradient."""

from __future__ import annotations

import pytest
import torch

from helpers.models.norms import NORMS, lean_norms


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_and_gradient_equal_those_of_transformers(tiny, architecture, dtype):
    network = tiny(architecture).network
    norm = network.get_submodule("model.layers.1.input_layernorm")
    assert type(norm).__name__ in NORMS
    generator = torch.Generator().manual_seed(0)
    weight = torch.rand(norm.weight.shape, generator=generator) + 0.5
    trained = type(norm)(len(weight), eps=1e-3).requires_grad_(False).to(dtype)
    trained.weight.copy_(weight)
    lean = type(norm)(len(weight), eps=1e-3).requires_grad_(False).to(dtype)
    lean.weight.copy_(weight)
    holder = torch.nn.ModuleList([lean])
    lean_norms(holder)
    states = torch.randn(3, 5, len(weight), generator=generator).to(dtype)
    outgoing = torch.randn(states.shape, generator=generator).to(dtype)
    results = []
    for module in (lean, trained):
        entering = states.clone().requires_grad_(True)
        output = module(entering)
        (gradient,) = torch.autograd.grad((output * outgoing).sum(), entering)
        results.append((output, gradient))
    tolerance = {torch.float32: 1e-6, torch.bfloat16: 2e-2}[dtype]
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def test_a_weight_that_is_trained_gets_its_gradient(tiny):
    norm = tiny("llama").network.get_submodule("model.norm")
    lean = type(norm)(8)
    lean_norms(torch.nn.ModuleList([lean]))
    lean(torch.randn(2, 8)).sum().backward()
    assert lean.weight.grad is not None


def test_in_fp64_it_is_transformers_own(tiny):
    norm = tiny("llama").network.get_submodule("model.norm")
    lean = type(norm)(8).requires_grad_(False).double()
    states = torch.randn(2, 8, dtype=torch.float64)
    expected = lean(states)
    lean_norms(torch.nn.ModuleList([lean]))
    assert torch.equal(lean(states), expected)
