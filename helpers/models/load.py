"""One entry point from a model name to a ready language model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from helpers.models.architectures import ARCHITECTURES, UnknownArchitectureError
from helpers.models.language_model import LanguageModel
from helpers.models.names import HUB_NAMES, SHAPE_PREFIX
from helpers.models.packaged_weights import PACKAGED_WEIGHTS, prepare
from helpers.models.shapes import SHAPES, random_model
from helpers.models.tiles import TILED

MODEL_NAMES = (*PACKAGED_WEIGHTS, *HUB_NAMES)


class ModelError(ValueError):
    """Raised for a dtype, device or shape that does not exist here, naming those that do."""


def load(
    name: str,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    accept_terms: bool = False,
    seed: int = 0,
) -> LanguageModel:
    """Load a language model by name.

    Args:
        name: a name of ``MODEL_NAMES``, ``shape:<name>`` (random weights of a real shape), a local
            folder, or any name on the Hugging Face hub.
        dtype: torch dtype of the weights; statistics and solves stay fp32/fp64 whatever it is.
        device: torch device.
        accept_terms: acknowledges a packaged model's terms of use.
        seed: for ``shape:`` models.

    Raises:
        ModelError: unknown dtype, device or shape.
        FileNotFoundError: no such model, with the ways to name one.
        UnknownArchitectureError: a model whose architecture is not in the table.
    """
    of_weights = torch_dtype(dtype)
    if torch_device(device).type == "cuda" and not torch.cuda.is_available():
        built = f"torch {torch.__version__}, built for CUDA {torch.version.cuda or 'not at all'}"
        raise ModelError(
            f"device {device!r} was asked for, but {built}, sees no GPU: use 'cpu', or a build that"
            " fits the driver (make TORCH=…)"
        )
    if name.startswith(SHAPE_PREFIX):
        language_model = _random(name, seed=seed, dtype=of_weights, device=device)
    else:
        folder, revision = _resolve(name, accept_terms=accept_terms)
        language_model = _pretrained(name, folder, revision, dtype=of_weights, device=device)
    return _ready(language_model)


def torch_dtype(name: str) -> torch.dtype:
    """The dtype of a name.

    Raises:
        ModelError: torch has none of that name.
    """
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ModelError(f"dtype {name!r} is not a torch dtype, use e.g. 'float32' or 'bfloat16'")
    return dtype


def torch_device(name: str) -> torch.device:
    """The device of a name, whether this machine has it or not.

    Raises:
        ModelError: torch knows none of that name.
    """
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise ModelError(f"device {name!r} is not a torch device, use 'cpu' or 'cuda'") from error


def _random(name: str, *, seed: int, dtype: torch.dtype, device: str) -> LanguageModel:
    shape = name.removeprefix(SHAPE_PREFIX)
    if shape not in SHAPES:
        raise ModelError(f"no shape {shape!r}; known: {', '.join(sorted(SHAPES))}")
    model, tokenizer = random_model(SHAPES[shape], seed=seed, dtype=dtype, device=device)
    return LanguageModel(name, model, tokenizer, revision=f"seed {seed}")


def _resolve(name: str, *, accept_terms: bool) -> tuple[str, str]:
    """Folder or hub name to load from, and the revision to record."""
    if name in PACKAGED_WEIGHTS:
        return str(prepare(name, accept_terms=accept_terms)), PACKAGED_WEIGHTS[name].sha256[:12]
    if Path(name).expanduser().is_dir():
        return str(Path(name).expanduser()), "local folder"
    return HUB_NAMES.get(name, name), ""


def _pretrained(
    name: str, source: str, revision: str, *, dtype: torch.dtype, device: str
) -> LanguageModel:
    try:
        # Nothing that comes with a model is executed: safetensors only, transformers' own code only.
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        with _without_progress_bar():
            model = AutoModelForCausalLM.from_pretrained(
                source, dtype=dtype, use_safetensors=True, trust_remote_code=False
            )
    except OSError as error:
        raise FileNotFoundError(
            f"no model {name!r}: give one of {', '.join(MODEL_NAMES)}, shape:<name>, a local folder with"
            f" config.json and safetensors, or a hub name this machine can reach ({error})"
        ) from error
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
        raise UnknownArchitectureError(
            f"{name} brings code of its own, which is never executed here; use a model of one of the"
            f" architectures {', '.join(ARCHITECTURES)}"
        ) from error
    revision = revision or str(getattr(model.config, "_commit_hash", None) or "unknown")
    return LanguageModel(name, model.to(device), tokenizer, revision=revision)


@contextmanager
def _without_progress_bar() -> Iterator[None]:
    """Loading a model prints nothing, so that executed notebooks stay readable."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()


def avoid_cudnn_attention(device: torch.device) -> None:
    """Leave attention on a GPU to torch's other kernels.

    cuDNN plans it anew for every shape, and packed batches rarely repeat one; in half precision its
    gradients under a mask were not always numbers.
    """
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)


def _ready(language_model: LanguageModel) -> LanguageModel:
    """Freeze, switch to evaluation, pad right, choose the attention path."""
    model, tokenizer = language_model.model, language_model.tokenizer
    eager = language_model.layout.architecture.eager_only
    model.set_attn_implementation("eager" if eager else TILED)
    avoid_cudnn_attention(language_model.device)
    model.requires_grad_(False)
    model.eval()
    tokenizer.padding_side = "right"
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return language_model
