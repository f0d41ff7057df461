"""One entry point from a model name to a ready language model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from helpers.models.agreement import check_agreement, own_scores
from helpers.models.architectures import (
    ARCHITECTURES,
    ModelError,
    UnknownArchitectureError,
    architecture_of,
)
from helpers.models.batching import out_of_memory
from helpers.models.language_model import LanguageModel
from helpers.models.names import EMBEDDED_NAMES, HUB_NAMES, SHAPE_PREFIX, SHAPE_TOKENIZER
from helpers.models.packaged_weights import PACKAGED_WEIGHTS, prepare
from helpers.models.precision import TF32, choose_products
from helpers.models.shapes import SHAPES, random_model, words_tokenizer
from helpers.models.tiles import TILED

MODEL_NAMES = (*PACKAGED_WEIGHTS, *HUB_NAMES)
_DTYPES = ("float32", "bfloat16", "float16", "float64", TF32)
_DEVICES = ("cpu", "cuda")
_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_NO_SAFETENSORS = "file named model.safetensors|Can't load the model for"  # transformers' words
_NUMBERS = ("F64", "F32", "F16", "BF16")  # of safetensors
_LONGEST_CAUSE = 300  # characters
_WAYS = (
    f"one of {', '.join(MODEL_NAMES)}, shape:<name>, a local folder with config.json and safetensors,"
    " or a hub name, ORG/NAME, that this machine can reach"
)


class NoModelError(ModelError, FileNotFoundError):
    """Raised for a name behind which there is no model, with the ways to name one."""


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
            folder, or any name on the Hugging Face hub; those of the embedded models are these.
        dtype: torch dtype of the weights, or ``tf32``: float32 whose products a GPU makes in TF32, for
            all models of the process. Statistics and solves stay fp32/fp64 whatever it is.
        device: torch device.
        accept_terms: acknowledges a packaged model's terms of use.
        seed: for ``shape:`` models.

    Raises:
        ModelError: unknown dtype, device or shape; ``tf32`` on a CPU.
        NoModelError: no such model, with the ways to name one.
        UnknownArchitectureError: a model whose architecture is not in the table.
    """
    name = EMBEDDED_NAMES.get(name, name)
    of_weights = torch_dtype(dtype)
    check_device(device)
    if dtype == TF32 and torch_device(device).type != "cuda":
        raise ModelError("dtype 'tf32' is for GPUs, use 'float32' on a CPU")
    choose_products(dtype, torch_device(device))
    source = model_source(name)
    if name.startswith(SHAPE_PREFIX):
        language_model = _random(name, seed=seed, dtype=of_weights, device=device)
    else:
        folder, revision = _resolve(source, accept_terms=accept_terms)
        language_model = _pretrained(name, folder, revision, dtype=of_weights, device=device)
    return _ready(language_model)


