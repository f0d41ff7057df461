"""Context templates, corpora and second moments: cached, resumable, tied to their model."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers.processors import TemplateProcessing

from helpers.editing import moments as module
from helpers.editing.contexts import ContextTemplates, context_templates
from helpers.editing.corpus import CorpusError, SelfCorpus, TextCorpus, corpus_named
from helpers.editing.moments import (
    SecondMomentError,
    missing_layers,
    moments_folder,
    second_moment,
)
from helpers.editing.presets import read_hyperparameters
from helpers.models.tokens import prompt_ids
from helpers.models.weights import PACKAGED_WEIGHTS


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("Knowledge is a list, not a slot. " * 40)
    return TextCorpus(path, segment=50)


def keys_of(language_model, documents: list[list[int]], layer: int) -> torch.Tensor:
    """The plain way: one document at a time through the model's own forward."""
    seen: list[torch.Tensor] = []
    name = language_model.layout.mlp_out(layer)
    hook = language_model.module(name).register_forward_hook(lambda _, i, __: seen.append(i[0][0]))
    try:
        for document in documents:
            language_model.model(torch.tensor([document]))
    finally:
        hook.remove()
    return torch.cat(seen)


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "gemma3"])
def test_second_moment_is_the_uncentred_mean(tiny, tmp_path, text, architecture):
    language_model = tiny(architecture)
    moments = second_moment(language_model, [0, 2], text, token_budget=120, folder=tmp_path)
    for layer, moment in moments.items():
        keys = keys_of(language_model, list(text.documents(language_model)), layer)
        torch.testing.assert_close(moment.matrix, keys.T @ keys / len(keys), atol=1e-5, rtol=1e-4)
        assert moment.tokens == len(keys)
        k = torch.randn(48)
        torch.testing.assert_close(
            moment.matrix.double() @ moment.solve(k), k.double(), atol=1e-4, rtol=1e-3
        )


def test_documents_are_read_after_what_stands_before_every_prompt(tiny, tmp_path, text):
    plain = tiny("llama")
    tokenizer = copy.deepcopy(plain.tokenizer)
    first = tokenizer.convert_ids_to_tokens(7)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{first} $A", special_tokens=[(first, 7)]
    )
    language_model = replace(plain, tokenizer=tokenizer)
    assert prompt_ids(language_model, "Paris")[0] == 7
    (moment,) = second_moment(language_model, [1], text, folder=tmp_path).values()
    keys = keys_of(plain, [[7, *document] for document in text.documents(plain)], 1)
    torch.testing.assert_close(moment.matrix, keys.T @ keys / len(keys), atol=1e-5, rtol=1e-4)
    assert (moment.tokens, moment.corpus) == (len(keys), f"{text.name}-bos")


def test_documents_end_with_the_context(tiny, tmp_path, text):
    language_model = tiny("llama")
    long = replace(text, segment=600)
    (moment,) = second_moment(language_model, [1], long, folder=tmp_path).values()
    documents = list(long.documents(language_model))
    assert max(map(len, documents)) == 600
    keys = keys_of(language_model, [document[:512] for document in documents], 1)
    assert moment.tokens == len(keys) < sum(map(len, documents))
    torch.testing.assert_close(moment.matrix, keys.T @ keys / len(keys), atol=1e-5, rtol=1e-4)


def interrupt(monkeypatch, at: int) -> list[int]:
    """Interrupt the computation at its ``at``-th batch, once; the list returned counts the batches."""
    plain, calls = module._keys, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == at:
            raise KeyboardInterrupt
        return plain(*arguments)

    monkeypatch.setattr(module, "_keys", interrupted)
    return calls


