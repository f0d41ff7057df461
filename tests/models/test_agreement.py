"""A model whose scores by this package are not its own is refused when it is loaded, with the reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, processors

from helpers.editing.contexts import context_templates
from helpers.editing.corpus import SelfCorpus
from helpers.models import ARCHITECTURES, LanguageModel
from helpers.models.architectures import ModelError
from helpers.models.load import _ready
from helpers.models.shapes import byte_tokenizer, random_model
from helpers.models.tokens import answer_ids, prompt_ids
from helpers.scoring.answers import Question, score_answers
from helpers.scoring.responses import Sampling, sample_responses
from tests.conftest import TINY

_LLAMA = TINY["llama"]
_PLACES = {"rope_theta": 1e4, "original_max_position_embeddings": 64}
_LONGROPE = {
    "rope_parameters": {
        **_PLACES,
        "rope_type": "longrope",
        "short_factor": [1.0] * 4,
        "long_factor": [4.0] * 4,
    }
}


def load(settings: dict[str, Any], tokenizer: Any = None, dtype=torch.float32) -> LanguageModel:
    parts = random_model(settings, seed=0, dtype=dtype, device="cpu", tokenizer=tokenizer)
    return _ready(LanguageModel("odd", *parts))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {**TINY["gemma3"], "final_logit_softcapping": 5.0},
            r"differ alone by.*final_logit_softcap",
        ),
        ({**_LLAMA, "model_type": "cohere"}, r"differ alone by.*logit_scale=0\.0625"),
        ({**_LLAMA, "model_type": "granite", "logits_scaling": 4.0}, r"logits_scaling=4\.0"),
        ({**TINY["gemma3"], "model_type": "gemma2"}, "softcap"),
        ({**TINY["falcon"], "alibi": True}, r"cannot be computed alone.*alibi=True"),
    ],
)
def test_a_model_with_scores_of_its_own_is_refused(monkeypatch, settings, message, dtype):
    for name in ("cohere", "granite", "gemma2"):  # as a user may add them
        monkeypatch.setitem(ARCHITECTURES, name, ARCHITECTURES["llama"])
    with pytest.raises(ModelError, match=message):
        load(settings, dtype=dtype)


def test_frequencies_that_the_longest_row_decides_are_refused(monkeypatch):
    length = LanguageModel.context_length.fget
    monkeypatch.setattr(LanguageModel, "context_length", property(lambda m: length(m) + 1))
    with pytest.raises(ModelError, match=r"differ in a batch with a longer text.*longrope"):
        load({**TINY["phi3"], **_LONGROPE})


def test_a_tokenizer_that_appends_a_token_is_refused():
    tokenizer = byte_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <|end|>", special_tokens=[("<|end|>", tokenizer.eos_token_id)]
    )
    with pytest.raises(ModelError, match=r"'<\|end\|>'\], which is not the prompt and then"):
        load(_LLAMA, tokenizer)


def test_a_type_that_overflows_is_refused():
    model, tokenizer = random_model(_LLAMA, seed=0, dtype=torch.float16, device="cpu")
    model.lm_head.weight.data *= 1e5
    with pytest.raises(ModelError, match="no numbers in float16; use another dtype"):
        _ready(LanguageModel("odd", model, tokenizer))


def _no_special_tokens() -> Any:
    tokenizer = byte_tokenizer()
    for name in ("bos", "eos", "pad"):
        setattr(tokenizer, f"{name}_token", None)
    return tokenizer


def _padding_without_a_row() -> Any:
    tokenizer = byte_tokenizer()
    tokenizer.pad_token = AddedToken("<pad>", special=True)
    tokenizer.add_special_tokens({"pad_token": "<pad>"})
    return tokenizer


def _segments() -> Any:
    tokenizer = byte_tokenizer()
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    return tokenizer


@pytest.mark.parametrize(
    ("settings", "tokenizer"),
    [
        (_LLAMA, _no_special_tokens()),
        ({**_LLAMA, "vocab_size": 257, "pad_token_id": None}, _padding_without_a_row()),
        (_LLAMA, _segments()),
        (TINY["gpt2"], _segments()),
        ({**TINY["gpt2"], "n_positions": 64}, None),
        ({**_LLAMA, "rope_parameters": {"rope_type": "dynamic", "factor": 4.0, **_PLACES}}, None),
        ({**TINY["phi3"], **_LONGROPE}, None),
    ],
    ids=["no special tokens", "padding", "segments", "segments gpt2", "64", "dynamic", "longrope"],
)
def test_an_odd_model_is_used_as_it_is(settings, tokenizer, tmp_path, monkeypatch):
    """Scores in a batch are the model's own up to the end of the context, and texts can be sampled."""
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path))
    language_model = load(settings, tokenizer)
    long = "x" * (language_model.context_length - 1)
    found = score_answers(language_model, [Question(long, ("a",)), Question("a b", ("c",))])
    for question, total in zip((long, "a b"), found.groupby("question")["sum"].sum(), strict=True):
        answer = ("a", "c")[question == "a b"]
        prompt, ids = prompt_ids(language_model, question), answer_ids(language_model, answer)
        with torch.no_grad():
            own = language_model.model(torch.tensor([[*prompt, *ids][:-1]])).logits[0]
        scores = own.log_softmax(-1)[-len(ids) :]
        own_total = float(scores[range(len(ids)), list(ids)].sum())
        np.testing.assert_allclose(total, own_total, atol=1e-4)
    sampling = Sampling(max_new_tokens=4)
    assert len(sample_responses(language_model, ["a", "b c"], n=2, sampling=sampling)) == 2
    assert len(context_templates(language_model, [(5, 5)], grouped=False).templates) == 6
    documents = list(SelfCorpus(count=2).documents(language_model))
    assert {len(document) for document in documents} == {min(128, language_model.context_length)}
