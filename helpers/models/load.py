"""One entry point from a model name to a ready language model."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import (
    MODEL_FOR_PRETRAINING_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import cached_file, find_adapter_config_file
from transformers.utils import logging as transformers_logging
from transformers.utils.hub import (
    GatedRepoError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)

from helpers.models.architectures import ModelError, architecture_of
from helpers.models.batching import out_of_memory
from helpers.models.forest import Forest, pack
from helpers.models.forward import hidden_states, vocabulary_scores
from helpers.models.identity import CheckpointDigests
from helpers.models.language_model import LanguageModel
from helpers.models.mlps import lean_mlps
from helpers.models.norms import lean_norms
from helpers.models.products import BF16_PRODUCTS, check_bf16_products, with_bf16_products
from helpers.models.quantised import check_codes, code_format, in_numbers, with_numbers_asked_for
from helpers.models.rotations import lean_rotations
from helpers.models.shapes import SHAPE_PREFIX, SHAPE_TOKENIZER, SHAPES, random_model
from helpers.models.state import in_own_state
from helpers.models.tiles import TILED
from helpers.models.tokens import Ids, answer_ids, prompt_ids
from helpers.models.weights import (
    EMBEDDED_NAMES,
    HUB_NAMES,
    PACKAGED_WEIGHTS,
    check_device,
    prepare,
    torch_device,
    torch_dtype,
)
from helpers.network import causes, is_network_error, network_words, status_of
from helpers.records import did_you_mean, meant_in_words

MODEL_NAMES = (*PACKAGED_WEIGHTS, *HUB_NAMES)
_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_HUB_ADDRESS = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/([^/]+/[^/?#]+).*")
_WAYS = f"give {', '.join(PACKAGED_WEIGHTS)}, a folder, or a name on the hub, ORG/NAME"
_ORGANISATIONS = {  # by how the names of their models begin, on the hub
    "gpt2": "openai-community",
    "distilgpt2": "distilbert",
    "bert-": "google-bert",
    "gpt-j": "EleutherAI",
    "gpt-neo": "EleutherAI",
    "pythia": "EleutherAI",
    "llama": "meta-llama",
    "meta-llama": "meta-llama",
    "mistral": "mistralai",
    "qwen": "Qwen",
    "gemma": "google",
    "phi-": "microsoft",
    "olmo": "allenai",
    "falcon": "tiiuae",
    "smollm": "HuggingFaceTB",
}
# Types of numbers in safetensors; others are codes, which transformers would take for numbers.
_NUMBERS = ("F16", "BF16", "F32", "F64")
_PROMPT, _ANSWER = "The capital of Italy is", "Rome"


@in_own_state
def load(
    name: str | Path,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    masked: bool = False,
    accept_terms: bool = False,
    seed: int = 0,
    dequantise: bool = False,
) -> LanguageModel:
    """Load a language model by name; a ``ModelError`` for one that cannot be used here.

    Args:
        name: a name of ``MODEL_NAMES``, ``shape:<name>`` (random weights of a real shape), a local
            folder, or any name on the Hugging Face hub.
        dtype: of the weights; statistics and solves stay fp32/fp64 whatever it is. With
            ``bf16-products`` weights are float32, and their products those of bf16 (``products``).
        masked: a masked language model (BERT), for locating only.
        accept_terms: acknowledges a packaged model's terms of use.
        seed: for ``shape:`` models.
        dequantise: reads a checkpoint of 4 or 8 bits as numbers of ``dtype``, and needs the memory of these
            (``quantised``); one that holds numbers is loaded as it is.
    """
    name = str(name)
    of_weights = torch_dtype(dtype)
    check_device(device)
    if dtype == BF16_PRODUCTS:
        check_bf16_products(device)
        loaded = load(
            name,
            device=device,
            masked=masked,
            accept_terms=accept_terms,
            seed=seed,
            dequantise=dequantise,
        )
        with_bf16_products(loaded.network)
        return replace(loaded, precision=dtype)
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
        return _ready(_pretrained(name, source, of_weights, device, masked, dequantise))
    except Exception as error:
        if isinstance(error, ModelError) or out_of_memory(error):
            raise
        raise ModelError(_why_not_loaded(source, error)) from error


def load_named(params: Mapping[str, Any]) -> LanguageModel:
    """The model that a params file names, loaded as the file asks."""
    return load(
        params["model"],
        dtype=params["dtype"],
        device=params["device"],
        masked=params.get("masked", False),
        dequantise=params["dequantise"],
    )


def model_source(name: str) -> str:
    """A model's packaged or shape's name, its folder, or its hub name; a ModelError where it has none."""
    shape = name.removeprefix(SHAPE_PREFIX)
    if shape != name and shape not in SHAPES:
        raise ModelError(f"no shape {shape!r}; known: {', '.join(sorted(SHAPES))}")
    if shape != name or name in PACKAGED_WEIGHTS:
        return name
    folder = Path(name).expanduser()
    if name.strip() and folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ModelError(
                f"no config.json in {folder}; an adapter is merged into its base first"
            )
        if adapters := sorted(folder.glob("adapter_*")):
            raise ModelError(
                f"{folder} holds an adapter next to the model ({adapters[0].name}): merge it into"
                " the model, or move it to another folder"
            )
        return str(folder)
    hub_name = HUB_NAMES.get(name, name)
    if _HUB_NAME.fullmatch(hub_name):
        return hub_name
    if folder.is_file():
        raise ModelError(f"{folder} is a file: give the folder it is in, with config.json")
    if (address := _HUB_ADDRESS.fullmatch(name)) is None and re.search(r"[/\\]|^[.~]", name):
        beside = folder.parent
        siblings = [p.name for p in beside.iterdir() if p.is_dir()] if beside.is_dir() else []
        hint = did_you_mean(folder.name, siblings)
        remedy = hint or ": give the folder of a saved model, with config.json"
        raise ModelError(f"no folder {name}{remedy}")
    hint = meant_in_words(address[1]) if address else _similar_model(name)
    raise ModelError(f"no model {name!r}{hint or f': {_WAYS}'}")


def _similar_model(name: str) -> str:
    """In words, the model that a short name was probably meant for, if any: one of ours, or of the hub's."""
    small = name.lower().replace("_", "-")
    if hint := did_you_mean(small, MODEL_NAMES, cutoff=0.88):
        return hint
    begun = [known for known in PACKAGED_WEIGHTS if small and known.startswith(small)]
    if len(begun) == 1:  # a packaged name without its size
        return meant_in_words(begun[0])
    starts = [start for start in _ORGANISATIONS if small.startswith(start)]
    if starts:
        return meant_in_words(f"{_ORGANISATIONS[max(starts, key=len)]}/{name}")
    return did_you_mean(small, MODEL_NAMES)


