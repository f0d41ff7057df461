"""Llama's norm in half as many kernels: the same formula, with its gradient written out.

    y = w * u,  u = x * s,  s = (mean(x^2) + eps)^(-1/2);  dx = s * (w dy - u * mean(u * w dy))

Torch differentiates each step of the former by itself.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

# Classes of transformers whose forward is Llama's; those of Gemma and OLMo 2 round in another order.
NORMS = ("LlamaRMSNorm", "MistralRMSNorm", "Phi3RMSNorm", "Qwen2RMSNorm", "Qwen3RMSNorm")


def lean_norms(network: nn.Module) -> None:
    """Give all norms of ``NORMS`` in a network this module's forward, for as long as it lives."""
    for module in network.modules():
        if type(module).__name__ in NORMS:
            device = module.get_parameter("weight").device
            epsilon = torch.tensor(module.variance_epsilon, device=device)
            module.forward = partial(_normed, module, epsilon)


def _normed(norm: nn.Module, epsilon: Tensor, states: Tensor) -> Tensor:
    """The norm's output; by its own forward where its weight is trained, and in fp64, where digits differ."""
    weight = norm.get_parameter("weight")
    if weight.requires_grad or states.dtype == torch.float64:
        output: Tensor = type(norm).forward(norm, states)
        return output
    return _RmsNorm.apply(states, weight, epsilon.to(states.device))


class _RmsNorm(torch.autograd.Function):
    """States [..., size] and the norm's weight [size]; in fp32, rounded to their type before the weight."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, epsilon: Tensor) -> Tensor:
        wide_states = states.float()
        length = torch.linalg.vector_norm(wide_states, dim=-1, keepdim=True)
        scale = torch.addcmul(epsilon, length, length, value=1 / states.shape[-1]).rsqrt_()
        unit = (wide_states * scale).to(states.dtype)
        ctx.save_for_backward(unit, scale, weight)
        return weight * unit

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        unit, scale, weight = ctx.saved_tensors
        unit_gradient = (gradients[0] * weight).float()
        gradient_along_unit = (unit_gradient * unit).sum(-1, keepdim=True)
        state_gradient = torch.addcmul(
            unit_gradient, unit, gradient_along_unit, value=-1 / unit.shape[-1]
        )
        return state_gradient.mul_(scale).to(unit.dtype), None, None
