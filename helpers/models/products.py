"""Products of a float32 model's matrices from factors rounded to bf16: no second copy of the weights.

Sums stay in float32, and so does all else: attention, norms, deltas, statistics and solves. The processor
must have instructions for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from helpers.models.architectures import ModelError

BF16_PRODUCTS = "bf16-products"  # among the dtypes; weights are float32
_EXACT = ContextVar("exact_products", default=False)


def check_bf16_products(device: str) -> None:
    """Refuse a GPU, whose float32 products torch rounds in another way, and a CPU that lacks them."""
    if device != "cpu":
        raise ModelError(f"dtype {BF16_PRODUCTS!r} is for CPUs: take 'bfloat16' on {device}")
    if not torch.cpu.get_capabilities().get("avx512_bf16", True):
        raise ModelError(f"this processor has no {BF16_PRODUCTS}: take dtype 'float32'")


def with_bf16_products(network: nn.Module) -> None:
    """Give a network's linear modules such products, forward and backward, for as long as it lives."""
    for module in network.modules():
        if isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D":  # GPT-2's
            module.forward = partial(_linear, module)


def _linear(module: nn.Module, states: Tensor) -> Tensor:
    """The module's output; by its own forward where it is being trained."""
    if any(parameter.requires_grad for parameter in module.parameters(recurse=False)):
        output: Tensor = type(module).forward(module, states)
        return output
    weight = module.get_parameter("weight")
    matrix = weight.T if type(module).__name__ == "Conv1D" else weight  # [out, in]
    return _Linear.apply(states, matrix, getattr(module, "bias", None))


class _Linear(torch.autograd.Function):
    """States [..., in] times a matrix [out, in], and a bias [out] or None."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(matrix)
        with _rounded_factors():
            return nn.functional.linear(states, matrix, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (matrix,) = ctx.saved_tensors
        with _rounded_factors():
            return gradients[0] @ matrix, None, None


@contextmanager
def exact_products() -> Iterator[None]:
    """Products of float32 inside the block, for what is kept for every model with the same weights."""
    token = _EXACT.set(True)
    try:
        yield
    finally:
        _EXACT.reset(token)


@contextmanager
def _rounded_factors() -> Iterator[None]:
    products = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    precision = products.fp32_precision
    products.fp32_precision = precision if _EXACT.get() else "bf16"
    try:
        yield
    finally:
        products.fp32_precision = precision
