"""Checkpoints whose weights are codes of four or eight bits: which become numbers, and what that takes.

An edit is added to numbers. Codes are turned into them only where this is asked for, since the model then
takes the memory of its numbers. From there on it is an ordinary one: its fingerprint is that of the
weights in memory, and it is saved as numbers.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from helpers.models.architectures import ModelError
from helpers.models.weights import outline_of_config

_GB = 1e9
# By the name of a format that transformers turns into numbers: the package that this needs, if any.
_FORMATS = {
    "fp8": "",
    "mxfp8": "",
    "compressed-tensors": "compressed-tensors",
    "bitsandbytes": "bitsandbytes",
}
_WHEN_LOADED = frozenset(
    {"bitsandbytes"}
)  # become numbers once loaded; the others, while they load


def code_format(config: PreTrainedConfig) -> str:
    """The format that a checkpoint's weights are codes of; empty where they are numbers."""
    settings = getattr(config, "quantization_config", None)
    if not settings:
        return ""
    if settings.get("load_in_4bit") or settings.get("load_in_8bit"):
        return "bitsandbytes"  # whose older files do not name it
    return str(settings.get("quant_method", "an unnamed format"))


def check_codes(name: str, config: PreTrainedConfig, dtype: torch.dtype, dequantise: bool) -> None:
    """Refuse codes, unless they are to become numbers and can: a ModelError, before weights are read."""
    format_name = code_format(config)
    if not format_name:
        return
    stored = f"{name} stores weights as codes of {format_name}"
    if format_name not in _FORMATS:
        raise ModelError(
            f"{stored}, which transformers does not turn into numbers: take the model in floating point"
        )
    if not dequantise:
        parameter_count = outline_of_config(config).num_parameters()
        gigabytes = parameter_count * dtype.itemsize / _GB
        raise ModelError(
            f"{stored}, to which no edit can be added: load it with dequantise, as numbers that take"
            f" {gigabytes:.1f} GB of memory in {str(dtype).removeprefix('torch.')}"
        )
    package = _FORMATS[format_name]
    if package and find_spec(package.replace("-", "_")) is None:
        raise ModelError(f"{stored}, which take {package} to be read: pip install {package}")


def with_numbers_asked_for(config: PreTrainedConfig) -> PreTrainedConfig:
    """The configuration, by which transformers turns codes into numbers while it loads, where it can."""
    if code_format(config) not in ("", *_WHEN_LOADED):
        config.quantization_config = {**config.quantization_config, "dequantize": True}
    return config


def in_numbers(network: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """A network that was loaded from codes, all its weights numbers of one type."""
    if getattr(network, "is_quantized", False):
        network = network.dequantize(dtype)
    network._weight_conversions = None  # by which transformers would save numbers as codes again
    return network.to(dtype)
