"""One entry point from a model name to a ready language model."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from helpers.models.architectures import ARCHITECTURES, ModelError, architecture_of
from helpers.models.batching import out_of_memory
from helpers.models.forest import Forest, pack
from helpers.models.forward import hidden_states, vocabulary_scores
from helpers.models.language_model import LanguageModel
from helpers.models.shapes import (
    SHAPE_PREFIX,
    SHAPE_TOKENIZER,
    SHAPES,
    random_model,
    words_tokenizer,
)
from helpers.models.tiles import TILED
from helpers.models.tokens import Ids, answer_ids, prompt_ids
from helpers.models.weights import (
    EMBEDDED_NAMES,
    HUB_NAMES,
    PACKAGED_WEIGHTS,
    TF32,
    check_device,
    prepare,
    torch_device,
    torch_dtype,
)

MODEL_NAMES = (*PACKAGED_WEIGHTS, *HUB_NAMES)
_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_NO_SAFETENSORS = re.compile("file named model.safetensors|Can't load the model for")
_WAYS = (
    f"one of {', '.join(MODEL_NAMES)}, shape:<name>, a local folder with config.json and safetensors,"
    " or a hub name, ORG/NAME, that this machine can reach"
)
_PROMPT, _ANSWER = "The capital of Italy is", "Rome"


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
    if torch_device(device).type == "cuda":  # for the process: the model loaded last decides
        torch.set_float32_matmul_precision("high" if dtype == TF32 else "highest")
    elif dtype == TF32:
        raise ModelError("dtype 'tf32' is for GPUs, use 'float32' on a CPU")
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
    try:
        language_model = _pretrained(name, source, of_weights, device, masked)
    except Exception as error:
        if isinstance(error, ModelError) or out_of_memory(error):
            raise
        raise _unreadable(name, source, error) from error
    return _ready(language_model)


def model_source(name: str) -> str:
    """A model's packaged or shape's name, its folder, or its hub name; a ModelError where it has none."""
    shape = name.removeprefix(SHAPE_PREFIX)
    if shape != name and shape not in SHAPES:
        raise ModelError(f"no shape {shape!r}; known: {', '.join(sorted(SHAPES))}")
    if shape != name or name in PACKAGED_WEIGHTS:
        return name
    folder = Path(name).expanduser()
    if name and folder.is_dir():
        for found in (*folder.glob("adapter_config.json"), *folder.glob("*/adapter_config.json")):
            raise ModelError(f"{found.parent} is an adapter: merge it into its base and save that")
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
    transformers_logging.disable_progress_bar()
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


def _unreadable(name: str, source: str, error: Exception) -> ModelError:
    """Whatever went wrong where a checkpoint was read, in one line with its place and a remedy."""
    cause = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    if "trust_remote_code" in str(error):
        return ModelError(
            f"{name} brings code of its own, which is never executed here; use a model of one of the"
            f" architectures {', '.join(ARCHITECTURES)}"
        )
    if isinstance(error, OSError) and _NO_SAFETENSORS.search(cause):
        return ModelError(
            f"{source} has no safetensors, the one format of weights that is read here (others can"
            " execute code): save it once with transformers' save_pretrained and name that folder"
        )
    if isinstance(error, OSError) and not Path(source).is_dir():
        return ModelError(f"no model {name!r}: give {_WAYS} ({cause})")
    return ModelError(
        f"the checkpoint of {source} cannot be read ({cause}); delete it and fetch it again, whole"
    )


def _ready(language_model: LanguageModel) -> LanguageModel:
    """Freeze, switch to evaluation, choose the attention path, and compare scores with the model's own.

    Models that change logits after the head, or bias attention by distance, would get other scores
    without a sign of it.
    """
    model = language_model.model
    if language_model.device.type == "cuda":
        # cuDNN plans attention anew for every shape, and packed batches rarely repeat one; in half
        # precision its gradients under a mask were not always numbers.
        torch.backends.cuda.enable_cudnn_sdp(False)
    model.requires_grad_(False)
    model.eval()
    if language_model.masked:
        return language_model
    ids = (*prompt_ids(language_model, _PROMPT), *answer_ids(language_model, _ANSWER))
    read = tuple(language_model.tokenizer(f"{_PROMPT} {_ANSWER}")["input_ids"])
    if read != ids:
        tokens = language_model.tokenizer.convert_ids_to_tokens(read)
        raise ModelError(
            f"the tokenizer of {language_model.name} reads {f'{_PROMPT} {_ANSWER}'!r} as {tokens}, which"
            " is not the prompt and then the answer; save it again so that it appends nothing to a text"
        )
    own = _own_scores(language_model, ids)
    eager = language_model.layout.architecture.eager_only
    model.set_attn_implementation("eager" if eager else TILED)
    try:
        apart = (_packed_scores(language_model, ids) - own).abs()
    except Exception as error:
        if out_of_memory(error):
            raise
        raise ModelError(f"{language_model.name} cannot be used here: {error}") from error
    # Half of the digits of the type that products are made in; TF32 has as many as float16.
    tf32 = language_model.dtype_name == TF32
    tolerance = torch.finfo(torch.float16 if tf32 else language_model.dtype).eps ** 0.5
    if not bool((apart <= tolerance * (1 + own.abs())).all()):
        raise ModelError(
            f"{language_model.name} cannot be used here: log-probabilities of packed texts differ by up"
            f" to {float(apart.max()):.2g} from the model's own; it changes logits after the head (a"
            " scale or softcap in its configuration), or its attention depends on more than positions"
        )
    return language_model


@torch.inference_mode()
def _own_scores(language_model: LanguageModel, ids: Ids) -> Tensor:
    """Log-probabilities [tokens - 1] of a text by the model's own forward, before it is changed."""
    text = torch.tensor([ids], device=language_model.device)
    logits = language_model.model(input_ids=text, attention_mask=torch.ones_like(text)).logits
    scores = logits[0, :-1].to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    if bool(scores.isnan().any()):
        raise ModelError(
            f"{language_model.name} computes no numbers in {language_model.dtype_name}; use another dtype"
        )
    return scores.gather(-1, text[0, 1:, None])[:, 0]


@torch.inference_mode()
def _packed_scores(language_model: LanguageModel, ids: Ids) -> Tensor:
    forest, longer = Forest(), Forest()  # the latter ends where the context does
    forest.add(ids)
    longer.add((*ids, ids[-1]))
    packed = pack([forest, longer], language_model)
    packed.positions[1] += language_model.context_length - 1 - len(ids)
    hidden = hidden_states(language_model, packed.ids, packed.positions, packed.visible)
    place = torch.arange(len(ids) - 1, device=hidden.device)
    return vocabulary_scores(language_model, hidden[0], place, packed.ids[0, 1 : len(ids)])[0]
