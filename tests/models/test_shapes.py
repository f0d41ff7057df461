"""Random models of real shapes read texts as long as a real model's."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoTokenizer

from helpers.editing.contexts import context_templates
from helpers.models import shapes
from helpers.models.load import load
from helpers.models.shapes import words_tokenizer
from helpers.models.tokens import answer_ids, prompt_ids
from helpers.models.weights import prepare

TEXTS = ["The mother tongue of Danielle Darrieux is", "Turkey borders", "Lac de Genève – 東京 🙂"]


@pytest.mark.parametrize("size", [1000, 32000, 50257])
def test_a_cut_tokenizer_reads_and_writes_every_text(size):
    folder = prepare("smollm2-135m")
    whole, cut = AutoTokenizer.from_pretrained(folder), words_tokenizer(folder, size)
    for text in TEXTS:
        ids = cut(text)["input_ids"]
        assert max(ids) < size
        assert cut.decode(ids) == text
        if size > len(whole):
            assert ids == whole(text)["input_ids"]
    if size == 32000:  # nearly as short as with all words
        ours, all_words = (sum(len(t(text)["input_ids"]) for text in TEXTS) for t in (cut, whole))
        assert all_words <= ours <= 1.2 * all_words


def test_a_shape_has_the_embedded_models_words_and_contexts(monkeypatch):
    tiny = shapes._llama(32, 48, 2, 4, 2, vocab_size=32000)
    monkeypatch.setitem(shapes.SHAPES, "tiny", tiny)
    language_model = load("shape:tiny")
    assert len(prompt_ids(language_model, TEXTS[0])) < 12
    assert len(answer_ids(language_model, "Turkey")) <= 2
    assert language_model.model.config.eos_token_id < 32000
    found = context_templates(language_model, [(5, 5), (10, 5)], grouped=False)
    assert len(set(found.templates)) == 11
    assert torch.isfinite(language_model.model(torch.tensor([[1, 2, 3]])).logits).all()