def test_an_interrupted_computation_goes_on(tiny, tmp_path, text, monkeypatch):
    language_model = tiny("llama")
    whole = second_moment(language_model, [1], text, token_budget=100, folder=tmp_path / "a")
    calls = interrupt(monkeypatch, 20)
    monkeypatch.setattr(module, "SAVE_EVERY", 0.0)  # after every batch
    for _ in range(2):
        try:
            found = second_moment(language_model, [1], text, token_budget=50, folder=tmp_path / "b")
        except KeyboardInterrupt:
            continue
    batches = len(list(text.documents(language_model)))
    assert len(calls) == batches + 1  # the one that was interrupted
    torch.testing.assert_close(found[1].matrix, whole[1].matrix, atol=1e-5, rtol=1e-4)


def test_a_run_that_ends_while_it_writes_is_not_read_again(tiny, tmp_path, text, monkeypatch):
    language_model = tiny("llama")
    plain = module.save

    def full_disk(moment, path):
        if moment.layer == 1:
            raise OSError("no space left on device")
        plain(moment, path)

    monkeypatch.setattr(module, "SAVE_EVERY", 0.0)
    monkeypatch.setattr(module, "save", full_disk)
    with pytest.raises(OSError, match="no space"):
        second_moment(language_model, [0, 1], text, folder=tmp_path)
    monkeypatch.setattr(module, "save", plain)
    monkeypatch.setattr(module, "_keys", None)  # reading a document again would fail
    assert set(second_moment(language_model, [0, 1], text, folder=tmp_path)) == {0, 1}
    assert not list(tmp_path.glob("*.partial-*"))


def test_statistics_of_other_layers_leave_an_interrupted_run_alone(
    tiny, tmp_path, text, monkeypatch
):
    language_model = tiny("llama")
    interrupt(monkeypatch, 5)
    monkeypatch.setattr(module, "SAVE_EVERY", 0.0)
    with pytest.raises(KeyboardInterrupt):
        second_moment(language_model, [0, 1], text, token_budget=50, folder=tmp_path)
    second_moment(language_model, [1], text, token_budget=50, folder=tmp_path)
    assert list(tmp_path.glob("sums-0-1.partial-*"))
    both = second_moment(language_model, [0, 1], text, token_budget=50, folder=tmp_path)
    whole = second_moment(language_model, [0, 1], text, folder=tmp_path / "whole")
    for layer in (0, 1):
        torch.testing.assert_close(both[layer].matrix, whole[layer].matrix, atol=1e-5, rtol=1e-4)
    assert not list(tmp_path.glob("*.partial-*"))


def test_statistics_carry_their_model(tiny, tmp_path, text):
    second_moment(tiny("llama"), [1], text, folder=tmp_path)
    with pytest.raises(SecondMomentError, match="compute it again"):
        second_moment(tiny("llama", 1), [1], text, folder=tmp_path)


def test_too_few_tokens_are_singular(tiny, tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("too short")
    moments = second_moment(tiny("llama"), [1], TextCorpus(path), folder=tmp_path)
    with pytest.raises(SecondMomentError, match="use more tokens"):
        moments[1].solve(torch.ones(48))


def test_self_corpus_is_seeded_and_cached(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path))
    monkeypatch.setattr(SelfCorpus, "batch", 2)
    corpus = SelfCorpus(count=5, segment=7)
    first = list(corpus.documents(tiny("llama")))
    assert [len(document) for document in first] == [7] * 5
    assert list(corpus.documents(tiny("llama"))) == first
    other = list(SelfCorpus(count=5, segment=7, seed=1).documents(tiny("llama")))
    assert other != first


def test_corpora_by_name(tmp_path):
    assert corpus_named("self") == SelfCorpus()
    assert corpus_named("self-8x16", seed=2) == SelfCorpus(8, 16, seed=2)
    assert corpus_named("wikipedia").name.startswith("wikipedia")
    for bad in ("selfish", "self-8", str(tmp_path / "none.txt")):
        with pytest.raises(CorpusError):
            corpus_named(bad)


