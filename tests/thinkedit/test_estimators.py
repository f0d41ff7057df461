"""Exact scoring against sampling, and the null of the sampled estimator."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers import models as token_models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from helpers.models import LanguageModel, load
from helpers.models.load import _ready
from helpers.scoring.naming import begins
from helpers.scoring.responses import Sampling, sample_responses
from helpers.thinkedit import knowgic, tables
from helpers.thinkedit.edits import Fact
from helpers.thinkedit.estimator_tables import later_mentions, null_table
from helpers.thinkedit.estimators import compare, naming_probability

N = 1_000
MINI = knowgic.load_edits("mini")


def in_standard_errors(share: float, probability: float) -> float:
    return abs(share - probability) / math.sqrt(probability * (1 - probability) / N)


def test_a_text_begins_with_a_name_as_whole_words():
    assert begins("Rome, of course", ("Oslo", "ROME"))
    assert begins("  É­cole".replace("\xad", ""), ("ecole",))
    assert not begins("Romeo", ("Rome",))
    assert not begins("In Rome", ("Rome",))


@pytest.fixture
def word_model() -> LanguageModel:
    """A random model whose tokens are words, so that a text is cut into tokens in one way only."""
    words = ["[UNK]", "[PAD]", "[EOS]", *(f"w{i}" for i in range(37))]
    tokenizer = Tokenizer(
        token_models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", eos_token="[EOS]"
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        initializer_range=0.5,
        bos_token_id=None,
        eos_token_id=2,
        pad_token_id=1,
    )
    return _ready(LanguageModel("tiny-words", LlamaForCausalLM(config), fast))


def test_exact_is_the_share_of_responses_that_begin_so_on_a_tiny_model(word_model):
    """Within the sampling error of 1,000 responses, by one name, several, and names of two words."""
    prompt = "w1 w2 w3"
    drawn = Sampling(temperature=1.0, max_new_tokens=3, chat=False)
    (texts,) = sample_responses(word_model, [prompt], n=N, sampling=drawn)
    common = [" ".join(text.split()[:2]) for text in texts]
    pair = max(set(common), key=common.count)
    for names in (["w5"], ["w5", "w9", "w11"], [pair], [pair, "w5", "w5 w6"]):
        exact = naming_probability(word_model, prompt, names)
        assert exact > 1e-3
        share = np.mean([begins(text, names) for text in texts])
        assert in_standard_errors(share, exact) < 4


def test_exact_is_the_share_of_responses_that_begin_so_on_the_embedded_model():
    """Within the sampling error of 1,000 responses, by one name or several."""
    facts = [
        Fact("France", "The capital of {} is", "Paris", "What is the capital of France?"),
        Fact("London", "{} is the capital of", "England", "Of what is London the capital?"),
    ]
    aliases = {"england": ("the United Kingdom", "the UK", "Great Britain", "the United")}
    drawn = Sampling(temperature=1.0, max_new_tokens=4, chat=False)
    found = compare(load("smollm2-135m"), facts, aliases, n=N, sampling=drawn)
    exact = found[found["exact"].notna()]
    assert set(exact["form"]) == {"cloze", "question"}
    assert exact["exact"].max() > 0.1
    for row in exact.to_dict("records"):
        assert in_standard_errors(row["begins"], row["exact"]) < 4, row
    assert (found["mentions"] >= found["begins"]).all()


def test_later_mentions_are_reported_by_form():
    rows = [(0, "cloze", 0.5, 0.6, 0.8, 100), (1, "cloze", 0.1, 0.1, 0.2, 100)]
    rows.append((0, "chat", np.nan, 0.0, 0.5, 100))
    names = ["fact", "form", "exact", "begins", "mentions", "n"]
    table = later_mentions(pd.DataFrame(rows, columns=names).assign(model="m")).set_index("form")
    assert table.loc["cloze", ["begins", "mentions", "facts"]].tolist() == pytest.approx(
        [0.35, 0.5, 2]
    )
    assert table.loc["cloze", "apart"] == pytest.approx(2.0)
    assert np.isnan(table.loc["chat", "apart"])


def test_the_null_takes_every_two_draws_both_ways():
    rows = [(edit.case_id, item) for edit in MINI for item, _ in enumerate(edit.facts)]
    base = pd.DataFrame(rows, columns=["case_id", "item"]).assign(new_hits=0, n=5, model="m")
    draws = pd.concat(
        [base.assign(hits=hits, seed=seed) for seed, hits in enumerate((4, 4, 2))],
        ignore_index=True,
    )
    table = null_table(draws, tables.chain_index(MINI)).set_index("measure")
    assert table["pairs"].tolist() == [6, 6]
    # Facts of 4/5 before and 2/5 after halve, or the other way round; equal draws stay.
    assert table.loc["CKP", ["low", "high"]].tolist() == pytest.approx([0.5, 2.0])
    assert table.loc["CKP", "mean"] == pytest.approx((1 + 1 + 0.5 + 0.5 + 2 + 2) / 6)
    assert table.loc["IFR", "low"] < 0.5 < 2 < table.loc["IFR", "high"]
