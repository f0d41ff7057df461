"""How float32 matrices are multiplied on a GPU: exactly, or in TF32 (ten bits of mantissa, much faster).

The choice is the process's, as torch has it: the model that was loaded last decides, and whatever names
a dtype asks here what holds now.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

TF32 = "tf32"
_NAMES = {"highest": "float32", "high": TF32}


def choose_products(dtype: str, device: torch.device) -> None:
    """Multiply in TF32 for a model of dtype ``tf32``, else exactly; CPUs always do the latter."""
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if dtype == TF32 else "highest")


def dtype_name(dtype: torch.dtype, device: torch.device) -> str:
    """The dtype without torch's prefix; ``tf32`` where float32 matrices are multiplied so."""
    if dtype != torch.float32 or device.type != "cuda":
        return str(dtype).removeprefix("torch.")
    precision = torch.get_float32_matmul_precision()
    return _NAMES.get(precision, f"float32-{precision}")


@contextmanager
def exact_products() -> Iterator[None]:
    """Multiply exactly inside, whatever was chosen: for statistics that float32 models share."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
