"""What a session has set in torch and NumPy, set aside while the package works.

A notebook may have gradients switched off, another default type or device, mixed precision, products of
fewer digits, or NumPy's rounding to 0 as an error. An edit needs gradients of its own, and all results
are to be the same: what computes runs in ``own_state``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
import torch

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@contextmanager
def own_state() -> Iterator[None]:
    """Torch and NumPy as they are when just imported; the session's settings come back after the block."""
    default_dtype = torch.get_default_dtype()
    with ExitStack() as stack:
        stack.enter_context(np.errstate(all="warn", under="ignore"))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        if default_dtype != torch.float32:
            torch.set_default_dtype(torch.float32)
            stack.callback(torch.set_default_dtype, default_dtype)
        cpu_products = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
        for products in (torch.backends.cuda.matmul, cpu_products):
            precision = products.fp32_precision
            if precision != "ieee":  # TF32, bfloat16, or another's
                products.fp32_precision = "ieee"
                stack.callback(setattr, products, "fp32_precision", precision)
        yield


def in_own_state(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function, run in ``own_state``; an iterator that it returns computes each item there."""

    @wraps(function)
    def run(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        with own_state():
            result = function(*arguments, **options)
        return cast(Result, _stepped(result)) if isinstance(result, Iterator) else result

    return run


def _stepped(items: Iterator[Any]) -> Iterator[Any]:
    # Between two items the caller's code runs, in the caller's state.
    end = object()
    while True:
        with own_state():
            item = next(items, end)
        if item is end:
            return
        yield item
