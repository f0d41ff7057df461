"""Random models of real shapes: for benchmarks without weights and, tiny, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

SHAPE_PREFIX = "shape:"
SHAPE_TOKENIZER = "smollm2-135m"  # whose words and templates shapes take


def _llama(
    hidden: int, intermediate: int, blocks: int, heads: int, kv_heads: int, **more: Any
) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": blocks,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        **more,
    }


def _gpt(model_type: str, hidden: int, blocks: int, heads: int, words: int) -> dict[str, Any]:
    return {
        "model_type": model_type,
        "n_embd": hidden,
        "n_layer": blocks,
        "n_head": heads,
        "vocab_size": words,
    }


SHAPES: dict[str, dict[str, Any]] = {
    "tiny": _llama(32, 48, 4, 4, 2, vocab_size=49152),
    "smollm2-135m": _llama(576, 1536, 30, 9, 3, vocab_size=49152, tie_word_embeddings=True),
    "llama2-7b": _llama(4096, 11008, 32, 32, 32, vocab_size=32000),
    "llama2-13b": _llama(5120, 13824, 40, 40, 40, vocab_size=32000),
    "llama3-8b": _llama(4096, 14336, 32, 32, 8, vocab_size=128256),
    "qwen2.5-7b": _llama(3584, 18944, 28, 28, 4, vocab_size=152064, model_type="qwen2"),
    "gpt2-xl": _gpt("gpt2", 1600, 48, 25, 50257),
    "gpt-j-6b": _gpt("gptj", 4096, 28, 16, 50400),
}


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer (257 ids, pad = eos = bos = 256) that works without any file."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    end = "<|end|>"
    vocabulary = {letter: index for index, letter in enumerate([*letters, end])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    ends = dict.fromkeys(("eos_token", "pad_token", "bos_token"), end)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **ends)


def random_model(
    settings: dict[str, Any],
    *,
    seed: int,
    dtype: torch.dtype,
    device: str,
    tokenizer: PreTrainedTokenizerFast | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A random model of config settings (with ``model_type``), by default one of bytes."""
    tokenizer = tokenizer or byte_tokenizer()
    ends = {f"{name}_token_id" for name in ("bos", "eos", "pad")}
    special = {end: getattr(tokenizer, end) for end in ends}
    config = AutoConfig.for_model(**{"vocab_size": len(tokenizer), **special, **settings})
    with seeded(seed, torch.device(device)), torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return model, tokenizer


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Torch draws from ``seed``, on the CPU and on ``device``; the caller's state comes back after."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
