"""What a model's weights will take, without loading it, and whether that is free."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM

from helpers.models.load import torch_device, torch_dtype
from helpers.models.memory import free_bytes
from helpers.models.packaged_weights import PACKAGED_WEIGHTS, weights_folder
from helpers.models.shapes import SHAPES

_GIB = 2**30


def weight_bytes(model: str, dtype: str) -> int | None:
    """Bytes of a model's weights; None where only a download could tell.

    Batches take what is left beside the weights, so this is a lower bound and nearly all that has
    to fit.

    Args:
        model: a name as ``helpers.models.load`` takes it.
        dtype: torch dtype of the weights.
    """
    count = stored_parameters(_folder(model))
    if count is None:
        count = _shape_parameters(model.removeprefix("shape:").removesuffix("-instruct"))
    return None if count is None else count * torch_dtype(dtype).itemsize


def weights_in_words(model: str, dtype: str) -> str:
    """``weight_bytes`` as a person reads it."""
    size = weight_bytes(model, dtype)
    known = "unknown before it is fetched" if size is None else f"{size / _GIB:.1f} GiB"
    return f"weights in {dtype} {known}"


def memory_in_words(model: str, dtype: str, device: str, *, copies: int = 1) -> str:
    """A model's weights against what this machine has free, and a verdict where that is too little.

    Args:
        model: a name as ``helpers.models.load`` takes it.
        dtype: torch dtype of the weights.
        device: torch device they will be on.
        copies: how many processes load them at once.
    """
    text = weights_in_words(model, dtype) + (f" for each of {copies} workers" * (copies > 1))
    if device.startswith("cuda") and not torch.cuda.is_available():
        return f"{text}; asks for {device}, but torch sees no GPU"
    free = free_bytes(torch_device(device))
    verdict = "; too little" if (weight_bytes(model, dtype) or 0) * copies > free else ""
    return f"{text}, {free / _GIB:.1f} GiB free on {device}{verdict}"


def _folder(model: str) -> Path:
    if model in PACKAGED_WEIGHTS:
        return weights_folder(model)
    return Path(model).expanduser()


def stored_parameters(folder: Path) -> int | None:
    """Parameters in a folder's safetensors files, from their headers."""
    files = sorted(folder.glob("*.safetensors")) if folder.is_dir() else []
    total = 0
    for path in files:
        with safe_open(path, "pt") as file:
            names = list(file.keys())
            total += sum(math.prod(file.get_slice(name).get_shape()) for name in names)
    return total if files else None


def _shape_parameters(shape: str) -> int | None:
    if shape not in SHAPES:
        return None
    config = AutoConfig.for_model(**SHAPES[shape])
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())