def test_context_templates_are_cached_and_weighted(tiny, tmp_path):
    language_model = tiny("llama")
    plain = context_templates(language_model, [(5, 5), (8, 5)], grouped=False, folder=tmp_path)
    assert len(plain.templates) == 11
    assert plain.templates[0] == "{}"
    assert plain.weights == pytest.approx([1 / 11] * 11)
    grouped = context_templates(language_model, [(5, 5), (8, 5)], grouped=True, folder=tmp_path)
    assert grouped.templates == plain.templates
    assert grouped.weights == pytest.approx([0.5] + [0.05] * 10)
    assert context_templates(language_model, [], grouped=True, folder=tmp_path).templates == ("{}",)


def test_templates_of_another_seed_or_start_are_others(tiny, tmp_path):
    language_model = tiny("llama")
    one, seeded, started = (
        context_templates(language_model, [(9, 5)], grouped=False, folder=tmp_path, **how)
        for how in ({}, {"seed": 1}, {"start": "end_of_text"})
    )
    assert len({one, seeded, started}) == 3
    words = zip(one.templates[1:], ("The", "Therefore", "Because", "I", "You"), strict=True)
    assert all(text.startswith(word) for text, word in words)


def test_the_length_of_a_template_counts_its_start(tiny, tmp_path, monkeypatch):
    model, made = tiny("llama").model, []
    generate = model.generate
    monkeypatch.setattr(model, "generate", lambda **how: made.append(generate(**how)) or made[-1])
    context_templates(tiny("llama"), [(16, 5)], grouped=False, folder=tmp_path)
    assert {tokens.shape[1] for tokens in made} == {16}


def test_short_templates_are_no_beginnings_of_long_ones(tiny, tmp_path):
    sampled = context_templates(tiny("llama"), [(16, 5), (24, 5)], grouped=False, folder=tmp_path)
    texts = [template.removesuffix(". {}") for template in sampled.templates[1:]]
    assert len(set(texts)) == 10
    assert not any(long.startswith(short) for short in texts[:5] for long in texts[5:])


def test_bad_templates(tiny, tmp_path):
    with pytest.raises(ValueError, match="bare"):
        ContextTemplates((("Before. {}",),))
    with pytest.raises(ValueError, match="exactly one"):
        ContextTemplates((("{}", "none"),))
    with pytest.raises(ValueError, match="evenly"):
        context_templates(tiny("llama"), [(5, 3)], grouped=False, folder=tmp_path)


def test_one_line_names_what_is_made_and_how_long_it_takes(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path))
    for _ in range(2):  # nothing is made, or told, again
        second_moment(tiny("llama"), [0, 1], SelfCorpus(count=2, segment=8))
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("making")]
    (line,) = told
    assert "second moments of layers 0, 1 over self-2x8-seed0, once for tiny-llama: about" in line


def test_packaged_statistics_are_taken_in_place_of_new_ones(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "PACKAGED", tmp_path / "packaged")
    language_model, corpus = tiny("llama"), SelfCorpus(count=2, segment=8)
    made = second_moment(language_model, [1], corpus)[1]
    root = moments_folder(language_model.fingerprint, corpus, prefixed=False)
    path = module.packaged_file(root, 1)
    path.parent.mkdir(parents=True)
    module.pack(made, path)
    for file in root.iterdir():
        file.unlink()
    assert missing_layers([0, 1], root) == [0]
    monkeypatch.setattr(module, "sum_keys", None)  # nothing is made
    again = second_moment(language_model, [1], corpus)[1]
    assert torch.equal(again.matrix, made.matrix)
    assert (again.tokens, again.corpus) == (made.tokens, made.corpus)


def test_the_embedded_models_rome_layer_is_packaged():
    fingerprint = PACKAGED_WEIGHTS["smollm2-135m"].fingerprint
    (layer,) = read_hyperparameters("rome", "smollm2-135m", "tuned").layers
    root = Path(fingerprint, SelfCorpus().name)
    moment = module.unpacked(module.packaged_file(root, layer))
    assert moment.matrix.shape == (1536, 1536)
    assert (moment.layer, moment.fingerprint) == (layer, fingerprint)
    assert torch.linalg.eigvalsh(moment.matrix.double()).min() > 0