def torch_dtype(name: str) -> torch.dtype:
    """The dtype of a name.

    Raises:
        ModelError: weights cannot have it.
    """
    if name not in _DTYPES:
        raise ModelError(
            f"dtype {name!r} is not a torch dtype that weights can have here, use one of"
            f" {', '.join(_DTYPES)}"
        )
    dtype = torch.float32 if name == TF32 else getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def torch_device(name: str) -> torch.device:
    """The device of a name, whether this machine has it or not.

    Raises:
        ModelError: torch knows none of that name.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ModelError(f"device {name!r} is not a torch device, use 'cpu' or 'cuda'") from error
    if device.type not in _DEVICES:  # MPS has no float64, "meta" no values
        raise ModelError(f"device {name!r} computes nothing here, use 'cpu' or 'cuda'")
    return device


def check_device(name: str) -> None:
    """Refuse a device that this machine has not.

    Raises:
        ModelError: naming torch's build, on which it also depends.
    """
    if torch_device(name).type == "cuda" and not torch.cuda.is_available():
        built = f"torch {torch.__version__}, built for CUDA {torch.version.cuda or 'not at all'}"
        raise ModelError(
            f"device {name!r} was asked for, but {built}, sees no GPU: use 'cpu', or a build that"
            " fits the driver (make TORCH=…)"
        )


def model_source(name: str) -> str:
    """Where a model's weights come from: its packaged or shape's name, a folder, or a hub name.

    Raises:
        NoModelError: the name is none of these, with the ways to name one.
        ModelError: a shape that is not known, or a folder with an adapter.
    """
    shape = name.removeprefix(SHAPE_PREFIX)
    if shape != name:
        if shape not in SHAPES:
            raise ModelError(f"no shape {shape!r}; known: {', '.join(sorted(SHAPES))}")
        return name
    folder = Path(name).expanduser()
    if name and (
        adapters := [*folder.glob("adapter_config.json"), *folder.glob("*/adapter_config.json")]
    ):
        raise ModelError(
            f"{adapters[0].parent} holds an adapter, which is not applied here: merge it into its base"
            " model (peft's merge_and_unload) and save that, or move it away"
        )
    if name in PACKAGED_WEIGHTS or (name and (folder / "config.json").is_file()):
        return name
    if name and folder.is_dir():
        raise NoModelError(f"no model in {folder}: it has no config.json")
    hub_name = HUB_NAMES.get(name, name)
    if not _HUB_NAME.fullmatch(hub_name):
        raise NoModelError(f"no model {name!r}: give {_WAYS}")
    return hub_name


def _random(name: str, *, seed: int, dtype: torch.dtype, device: str) -> LanguageModel:
    shape = SHAPES[name.removeprefix(SHAPE_PREFIX)]
    words = words_tokenizer(prepare(SHAPE_TOKENIZER), shape["vocab_size"])
    model, tokenizer = random_model(shape, seed=seed, dtype=dtype, device=device, tokenizer=words)
    return LanguageModel(name, model, tokenizer, revision=f"seed {seed}")


def _resolve(source: str, *, accept_terms: bool) -> tuple[str, str]:
    """Folder or hub name to load from, and the revision to record."""
    if source in PACKAGED_WEIGHTS:
        return str(prepare(source, accept_terms=accept_terms)), PACKAGED_WEIGHTS[source].sha256[:12]
    folder = Path(source).expanduser()
    return (str(folder), "local folder") if folder.is_dir() else (source, "")


def _pretrained(
    name: str, source: str, revision: str, *, dtype: torch.dtype, device: str
) -> LanguageModel:
    # Nothing that comes with a model is executed: safetensors only, transformers' own code only.
    with reading_checkpoint(name, source), _without_progress_bar():
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
        architecture_of(config)  # before anything large is fetched
        if codes := getattr(config, "quantization_config", None):
            raise _no_numbers(name, str(dict(codes).get("quant_method", "quantised")))
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        model, report = AutoModelForCausalLM.from_pretrained(
            source,
            config=config,
            dtype=dtype,
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # named below, with what is missing
            output_loading_info=True,
            trust_remote_code=False,
            **_placed(device),
        )
        _check_numbers(name, Path(source))
        _check_complete(name, report)
        language_model = LanguageModel(name, model.to(device), tokenizer)
        _ = language_model.layout
    revision = revision or str(getattr(model.config, "_commit_hash", None) or "unknown")
    return replace(language_model, revision=revision)


@contextmanager
def reading_checkpoint(name: str, source: str) -> Iterator[None]:
    """Whatever goes wrong where a checkpoint is read is one line with its place and the cause.

    Raises:
        NoModelError: a hub name that cannot be had.
        UnknownArchitectureError: a model that brings code of its own.
        ModelError: a checkpoint that cannot be read, or has no safetensors.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, ModelError) or out_of_memory(error):
            raise
        cause = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST_CAUSE]
        if "trust_remote_code" in str(error):
            raise UnknownArchitectureError(
                f"{name} brings code of its own, which is never executed here; use a model of one of"
                f" the architectures {', '.join(ARCHITECTURES)}"
            ) from error
        if isinstance(error, OSError) and re.search(_NO_SAFETENSORS, cause):
            raise ModelError(
                f"{source} has no safetensors, the one format of weights that is read here (others can"
                " execute code): save it once with transformers' save_pretrained and name that folder"
            ) from error
        if isinstance(error, OSError) and not Path(source).is_dir():
            raise NoModelError(f"no model {name!r}: give {_WAYS} ({cause})") from error
        raise ModelError(
            f"the checkpoint of {source} cannot be read ({cause}); correct it, or fetch it again, whole"
        ) from error


def _no_numbers(name: str, what: str) -> ModelError:
    return ModelError(
        f"{name} stores weights as codes ({what}), to which no edit can be added; use the model that it"
        " was made from, with 16 or 32 bits a weight"
    )


def _check_numbers(name: str, folder: Path) -> None:
    """Refuse integers and bytes, which transformers would take for the weights themselves.

    Raises:
        ModelError: with the first such matrix.
    """
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for key in file.keys():  # noqa: SIM118 - safe_open is no mapping
                kind = file.get_slice(key).get_dtype()
                if key.endswith(".weight") and kind not in _NUMBERS:
                    raise _no_numbers(name, f"{key} is {kind}")


def _check_complete(name: str, report: Mapping[str, Any]) -> None:
    """Refuse a checkpoint that lacks weights: transformers would draw them at random.

    Raises:
        ModelError: with the names of what is missing or has another shape than the config says.
    """
    missing = sorted(report.get("missing_keys") or ())
    other = sorted(str(entry[0]) for entry in report.get("mismatched_keys") or ())
    for words, keys in (("lacks", missing), ("has other shapes than its config for", other)):
        if keys:
            shown = ", ".join(keys[:4]) + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")
            raise ModelError(f"the checkpoint of {name} {words} {shown}; fetch it again, whole")


def _placed(device: str) -> dict[str, str]:
    """Weights go to a GPU as they are read, without a copy in the host's memory."""
    return {"device_map": device} if torch_device(device).type == "cuda" else {}


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
    """Freeze, switch to evaluation, choose the attention path, and compare scores with the model's own."""
    model = language_model.model
    eager = language_model.layout.architecture.eager_only
    avoid_cudnn_attention(language_model.device)
    model.requires_grad_(False)
    model.eval()
    own = own_scores(language_model)
    model.set_attn_implementation("eager" if eager else TILED)
    check_agreement(language_model, *own)
    return language_model
