"""Rotary positions in a third of the kernels: the same formula, with its gradient written out.

A sum of two products is rounded once here, twice there.

With the halves x1 and x2 of a head's vector, and c and s the cosines and sines of its position:

    y1 = x1 c1 - x2 s1,  y2 = x2 c2 + x1 s2;  dx1 = dy1 c1 + dy2 s2,  dx2 = dy2 c2 - dy1 s1

Transformers puts the halves together anew for that, and torch fills a matrix of zeros for the gradient of
each cut.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

# Classes of transformers that rotate as Llama does; that of OLMo 2 rounds in another order.
ATTENTIONS = (
    "Gemma3Attention",
    "LlamaAttention",
    "MistralAttention",
    "Qwen2Attention",
    "Qwen3Attention",
)


def lean_rotations(network: nn.Module) -> None:
    """Let all ``ATTENTIONS`` in a network rotate by this module, for as long as it lives."""
    for module in network.modules():
        if type(module).__name__ in ATTENTIONS:
            module.forward = MethodType(_with_rotation(type(module).forward), module)


def _with_rotation(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Transformers' own forward, in which the name ``apply_rotary_pos_emb`` means ``rotated``.

    To replace the function in its module would change other networks too.
    """
    function = FunctionType(
        forward.__code__,
        {**forward.__globals__, "apply_rotary_pos_emb": rotated},
        argdefs=forward.__defaults__,
    )
    function.__kwdefaults__ = forward.__kwdefaults__
    return function


def rotated(query: Tensor, key: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys [rows, heads, tokens, size], rotated by cosines and sines [rows, tokens, size]."""
    cosine_of_heads = cosine.unsqueeze(1)
    sine_of_heads = sine.unsqueeze(1)
    return (
        _Rotation.apply(query, cosine_of_heads, sine_of_heads),
        _Rotation.apply(key, cosine_of_heads, sine_of_heads),
    )


class _Rotation(torch.autograd.Function):
    """Vectors [rows, heads, tokens, size] by cosines and sines [rows, 1, tokens, size]."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        ctx.save_for_backward(cosine, sine)
        first, second = states.chunk(2, dim=-1)
        sine_first, sine_second = sine.chunk(2, dim=-1)
        output = states * cosine
        output_first, output_second = output.chunk(2, dim=-1)
        output_first.addcmul_(second, sine_first, value=-1)
        output_second.addcmul_(first, sine_second)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cosine, sine = ctx.saved_tensors
        first, second = gradients[0].chunk(2, dim=-1)
        sine_first, sine_second = sine.chunk(2, dim=-1)
        output = gradients[0] * cosine
        output_first, output_second = output.chunk(2, dim=-1)
        output_first.addcmul_(second, sine_second)
        output_second.addcmul_(first, sine_first, value=-1)
        return output, None, None
