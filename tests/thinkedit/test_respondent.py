"""A language model as the pipeline sees it."""

from helpers.scoring.responses import Sampling
from helpers.thinkedit.grow.language import ModelRespondent


def test_responses_depend_on_the_seed_and_not_on_the_rows(tiny):
    sampling = Sampling(max_new_tokens=6, temperature=1.0)
    wide = ModelRespondent(tiny("llama"), sampling)
    narrow = ModelRespondent(tiny("llama"), sampling, rows=1)
    prompts = ["Ada lives in", "x"]
    assert wide.respond(prompts, n=2, seed=1) == narrow.respond(prompts, n=2, seed=1)
    assert wide.respond(prompts, n=2, seed=1) != wide.respond(prompts, n=2, seed=2)
    assert wide.fingerprint == narrow.fingerprint


def test_the_fingerprint_tells_weights_and_sampling_apart(tiny):
    first = ModelRespondent(tiny("llama"))
    assert first.fingerprint != ModelRespondent(tiny("llama", seed=1)).fingerprint
    hot = ModelRespondent(tiny("llama"), Sampling(max_new_tokens=64, temperature=2.0))
    assert first.fingerprint != hot.fingerprint
    assert first.fingerprint == ModelRespondent(tiny("llama")).fingerprint


def test_completions_end_at_an_empty_line_and_chats_do_not(tiny, monkeypatch):
    language_model = tiny("qwen2")
    assert not ModelRespondent(language_model).chat
    assert r"stop='\n\n'" in ModelRespondent(language_model).fingerprint
    monkeypatch.setattr(language_model.tokenizer, "chat_template", "{{ messages }}")
    assert ModelRespondent(language_model).chat
    assert "stop=None" in ModelRespondent(language_model).fingerprint
