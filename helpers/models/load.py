"""One entry point from a model name to a ready language model."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer
from transformers.utils import cached_file
from transformers.utils import logging as transformers_logging

from helpers.models.architectures import ModelError, architecture_of
from helpers.models.batching import out_of_memory
from helpers.models.forest import Forest, pack
from helpers.models.forward import hidden_states, vocabulary_scores
from helpers.models.identity import CheckpointDigests
from helpers.models.language_model import LanguageModel
from helpers.models.shapes import SHAPE_PREFIX, SHAPE_TOKENIZER, SHAPES, random_model
from helpers.models.tiles import TILED
from helpers.models.tokens import answer_ids, prompt_ids
from helpers.models.weights import (
    HUB_NAMES,
    PACKAGED_WEIGHTS,
    check_device,
    prepare,
    torch_device,
    torch_dtype,
)

MODEL_NAMES = (*PACKAGED_WEIGHTS, *HUB_NAMES)
_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_WAYS = (
    f"one of {', '.join(MODEL_NAMES)}, shape:<name>, a folder with config.json and safetensors,"
    " or a hub name, ORG/NAME; a model's own code is never executed,"
    " and a damaged download is fetched again"
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
    """Load a language model by name; a ``ModelError`` for one that cannot be used here.

    Args:
        name: a name of ``MODEL_NAMES``, ``shape:<name>`` (random weights of a real shape), a local
            folder, or any name on the Hugging Face hub.
        dtype: of the weights; statistics and solves stay fp32/fp64 whatever it is.
        masked: a masked language model (BERT), for locating only.
        accept_terms: acknowledges a packaged model's terms of use.
        seed: for ``shape:`` models.
    """
    of_weights = torch_dtype(dtype)
    check_device(device)
    source = model_source(name)
    if name.startswith(SHAPE_PREFIX):
        words = AutoTokenizer.from_pretrained(prepare(SHAPE_TOKENIZER), trust_remote_code=False)
        shape = SHAPES[name.removeprefix(SHAPE_PREFIX)]
        shape = {**shape, "vocab_size": max(shape["vocab_size"], len(words))}
        parts = random_model(shape, seed=seed, dtype=of_weights, device=device, tokenizer=words)
        return _ready(LanguageModel(name, *parts))
    if source in PACKAGED_WEIGHTS:
        source = str(prepare(source, accept_terms=accept_terms))
    try:
        return _ready(_pretrained(name, source, of_weights, device, masked))
    except Exception as error:
        if isinstance(error, ModelError) or out_of_memory(error):
            raise
        cause = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise ModelError(f"{source} cannot be loaded ({cause}): give {_WAYS}") from error


def model_source(name: str) -> str:
    """A model's packaged or shape's name, its folder, or its hub name; a ModelError where it has none."""
    shape = name.removeprefix(SHAPE_PREFIX)
    if shape != name and shape not in SHAPES:
        raise ModelError(f"no shape {shape!r}; known: {', '.join(sorted(SHAPES))}")
    if shape != name or name in PACKAGED_WEIGHTS:
        return name
    folder = Path(name).expanduser()
    if name and folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ModelError(
                f"no config.json in {folder}; an adapter is merged into its base first"
            )
        return str(folder)
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
    if getattr(config, "quantization_config", None):
        raise ModelError(f"{name} stores weights as codes, to which no edit can be added")
    tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    config_file = cached_file(source, "config.json")
    kept_digests = CheckpointDigests(Path(config_file).parent, dtype)
    transformers_logging.disable_progress_bar()
    model, report = (AutoModelForMaskedLM if masked else AutoModelForCausalLM).from_pretrained(
        source,
        config=config,
        dtype=dtype,
        use_safetensors=True,
        output_loading_info=True,
        trust_remote_code=False,
        # Weights go to a GPU as they are read, without a copy in the host's memory.
        device_map=device if torch_device(device).type == "cuda" else None,
    )
    if missing := sorted(report["missing_keys"]):  # transformers would draw them at random
        raise ModelError(f"{source} lacks {', '.join(missing[:4])}; fetch it again, whole")
    loaded = LanguageModel(name, model.to(device), tokenizer)
    kept_digests.attach(loaded.weights)
    return loaded


@torch.inference_mode()
def _ready(loaded: LanguageModel) -> LanguageModel:
    """Freeze, switch to evaluation, choose the attention path, and compare scores with the model's own."""
    model = loaded.model.requires_grad_(False).eval()
    name = loaded.name
    # cuDNN plans anew for every shape, and its gradients under a mask were not always numbers.
    torch.backends.cuda.enable_cudnn_sdp(False)
    if loaded.masked:
        return loaded
    ids = (*prompt_ids(loaded, _PROMPT), *answer_ids(loaded, _ANSWER))
    read = tuple(loaded.tokenizer(f"{_PROMPT} {_ANSWER}")["input_ids"])
    if read != ids:
        tokens = loaded.tokenizer.convert_ids_to_tokens(read)
        raise ModelError(f"the tokenizer of {name} reads a prompt and its answer as {tokens}")
    text = torch.tensor([ids], device=loaded.device)
    logits = model(input_ids=text, attention_mask=torch.ones_like(text)).logits[0, :-1]
    scores = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    own = scores.gather(-1, text[0, 1:, None])[:, 0]
    eager = loaded.layout.architecture.eager_only
    model.set_attn_implementation("eager" if eager else TILED)
    forest, longer = Forest(), Forest()  # the latter ends where the context does
    forest.add(ids)
    longer.add((*ids, ids[-1]))
    packed = pack([forest, longer], loaded)
    packed.positions[1] += loaded.context_length - 1 - len(ids)
    hidden = hidden_states(loaded, packed.ids, packed.positions, packed.visible)
    place = torch.arange(len(own), device=hidden.device)
    found, _ = vocabulary_scores(loaded, hidden[0], place, text[0, 1:])
    tolerance = torch.finfo(loaded.dtype).eps ** 0.5  # half of the digits
    if not bool(((found - own).abs() <= tolerance * (1 + own.abs())).all()):
        raise ModelError(
            f"{name} cannot be used in {loaded.dtype_name}: packed texts have other"
            " log-probabilities; it overflows, changes logits after the head, or its attention"
            " needs more than positions"
        )
    return loaded
