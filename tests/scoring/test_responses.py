"""Batched sampling equals plain one-at-a-time sampling, under edits, on every architecture."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
import torch

from helpers.editing.weight_edit import WeightEdit, apply
from helpers.models.tokens import chat_text, prompt_ids
from helpers.scoring import responses as module
from helpers.scoring.responses import Sampling, sample_responses, sample_tokens, uses_chat
from tests.scoring.random_edits import random_edits

ARCHITECTURES = ["gpt2", "gptj", "llama", "qwen2", "mistral", "gemma3"]
ARCHITECTURES += ["qwen3", "olmo2", "gpt_neox", "falcon", "phi3"]
PROMPTS = ["Ada lives in", "x", "The capital of France is the city that people call"]


def one_by_one(model, prompt: str, sample: int, sampling: Sampling) -> str:
    """The plain reference: the whole sequence again for every token, no cache, no batch."""
    draws = np.random.default_rng([sampling.seed, sample, zlib.crc32(prompt.encode())])
    ids = list(prompt_ids(model, prompt))
    start = len(ids)
    for _ in range(sampling.max_new_tokens):
        level = draws.random()
        with torch.no_grad():
            logits = model.network(torch.tensor([ids])).logits[0, -1]
        if sampling.temperature == 0:
            token = int(logits.argmax())
        else:
            cumulative = (logits / sampling.temperature).softmax(-1).double().cumsum(-1)
            token = int((cumulative <= level * cumulative[-1]).sum())
        if token == model.tokenizer.eos_token_id:
            break
        ids.append(token)
    return model.tokenizer.decode(ids[start:], skip_special_tokens=True).strip()


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("temperature", [0, 1.5])
def test_batched_equals_one_by_one_under_edits(tiny, monkeypatch, architecture, temperature):
    model = tiny(architecture)
    updates = random_edits(model)[::4]
    sampling = Sampling(temperature=temperature, max_new_tokens=28, seed=3)
    prompts, owners = PROMPTS * 3, [-1] * 3 + [0] * 3 + [1] * 3
    monkeypatch.setattr(module, "ROWS", 8)
    batched = sample_responses(model, prompts, updates, owners, n=2, sampling=sampling)
    for prompt, owner, responses in zip(prompts, owners, batched, strict=True):
        with apply(model, updates[owner] if owner >= 0 else WeightEdit({})):
            plain = [one_by_one(model, prompt, k, sampling) for k in range(2)]
        assert responses == plain
    same = model, prompts, updates, owners
    first = sample_responses(*same, n=1, sampling=Sampling(temperature=0, max_new_tokens=28))
    mixed = sample_responses(*same, n=2, greedy=True, sampling=sampling)
    assert mixed == [[*one, two[1]] for one, two in zip(first, batched, strict=True)]


def test_a_stop_is_cut_off_once_there_is_text(tiny):
    model = tiny("llama")
    free = Sampling(temperature=1.0, max_new_tokens=40)
    texts = sample_responses(model, PROMPTS, n=4, sampling=free)
    letters = "".join(text[1:] for group in texts for text in group if text)
    stop = next(letter for letter in letters if letter.isascii() and letter.isalpha())
    cut = Sampling(temperature=1.0, max_new_tokens=40, stop=stop)
    for group, again in zip(
        texts, sample_responses(model, PROMPTS, n=4, sampling=cut), strict=True
    ):
        assert again == [text.split(stop)[0].strip() for text in group]
    assert any(stop in text for group in texts for text in group)


def test_a_stop_before_there_is_text_ends_nothing(tiny, monkeypatch):
    model = tiny("llama")
    written = iter(model.tokenizer("\n\n Ada\nBo", add_special_tokens=False)["input_ids"])
    monkeypatch.setattr(module, "_next_tokens", lambda *_: torch.tensor([next(written)]))
    sampling = Sampling(stop="\n", max_new_tokens=20)
    assert sample_responses(model, ["x"], n=1, sampling=sampling) == [["Ada"]]
    assert len(list(written)) == 2  # it was not asked for more


def test_every_configured_end_of_text_ends_a_response(tiny, monkeypatch):
    """Instruct models have more than one, which their tokenizer does not tell."""
    model = tiny("llama")
    sampling = Sampling(temperature=0, max_new_tokens=6)
    ((whole,),) = sample_responses(model, ["x"], n=1, sampling=sampling)
    ((ids,),) = sample_tokens(model, ["x"], None, None, sampling)
    end = next(token for token in ids if token != ids[0])
    monkeypatch.setattr(model.network.generation_config, "eos_token_id", [end, 999])
    ((cut,),) = sample_responses(model, ["x"], n=1, sampling=sampling)
    assert cut == model.tokenizer.decode(ids[: ids.index(end)]).strip() != whole


def test_chat_templates_are_used_where_there_is_one(tiny, monkeypatch):
    model = tiny("qwen2")
    sampling = Sampling(temperature=0, max_new_tokens=8)
    assert not uses_chat(model, sampling)
    with pytest.raises(ValueError, match="has no chat template"):
        sample_responses(model, ["x"], sampling=Sampling(chat=True))
    wrapped = sample_responses(model, ["Q: x A:"], n=1, sampling=sampling)
    template = "{% for m in messages %}Q: {{ m['content'] }} A:{% endfor %}"
    monkeypatch.setattr(model.tokenizer, "chat_template", template)
    assert sample_responses(model, ["x"], n=1, sampling=sampling) == wrapped
    plain = Sampling(temperature=0, max_new_tokens=8, chat=False)
    assert sample_responses(model, ["Q: x A:"], n=1, sampling=plain) == wrapped


def test_a_chat_is_read_in_turns_or_as_paragraphs(tiny, monkeypatch):
    model = tiny("qwen2")
    said = {"system": "Be brief.", "user": "Who?", "assistant": "Ada."}
    chat = [{"role": role, "content": text} for role, text in (*said.items(), ("user", "Where?"))]

    def drawn(prompt, chat=None):
        sampling = Sampling(max_new_tokens=8, chat=chat)
        return sample_tokens(model, [prompt], None, None, sampling)

    assert drawn(chat) == drawn("Be brief.\n\nWho?\nAda.\n\nWhere?")
    turns = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
    monkeypatch.setattr(model.tokenizer, "chat_template", turns)
    expected = "<system>Be brief.<user>Who?<assistant>Ada.<user>Where?"
    assert chat_text(model, chat) == expected