def _why_not_loaded(source: str, error: Exception) -> str:
    """One line about a model that transformers could not load: what is wrong, and what helps."""
    if not Path(source).is_dir() and (reason := _why_not_from_hub(source, error)):
        # models/mine may have been meant for a folder.
        nearby = Path(source).parent.is_dir()
        return f"no folder {source}; {reason}" if nearby else reason
    cause = " ".join(f"{type(error).__name__}: {error}".split())[:150]
    return (
        f"{source} cannot be loaded ({cause}): fetch what is damaged again; only safetensors are"
        " read, and a model's own code is never executed"
    )


def _why_not_from_hub(source: str, error: Exception) -> str:
    """Why the hub gave no model; empty where it did."""

    def caused_by(kind: type[Exception]) -> bool:
        return any(isinstance(cause, kind) for cause in causes(error))

    status = status_of(error)
    if caused_by(GatedRepoError):
        page = f"https://huggingface.co/{source}"
        return f"{source} is gated: accept its terms at {page}, then run hf auth login"
    if caused_by(RepositoryNotFoundError) or status == 404:
        known_names = [*HUB_NAMES.values(), *EMBEDDED_NAMES]
        hint = did_you_mean(source, known_names, cutoff=0.8)
        return f"no model {source} on the hub{hint or '; a private one needs hf auth login'}"
    if status in (401, 403):
        return f"the hub refuses {source} (HTTP {status}): run hf auth login"
    if not (caused_by(LocalEntryNotFoundError) or is_network_error(error)):
        return ""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return f"{source} is not in the hub's cache; unset HF_HUB_OFFLINE, or give a folder"
    reason = network_words(error)
    return f"{source} is not in the hub's cache, and it cannot be fetched ({reason}): give a folder"


