"""Context templates, corpora and second moments: cached, resumable, tied to their model."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tokenizers.processors import TemplateProcessing

from helpers.editing import moments as module
from helpers.editing.contexts import context_templates
from helpers.editing.corpus import CorpusError, SelfCorpus, TextCorpus, corpus_named
from helpers.editing.moments import SecondMoment, SecondMomentError, second_moments
from helpers.models.tokens import prompt_ids
from helpers.models.weights import PackagedWeights


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("Knowledge is a list, not a slot. " * 40)
    return TextCorpus(path, segment=50)


def keys_of(model, documents: list[list[int]], layer: int) -> torch.Tensor:
    """The plain way: one document at a time through the model's own forward."""
    seen: list[torch.Tensor] = []
    name = model.layout.mlp_out(layer)
    hook = model.module(name).register_forward_hook(lambda _, i, __: seen.append(i[0][0]))
    try:
        for document in documents:
            model.network(torch.tensor([document]))
    finally:
        hook.remove()
    return torch.cat(seen)


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "gemma3"])
def test_second_moment_is_the_uncentred_mean(tiny, monkeypatch, text, architecture):
    model = tiny(architecture)
    monkeypatch.setattr(module, "TOKENS", 120)
    moments = second_moments(model, [0, 2], text)
    for layer, moment in moments.items():
        keys = keys_of(model, list(text.documents(model)), layer)
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
    model = replace(plain, tokenizer=tokenizer)
    assert prompt_ids(model, "Paris")[0] == 7
    (moment,) = second_moments(model, [1], text).values()
    keys = keys_of(plain, [[7, *document] for document in text.documents(plain)], 1)
    torch.testing.assert_close(moment.matrix, keys.T @ keys / len(keys), atol=1e-5, rtol=1e-4)
    assert (moment.tokens, moment.corpus) == (len(keys), f"{text.name}-bos")


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


def test_an_interrupted_computation_resumes(tiny, tmp_path, text, monkeypatch):
    model = tiny("llama")
    calls = interrupt(monkeypatch, 20)
    monkeypatch.setattr(module, "SAVE_EVERY", 0.0)  # after every document
    monkeypatch.setattr(module, "TOGETHER", 1)
    monkeypatch.setattr(module, "TOKENS", 50)
    with pytest.raises(KeyboardInterrupt):
        second_moments(model, [1], text)
    found = second_moments(model, [1], text)
    batches = len(list(text.documents(model)))
    assert len(calls) == batches + 1  # the one that was interrupted
    assert not list((tmp_path / "cache").rglob("*.partial-*"))
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path / "another"))
    monkeypatch.setattr(module, "TOKENS", 100)
    whole = second_moments(model, [1], text)
    torch.testing.assert_close(found[1].matrix, whole[1].matrix, atol=1e-5, rtol=1e-4)


def test_too_few_tokens_are_singular(tiny, tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("too short")
    moments = second_moments(tiny("llama"), [1], TextCorpus(path))
    with pytest.raises(SecondMomentError, match="use more tokens"):
        moments[1].solve(torch.ones(48))


def test_corpora_by_name(tmp_path):
    assert corpus_named("self") == SelfCorpus()
    assert corpus_named("self-8x16", seed=2) == SelfCorpus(8, 16, seed=2)
    assert corpus_named("wikipedia").name.startswith("wikipedia")
    assert corpus_named("smollm2-135m").path.read_text("utf-8").count(" the ") > 1_000
    for bad in ("selfish", "self-8", str(tmp_path / "none.txt")):
        with pytest.raises(CorpusError):
            corpus_named(bad)


def test_context_templates_are_cached_and_weighted(tiny, tmp_path):
    model = tiny("llama")
    plain = context_templates(model, [(5, 5), (8, 5)], grouped=False)
    assert len(plain.templates) == 11
    assert plain.templates[0] == "{}"
    assert plain.weights == pytest.approx([1 / 11] * 11)
    grouped = context_templates(model, [(5, 5), (8, 5)], grouped=True)
    assert grouped.templates == plain.templates
    assert grouped.weights == pytest.approx([0.5] + [0.05] * 10)
    assert context_templates(model, [], grouped=True).templates == ("{}",)


def packaged(moment: SecondMoment, root: Path, tmp_path: Path) -> None:
    """Move a moment from the cache into the package, as it is stored there."""
    name = f"layer{moment.layer}.safetensors"
    path = tmp_path / "packaged" / "samples" / root.parent.name / root.name / name
    path.parent.mkdir(parents=True)
    rows, columns = torch.triu_indices(*moment.matrix.shape)
    about = {
        "tokens": moment.tokens,
        "layer": moment.layer,
        "fingerprint": moment.fingerprint,
        "corpus": moment.corpus,
    }
    save_file({"upper": moment.matrix[rows, columns]}, path, {"about": json.dumps(about)})
    for file in root.iterdir():
        file.unlink()


def test_packaged_statistics_are_taken_in_place_of_new_ones(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PACKAGED", tmp_path / "packaged")
    model, corpus = tiny("llama"), SelfCorpus(count=2, segment=8)
    made = second_moments(model, [1], corpus)[1]
    (root,) = (tmp_path / "cache" / "second_moments" / made.fingerprint).iterdir()
    packaged(made, root, tmp_path)
    monkeypatch.setattr(module, "_summed_keys", None)  # nothing is made
    again = second_moments(model, [1], corpus)[1]
    assert torch.equal(again.matrix, made.matrix)
    assert (again.tokens, again.corpus) == (made.tokens, made.corpus)


def test_another_type_of_a_packaged_model_takes_those_of_float32(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PACKAGED", tmp_path / "packaged")
    model, corpus = tiny("llama"), SelfCorpus(count=2, segment=8)
    half = replace(model, network=copy.deepcopy(model.network).to(torch.bfloat16))
    made = second_moments(model, [1], corpus)[1]
    (root,) = (tmp_path / "cache" / "second_moments" / made.fingerprint).iterdir()
    packaged(made, root, tmp_path)
    weights = PackagedWeights(
        (),
        (),
        sha256="",
        licence="",
        fingerprint=model.fingerprint,
        other_fingerprints={"bfloat16": half.fingerprint},
    )
    monkeypatch.setitem(module.PACKAGED_WEIGHTS, model.name, weights)
    monkeypatch.setattr(module, "_summed_keys", None)  # nothing is made
    again = second_moments(half, [1], corpus)[1]
    assert torch.equal(again.matrix, made.matrix)
    assert (again.tokens, again.corpus) == (made.tokens, f"{made.corpus} in float32")
    assert second_moments(model, [1], corpus)[1].corpus == made.corpus
    half.weight(half.layout.mlp_out(1)).add_(1)  # other weights, other keys
    with pytest.raises(TypeError):
        second_moments(half, [1], corpus)
