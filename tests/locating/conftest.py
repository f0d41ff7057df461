"""Tiny models, causal and masked, and sentences for the locators."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from helpers.locating.masked import MaskedLanguageModel, ready_masked
from helpers.models import LanguageModel

WORDS = "[PAD] [CLS] [SEP] [MASK] [UNK] a the capital of Utopia is Amaurot speaks people Latin in"


@pytest.fixture(scope="session")
def tiny_masked() -> MaskedLanguageModel:
    """A tiny random BERT with a word-level tokenizer."""
    words = WORDS.split()
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        unk_token="[UNK]",
    )
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=3,
        num_attention_heads=2,
        initializer_range=0.3,
    )
    return ready_masked("tiny-bert", BertForMaskedLM(config), fast)


@pytest.fixture(params=["gpt2", "gptj", "llama", "qwen2", "mistral", "gemma3", "bert"])
def any_model(
    request: pytest.FixtureRequest,
    tiny: Callable[..., LanguageModel],
    tiny_masked: MaskedLanguageModel,
) -> LanguageModel:
    """A tiny model of each causal architecture, and the masked one."""
    return tiny_masked if request.param == "bert" else tiny(request.param)