def _pretrained(
    name: str, source: str, dtype: torch.dtype, device: str, masked: bool, dequantise: bool
) -> LanguageModel:
    if find_adapter_config_file(source):  # on the hub; a folder was looked at before
        raise ModelError(f"{source} is an adapter, or holds one: merge it into its base first")
    # Nothing that comes with a model is executed: safetensors only, transformers' own code only.
    config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    if architecture_of(config).masked != masked:  # before anything large is fetched
        kind = "causal" if masked else "masked"
        raise ModelError(f"{name} is a {kind} language model: load it with masked={not masked}")
    check_codes(name, config, dtype, dequantise)
    is_of_codes = bool(code_format(config))
    tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    _check_vocabulary(source, tokenizer, config.vocab_size)
    config_file = cached_file(source, "config.json")
    kept_digests = CheckpointDigests(Path(config_file).parent, dtype)
    transformers_logging.disable_progress_bar()
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()  # its report of the weights is judged below
    try:
        model, report = (AutoModelForMaskedLM if masked else AutoModelForCausalLM).from_pretrained(
            source,
            config=with_numbers_asked_for(config),
            dtype=dtype,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # which the report tells
            trust_remote_code=False,
            # Weights go to a GPU as they are read, without a copy in the host's memory.
            device_map=device if torch_device(device).type == "cuda" else None,
        )
        if is_of_codes:
            model = in_numbers(model, dtype)
    finally:
        transformers_logging.set_verbosity(verbosity)
    _check_weights(source, model, report, of_codes=is_of_codes)
    loaded = LanguageModel(name, model.to(device), tokenizer)
    if not is_of_codes:  # else the numbers in memory are more than what files and type determine
        kept_digests.attach(loaded.weights)
    return loaded


def _check_vocabulary(source: str, tokenizer: PreTrainedTokenizerBase, rows: int) -> None:
    """Refuse words without an embedding; a picture's or sound's token, as Gemma 3 has one, is none."""
    # Ids of a vocabulary have no gaps but where tokens were added: most need no look at every word.
    if len(tokenizer) <= rows and max(tokenizer.added_tokens_decoder, default=0) < rows:
        return
    marks = tokenizer.special_tokens_map
    others = {
        marks[name]
        for name in marks.keys() - set(PreTrainedTokenizerBase.SPECIAL_TOKENS_ATTRIBUTES)
    }
    vocabulary = tokenizer.get_vocab()
    if beyond := sorted(t for t, i in vocabulary.items() if i >= rows and t not in others):
        raise ModelError(
            f"{source}: its tokenizer has {len(vocabulary)} tokens, its model embeds {rows}, none of"
            f" them {_first(map(repr, beyond))}: fetch the tokenizer that belongs to the model"
        )


def _check_weights(
    source: str, model: PreTrainedModel, report: Mapping[str, Any], *, of_codes: bool
) -> None:
    """Refuse weights that the model lacks, would drop, has in another shape, or are stored as codes.

    transformers would draw what is missing at random, omit what has no place, and take codes for
    numbers where config.json does not define what they mean; where it does, they are codes (``of_codes``).
    """
    stored = _stored_types(source)
    prefix = f"{model.base_model_prefix}."
    parameters = {name.removeprefix(prefix) for name, _ in model.named_parameters()}
    taken = {key: kind for key, kind in stored.items() if key.removeprefix(prefix) in parameters}
    codes = sorted(key for key, kind in taken.items() if kind not in _NUMBERS)
    if codes and not of_codes:
        raise ModelError(
            f"{source} stores {_first(codes)} as {taken[codes[0]]}, codes whose meaning its config.json"
            " does not tell: take the model in floating point"
        )
    if missing := sorted(report["missing_keys"]):
        raise ModelError(f"{source} lacks {_first(missing)}; fetch it again, whole")
    if mismatched := sorted(report["mismatched_keys"]):
        key, stored_shape, wanted_shape = mismatched[0]
        raise ModelError(
            f"{source}: {key} has the shape {list(stored_shape)}, by config.json {list(wanted_shape)}"
            f" ({len(mismatched)} differ): fetch the config.json that belongs to the weights"
        )
    unexpected = set(report["unexpected_keys"])
    if unexpected and type(model.config) in MODEL_FOR_PRETRAINING_MAPPING:
        with torch.device("meta"):
            whole = AutoModelForPreTraining.from_config(model.config)
        # Heads that only pre-training has: BERT's pooler and next sentence.
        unexpected -= whole.state_dict().keys()
    if unexpected:
        # Masks, and the number behind them, which older models stored: no weights.
        constants = {
            key.removeprefix(prefix)
            for key, kind in stored.items()
            if kind in ("BOOL", "U8") or key.endswith(".masked_bias")
        }
        unexpected = {key for key in unexpected if key.removeprefix(prefix) not in constants}
    if unexpected:
        raise ModelError(
            f"{source} holds {_first(sorted(unexpected))}, for which its config.json has no place:"
            " fetch the config.json that belongs to the weights"
        )


