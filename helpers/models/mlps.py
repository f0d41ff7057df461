"""Gated MLPs that keep two matrices for the gradient, not three: the same formula, its gradient written out.

    y = W_down a,  a = silu(g) * u;  du = da * silu(g),  dg = da * u * silu'(g)

Here g = W_gate x and u = W_up x. What the activation function gave is found again for the gradient.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

# Classes of transformers whose forward is Llama's.
MLPS = ("LlamaMLP", "MistralMLP", "Qwen2MLP", "Qwen3MLP")


def lean_mlps(network: nn.Module) -> None:
    """Give all ``MLPS`` in a network this module's forward, for as long as it lives."""
    mlps: list[Any] = [module for module in network.modules() if type(module).__name__ in MLPS]
    for mlp in mlps:
        if mlp.config.hidden_act == "silu":
            mlp.forward = partial(_mlp_output, mlp)


def _mlp_output(mlp: Any, states: Tensor) -> Tensor:
    """The MLP's output, by its own matrices, whose hooks see what they always do."""
    output: Tensor = mlp.down_proj(_Gated.apply(mlp.gate_proj(states), mlp.up_proj(states)))
    return output


class _Gated(torch.autograd.Function):
    """silu(gate) * up, each [..., intermediate]."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return nn.functional.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        up_gradient = nn.functional.silu(gate).mul_(gradients[0])
        gate_gradient = torch.ops.aten.silu_backward(gradients[0] * up, gate)
        return gate_gradient, up_gradient
