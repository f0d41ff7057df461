"""One entry point from a model name to a ready language model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from helpers.models.agreement import check_agreement, own_scores
from helpers.models.architectures import ARCHITECTURES, ModelError, architecture_of
from helpers.models.batching import out_of_memory
from helpers.models.language_model import LanguageModel
from helpers.models.shapes import (
    SHAPE_PREFIX,
    SHAPE_TOKENIZER,
    SHAPES,
    random_model,
    words_tokenizer,
)
from helpers.models.tiles import TILED
from helpers.models.weights import (
    EMBEDDED_NAMES,
    HUB_NAMES,
    PACKAGED_WEIGHTS,
    TF32,
    check_device,
    choose_products,
    prepare,
    torch_device,
    torch_dtype,
)

MODEL_NAMES = (*PACKAGED_WEIGHTS, *HUB_NAMES)
_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_NO_SAFETENSORS = "file named model.safetensors|Can't load the model for"  # transformers' words
_LONGEST_CAUSE = 300  # characters
_WAYS = (
    f"one of {', '.join(MODEL_NAMES)}, shape:<name>, a local folder with config.json and safetensors,"
    " or a hub name, ORG/NAME, that this machine can reach"
)


def load(
    name: str,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    masked: bool = False,
    accept_terms: bool = False,
    seed: int = 0,
) -> LanguageModel:
    """Load a language model by name.

    Args:
        name: a name of ``MODEL_NAMES``, ``shape:<name>`` (random weights of a real shape), a local
            folder, or any name on the Hugging Face hub; those of the packaged models are these.
        dtype: torch dtype of the weights, or ``tf32``: float32 whose products a GPU makes in TF32, for
            all models of the process. Statistics and solves stay fp32/fp64 whatever it is.
        device: torch device.
        masked: a masked language model (BERT), for locating only.
        accept_terms: acknowledges a packaged model's terms of use.
        seed: for ``shape:`` models.

    Raises:
        ModelError: there is no such model, dtype or device, or one that cannot be used here.
    """
    name = EMBEDDED_NAMES.get(name, name)
    of_weights = torch_dtype(dtype)
    check_device(device)
    if dtype == TF32 and torch_device(device).type != "cuda":
        raise ModelError("dtype 'tf32' is for GPUs, use 'float32' on a CPU")
    choose_products(dtype, torch_device(device))
    source = model_source(name)
    if name.startswith(SHAPE_PREFIX):
        shape = SHAPES[name.removeprefix(SHAPE_PREFIX)]
        words = words_tokenizer(prepare(SHAPE_TOKENIZER), shape["vocab_size"])
        parts = random_model(shape, seed=seed, dtype=of_weights, device=device, tokenizer=words)
        return _ready(LanguageModel(name, *parts))
    if source in PACKAGED_WEIGHTS:
        source = str(prepare(source, accept_terms=accept_terms))
    elif Path(source).expanduser().is_dir():
        source = str(Path(source).expanduser())
    with reading_checkpoint(name, source):
        language_model = _pretrained(name, source, of_weights, device, masked)
    return _ready(language_model)


def model_source(name: str) -> str:
    """Where a model's weights come from: its packaged or shape's name, a folder, or a hub name.

    Raises:
        ModelError: the name is none of these, with the ways to name one; or a folder with an adapter.
    """
    shape = name.removeprefix(SHAPE_PREFIX)
    if shape != name and shape not in SHAPES:
        raise ModelError(f"no shape {shape!r}; known: {', '.join(sorted(SHAPES))}")
    if shape != name or name in PACKAGED_WEIGHTS:
        return name
    folder = Path(name).expanduser()
    if name and folder.is_dir():
        for adapter in (*folder.glob("adapter_config.json"), *folder.glob("*/adapter_config.json")):
            raise ModelError(
                f"{adapter.parent} holds an adapter, which is not applied here: merge it into its base"
                " model (peft's merge_and_unload) and save that, or move it away"
            )
        if not (folder / "config.json").is_file():
            raise ModelError(f"no model in {folder}: it has no config.json")
        return name
    hub_name = HUB_NAMES.get(name, name)
    if not _HUB_NAME.fullmatch(hub_name):
        raise ModelError(f"no model {name!r}: give {_WAYS}")
    return hub_name


def _pretrained(
    name: str, source: str, dtype: torch.dtype, device: str, masked: bool
) -> LanguageModel:
    # Nothing that comes with a model is executed: safetensors only, transformers' own code only.
    config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    if architecture_of(config).masked != masked:  # before anything large is fetched
        kind = "causal" if masked else "masked"
        raise ModelError(f"{name} is a {kind} language model: load it with masked={not masked}")
    if codes := getattr(config, "quantization_config", None):
        raise ModelError(
            f"{name} stores weights as codes ({dict(codes).get('quant_method', 'quantised')}), to which"
            " no edit can be added; use the model that it was made from, with 16 or 32 bits a weight"
        )
    tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    model, report = (AutoModelForMaskedLM if masked else AutoModelForCausalLM).from_pretrained(
        source,
        config=config,
        dtype=dtype,
        use_safetensors=True,
        ignore_mismatched_sizes=True,  # named below, with what is missing
        output_loading_info=True,
        trust_remote_code=False,
        # Weights go to a GPU as they are read, without a copy in the host's memory.
        device_map=device if torch_device(device).type == "cuda" else None,
    )
    missing = sorted(report.get("missing_keys") or ())  # transformers would draw them at random
    other = sorted(str(entry[0]) for entry in report.get("mismatched_keys") or ())
    for words, keys in (("lacks", missing), ("has other shapes than its config for", other)):
        if keys:
            shown = ", ".join(keys[:4]) + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")
            raise ModelError(f"the checkpoint of {name} {words} {shown}; fetch it again, whole")
    language_model = LanguageModel(name, model.to(device), tokenizer)
    _ = language_model.layout  # of a checkpoint with other modules than its type's
    return language_model


@contextmanager
def reading_checkpoint(name: str, source: str) -> Iterator[None]:
    """Whatever goes wrong where a checkpoint is read is one line with its place and the cause.

    No progress bar is shown, so that executed notebooks stay readable.
    """
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    except Exception as error:
        if isinstance(error, ModelError) or out_of_memory(error):
            raise
        cause = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST_CAUSE]
        if "trust_remote_code" in str(error):
            message = (
                f"{name} brings code of its own, which is never executed here; use a model of one of"
                f" the architectures {', '.join(ARCHITECTURES)}"
            )
        elif isinstance(error, OSError) and re.search(_NO_SAFETENSORS, cause):
            message = (
                f"{source} has no safetensors, the one format of weights that is read here (others can"
                " execute code): save it once with transformers' save_pretrained and name that folder"
            )
        elif isinstance(error, OSError) and not Path(source).is_dir():
            message = f"no model {name!r}: give {_WAYS} ({cause})"
        else:
            message = (
                f"the checkpoint of {source} cannot be read ({cause}); correct it, or fetch it again,"
                " whole"
            )
        raise ModelError(message) from error
    finally:
        if shown:
            transformers_logging.enable_progress_bar()


def _ready(language_model: LanguageModel) -> LanguageModel:
    """Freeze, switch to evaluation, choose the attention path, and compare scores with the model's own."""
    model = language_model.model
    if language_model.device.type == "cuda":
        # cuDNN plans attention anew for every shape, and packed batches rarely repeat one; in half
        # precision its gradients under a mask were not always numbers.
        torch.backends.cuda.enable_cudnn_sdp(False)
    model.requires_grad_(False)
    model.eval()
    if not language_model.masked:
        own = own_scores(language_model)
        eager = language_model.layout.architecture.eager_only
        model.set_attn_implementation("eager" if eager else TILED)
        check_agreement(language_model, *own)
    return language_model