def _stored_types(source: str) -> dict[str, str]:
    """In which type each of a checkpoint's tensors is stored, by the names in its files."""
    folder = Path(source)
    if not folder.is_dir():
        folder = Path(str(cached_file(source, "config.json"))).parent  # of the hub's cache
    types = {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            for key in file.keys():  # noqa: SIM118 - safe_open is no mapping
                types[key] = file.get_slice(key).get_dtype()
    return types


def _first(names: Iterable[str], most: int = 3) -> str:
    """The first few names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


@torch.inference_mode()
def _ready(loaded: LanguageModel) -> LanguageModel:
    """Freeze, switch to evaluation, choose what passes run, and check that packed texts score alike."""
    network = loaded.network.requires_grad_(False).eval()
    # cuDNN plans anew for every shape, and its gradients under a mask were not always numbers.
    torch.backends.cuda.enable_cudnn_sdp(False)
    if loaded.masked:
        return loaded
    ids = _ids_of_a_fact(loaded)
    eager_only = loaded.layout.architecture.eager_only
    if eager_only:
        network.set_attn_implementation("eager")
    expected = _scores_of_the_network(loaded, ids)
    lean_norms(network)
    lean_rotations(network)
    lean_mlps(network)
    if not eager_only:
        network.set_attn_implementation(TILED)
    difference = (_packed_scores(loaded, ids) - expected).abs()
    tolerance = torch.finfo(loaded.dtype).eps ** 0.5  # half of the digits
    if not bool((difference <= tolerance * (1 + expected.abs())).all()):
        raise ModelError(
            f"{loaded.name} cannot be used in {loaded.dtype_name}: packed texts have other"
            " log-probabilities; it overflows, changes logits after the head, or its attention"
            " needs more than positions"
        )
    return loaded


def _ids_of_a_fact(loaded: LanguageModel) -> Ids:
    """A prompt's and its answer's token ids, which must be those of the whole text."""
    ids = (*prompt_ids(loaded, _PROMPT), *answer_ids(loaded, _ANSWER))
    ids_of_text = tuple(loaded.tokenizer(f"{_PROMPT} {_ANSWER}")["input_ids"])
    if ids_of_text != ids:
        tokens = loaded.tokenizer.convert_ids_to_tokens(ids_of_text)
        raise ModelError(
            f"the tokenizer of {loaded.name} reads a prompt and its answer as {tokens}"
        )
    return ids


def _scores_of_the_network(loaded: LanguageModel, ids: Ids) -> Tensor:
    """Log-probabilities of all tokens but the first [tokens - 1], by transformers' own forward pass."""
    text = torch.tensor([ids], device=loaded.device)
    logits = loaded.network(input_ids=text, attention_mask=torch.ones_like(text)).logits[0, :-1]
    scores = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    return scores.gather(-1, text[0, 1:, None])[:, 0]


def _packed_scores(loaded: LanguageModel, ids: Ids) -> Tensor:
    """Log-probabilities of all tokens but the first [tokens - 1], by the suite's packed forward pass.

    The text is packed next to a longer one that ends where the context does.
    """
    forest = Forest()
    forest.add(ids)
    longer = Forest()
    longer.add((*ids, ids[-1]))
    packed = pack([forest, longer], loaded)
    packed.positions[1] += loaded.context_length - 1 - len(ids)
    hidden = hidden_states(loaded, packed.ids, packed.positions, packed.visible)
    predicted = torch.tensor(ids[1:], device=hidden.device)
    columns = torch.arange(len(predicted), device=hidden.device)
    scores, _ = vocabulary_scores(loaded, hidden[0], columns, predicted)
    return scores
