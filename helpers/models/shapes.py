"""Random models of real shapes: for benchmarks without weights and, tiny, for tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

SHAPE_PREFIX = "shape:"
SHAPE_TOKENIZER = "smollm2-135m"  # a packaged model, whose words and context templates shapes take


def _llama(d: int, f: int, blocks: int, heads: int, kv_heads: int, **more: Any) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": d,
        "intermediate_size": f,
        "num_hidden_layers": blocks,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        **more,
    }


SHAPES: dict[str, dict[str, Any]] = {
    "smollm2-135m": _llama(576, 1536, 30, 9, 3, vocab_size=49152, tie_word_embeddings=True),
    "llama2-7b": _llama(4096, 11008, 32, 32, 32, vocab_size=32000),
    "llama2-13b": _llama(5120, 13824, 40, 40, 40, vocab_size=32000),
    "llama3-8b": _llama(4096, 14336, 32, 32, 8, vocab_size=128256),
    "qwen2.5-1.5b": _llama(
        1536, 8960, 28, 12, 2, vocab_size=151936, tie_word_embeddings=True, model_type="qwen2"
    ),
    "qwen2.5-7b": _llama(3584, 18944, 28, 28, 4, vocab_size=152064, model_type="qwen2"),
    "gpt2-xl": {
        "model_type": "gpt2",
        "n_embd": 1600,
        "n_layer": 48,
        "n_head": 25,
        "vocab_size": 50257,
    },
    "gpt-j-6b": {
        "model_type": "gptj",
        "n_embd": 4096,
        "n_layer": 28,
        "n_head": 16,
        "vocab_size": 50400,
    },
}


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer (257 ids, pad = eos = 256) that works without any file."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: index for index, character in enumerate(alphabet)}
    vocabulary["<|end|>"] = len(alphabet)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>", bos_token="<|end|>"
    )


def words_tokenizer(folder: Path, size: int) -> PreTrainedTokenizerFast:
    """The byte-pair tokenizer of a model folder, cut to its ``size`` most frequent words.

    A tokenizer of bytes makes texts four times as long as a real model's, and its costs with them.
    Byte-pair words stand in the order they were merged in, so the first ones are a tokenizer, too.
    """
    whole = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    state = json.loads(whole.backend_tokenizer.to_str())
    kept = {word: index for word, index in state["model"]["vocab"].items() if index < size}
    merges = [m.split(" ") if isinstance(m, str) else m for m in state["model"]["merges"]]
    state["model"]["vocab"] = kept
    state["model"]["merges"] = [m for m in merges if m[0] + m[1] in kept]
    state["added_tokens"] = [token for token in state["added_tokens"] if token["id"] < size]
    end = whole.eos_token
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(state)),
        eos_token=end,
        pad_token=whole.pad_token or end,
        bos_token=whole.bos_token or end,
    )


def random_model(
    settings: dict[str, Any],
    *,
    seed: int,
    dtype: torch.dtype,
    device: str,
    tokenizer: PreTrainedTokenizerFast | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Build a random model from config settings (with ``model_type``), by default one of bytes.

    Weights are made on ``device`` directly, so a 13 B shape never passes through host memory.
    """
    tokenizer = tokenizer or byte_tokenizer()
    special = {
        f"{kind}_token_id": getattr(tokenizer, f"{kind}_token_id") for kind in ("bos", "eos", "pad")
    }
    config = AutoConfig.for_model(**{"vocab_size": len(tokenizer), **special, **settings})
    with seeded(seed, torch.device(device)), torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return model, tokenizer


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Torch draws from ``seed``, on the CPU and on ``device``; the caller's state comes back after.

    >>> with seeded(0, language_model.device):
    ...     language_model.model.generate(...)
    """
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
