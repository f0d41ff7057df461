"""KN on every architecture, its attribution against captum, and against the authors' own code."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import IntegratedGradients as Captum

from helpers import models
from helpers.editing import kn as kn_module
from helpers.editing.app import App
from helpers.editing.contexts import ContextTemplates
from helpers.editing.kn import Kn, KnHyperparameters
from helpers.editing.request import EditRequest, RequestError
from helpers.editing.update import ColumnSparse, apply
from helpers.locating.attribution import integrated_gradients
from helpers.locating.query import Query
from helpers.locating.slots import greedy_tokens
from helpers.models.tokens import answer_ids, prompt_ids
from helpers.scoring.answers import Question, score_answers

ARCHITECTURES = ["gpt2", "gptj", "llama", "qwen2", "mistral", "gemma3"]


def kn(language_model, contexts=("{}",), **more: Any) -> Kn:
    settings = KnHyperparameters(**{"steps": 4, **more})
    return Kn(language_model, settings, ContextTemplates((tuple(contexts),)))


def attributed(language_model, prompt, token, **more: Any) -> torch.Tensor:
    """Attributions of one token after a prompt, [layers, neurons]."""
    query = Query("", prompt, len(prompt) - 1, token, None)
    return integrated_gradients(language_model, query, **more)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_update_is_one_vector_in_the_chosen_columns(tiny, requests, architecture) -> None:
    language_model = tiny(architecture)
    (update,) = kn(language_model, lambda_old=2.0, lambda_new=3.0).edit(requests[:1])
    new = list(answer_ids(language_model, requests[0].target))
    prompt = prompt_ids(language_model, requests[0].text)
    (old,) = greedy_tokens(language_model, [prompt], len(new))
    embeddings = language_model.model.get_input_embeddings().weight
    vector = 3 * embeddings[new].sum(0) - 2 * embeddings[list(old)].sum(0)
    chosen = {
        (language_model.layout.layer_of(module), column)
        for module, delta in update.items()
        for column in delta.columns.tolist()
    }
    assert chosen == {tuple(neuron) for neuron in update.diagnostics["neurons"]} != set()
    for delta in update.values():
        assert isinstance(delta, ColumnSparse)
        dense = delta.dense()
        assert torch.linalg.matrix_rank(dense) == 1
        torch.testing.assert_close(dense[:, delta.columns[0]], vector)
        assert int((dense != 0).any(0).sum()) == len(delta.columns)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("at", ["activation", "gate"])
def test_batched_equals_one_by_one(tiny, requests, architecture, at) -> None:
    editor = kn(tiny(architecture), at=at)
    together = editor.edit(requests)
    for request, one in zip(requests, together, strict=True):
        (other,) = editor.edit([request])
        assert one.diagnostics["neurons"] == other.diagnostics["neurons"]
        for module in one:
            torch.testing.assert_close(one[module].dense(), other[module].dense())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_overlay_equals_applied_weights(tiny, requests, target_scores, architecture) -> None:
    language_model = tiny(architecture)
    updates = kn(language_model).edit(requests)
    overlaid = target_scores(language_model, requests, updates)
    changes = (overlaid - target_scores(language_model, requests)).abs()
    assert (changes > 1e-3).all()  # KN promises a change, not a gain
    for request, update, score in zip(requests, updates, overlaid, strict=True):
        with apply(language_model, update):
            written = target_scores(language_model, [request])
        torch.testing.assert_close(score[None], written, rtol=0, atol=1e-4)


@pytest.mark.parametrize("architecture", ["gpt2", "gptj", "llama"])
@pytest.mark.parametrize("at", ["activation", "gate"])
def test_attribution_agrees_with_captum(tiny, architecture, at) -> None:
    language_model = tiny(architecture)
    prompt, token = prompt_ids(language_model, "Mars is a planet near"), 17
    found = attributed(language_model, prompt, token, steps=200, at=at)
    ids = torch.tensor([prompt])
    layout = language_model.layout
    for layer in (0, 3):
        name = layout.mlp_out(layer) if at == "activation" else layout.gate(layer)
        module = language_model.module(name)
        place: list[Any] = [None]  # what is put in at the last token; None: only look

        def change(tensor: torch.Tensor, place: list[Any] = place) -> torch.Tensor:
            if place[0] is None:
                place[:] = [None, tensor[0, -1].clone()]
                return tensor
            changed = tensor.clone()
            changed[:, -1] = place[0]
            return changed

        if at == "activation":
            handle = module.register_forward_pre_hook(lambda m, i, c=change: (c(i[0]), *i[1:]))
        else:
            handle = module.register_forward_hook(lambda m, i, o, c=change: c(o))
        try:
            with torch.no_grad():
                language_model.model(input_ids=ids)
            activation = place[1]

            def probability(values: torch.Tensor, place: list[Any] = place) -> torch.Tensor:
                place[0] = values
                logits = language_model.model(input_ids=ids.expand(len(values), -1)).logits
                return logits[:, -1].softmax(-1)[:, token]

            expected = Captum(probability).attribute(activation[None], n_steps=50)[0]
        finally:
            handle.remove()
        scale = float(expected.abs().max())
        np.testing.assert_allclose(found[layer], expected, atol=0.02 * scale)


def test_one_step_is_the_gradient_at_zero(tiny) -> None:
    """With m = 1 there is a single point, alpha = 0: scaling the gate to zero."""
    language_model = tiny("llama")
    prompt, token = prompt_ids(language_model, "Mars is a planet near"), 17
    found = attributed(language_model, prompt, token, steps=1, at="gate")
    ids = torch.tensor([prompt])
    seen: dict[str, torch.Tensor] = {}

    def silence(module: object, inputs: object, output: torch.Tensor) -> torch.Tensor:
        seen["activation"] = output[0, -1].detach()
        seen["zero"] = torch.zeros_like(seen["activation"]).requires_grad_()
        return torch.cat([output[:, :-1], seen["zero"][None, None]], dim=1)

    handle = language_model.module(language_model.layout.gate(2)).register_forward_hook(silence)
    probability = language_model.model(input_ids=ids).logits[0, -1].softmax(-1)[token]
    handle.remove()
    (gradient,) = torch.autograd.grad(probability, seen["zero"])
    torch.testing.assert_close(found[2], seen["activation"] * gradient, rtol=1e-3, atol=1e-8)


def test_longer_answers_are_attributed_after_the_models_own_words(tiny) -> None:
    language_model = tiny("mistral")
    editor = kn(language_model)
    request = EditRequest("Mars", "{} is a planet near", "Venus", ("Io",))
    (found,) = editor.attributions(request)
    prompt = prompt_ids(language_model, request.text)
    tokens = answer_ids(language_model, "Io")
    (own,) = greedy_tokens(language_model, [prompt], len(tokens) - 1)
    parts = [editor._attribution((*prompt, *own[:i]), token) for i, token in enumerate(tokens)]
    assert len(parts) == 3  # blank, I, o
    torch.testing.assert_close(found, torch.stack(parts).mean(0))


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_greedy_tokens_are_the_models_own(tiny, architecture) -> None:
    language_model = tiny(architecture)
    prompts = [
        prompt_ids(language_model, text) for text in ("A short one", "Two", "A third, longer")
    ]
    found = greedy_tokens(language_model, prompts, 5)
    for prompt, tokens in zip(prompts, found, strict=True):
        ids = list(prompt)
        for _ in range(5):
            logits = language_model.model(input_ids=torch.tensor([ids])).logits
            ids.append(int(logits[0, -1].argmax()))
        assert tokens == tuple(ids[len(prompt) :])


def test_coarse_and_refined_sets(tiny) -> None:
    editor = kn(tiny("llama"), adaptive_threshold=0.5, p=0.4)
    one = torch.tensor([[10.0, 5.0, 5.1], [-20.0, 6.0, 0.0]])  # [layers, neurons]
    assert editor.neurons(one[None]).tolist() == [[True, False, True], [False, True, False]]
    two = torch.tensor([[10.0, 0.0, 0.0], [0.0, 0.0, 9.0]])
    three = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    # In more than 40 % of three prompts: in at least two.
    refined = editor.neurons(torch.stack([one, two, three]))
    assert refined.tolist() == [[True, False, False], [False, True, False]]
    assert not editor.neurons(-one.abs()[None]).any()
    # The threshold is one for all layers, and 40 % of five prompts are not more than 40 %.
    low = torch.tensor([[10.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    assert editor.neurons(low[None]).tolist() == [[True, False, False], [False, False, False]]
    refined = editor.neurons(torch.stack([low, low, three, three, three]))
    assert refined.tolist() == [[False, False, False], [False, True, False]]


def test_contexts_give_the_refined_set_its_prompts(tiny, requests) -> None:
    language_model = tiny("llama")
    several = kn(language_model, ("{}", "The sea. {}", "I know. {}"), p=0.5)
    attributions = several.attributions(requests[0])
    assert attributions.shape == (3, 4, 48)
    (bare,) = kn(language_model).attributions(requests[0])
    torch.testing.assert_close(attributions[0], bare)
    (update,) = several.edit(requests[:1])
    assert update.diagnostics["neurons"] == several.neurons(attributions).nonzero().tolist()
    (none,) = kn(language_model, ("{}", "The sea. {}"), p=0.99, adaptive_threshold=0.99).edit(
        requests[:1]
    )
    assert none.failed == (len(none) == 0)


def test_the_old_answer_weighs_more_where_the_new_one_is_a_single_token(tiny) -> None:
    language_model = tiny("llama")
    vectors = {}
    for one_token in (None, 5.0):
        editor = kn(language_model, lambda_old=1.0, lambda_old_one_token=one_token)
        vectors[one_token] = editor._vector([7], [9]), editor._vector([7, 8], [9, 10])
    table = language_model.model.get_input_embeddings().weight
    torch.testing.assert_close(vectors[None][0] - vectors[5.0][0], 4 * table[7])
    torch.testing.assert_close(vectors[None][1], vectors[5.0][1])


def test_bad_input_is_named(tiny, requests) -> None:
    language_model = tiny("llama")
    with pytest.raises(ValueError, match="APP cannot be added"):
        Kn(language_model, KnHyperparameters(), app=App())
    unknown = EditRequest("Mars", "{} is near", "Venus", record="case 7")
    with pytest.raises(RequestError, match=r"record 'case 7': .* first of `correct`"):
        kn(language_model).edit([requests[0], unknown])


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
@pytest.mark.parametrize(
    ("subject", "target"), [("Mars " * 200, "Venus"), ("Mars", "Venus " * 200)]
)
def test_what_exceeds_the_context_is_named(tiny, architecture, subject, target) -> None:
    long = EditRequest(subject, "{} is near", target.strip(), ("Io",), record="case 8")
    with pytest.raises(RequestError, match=r"record 'case 8': .* exceed the context of 512"):
        kn(tiny(architecture)).edit([long])


def test_agrees_with_the_authors_code(reference_folder, data_folder, monkeypatch) -> None:
    """Their KN: one step, at the gate, answers tokenised without their blank (a slip)."""
    language_model = models.load("smollm2-135m")
    reference = json.loads((reference_folder / "peak_authors_code_smollm2.json").read_text())
    peak = json.loads((data_folder / "peak" / "PEAK_counter.json").read_text())
    records = reference["methods"]["KN"]["records"]
    requests = []
    for record in records:
        source = peak[record["index"]]
        edit = source["requested_rewrite"]
        correct = tuple(source["postive_list"])
        requests.append(
            EditRequest(edit["subject"], edit["prompt"], edit["target_new"]["str"], correct)
        )
    encode = language_model.tokenizer
    monkeypatch.setattr(
        kn_module,
        "answer_ids",
        lambda _, a, __: tuple(encode(a, add_special_tokens=False)["input_ids"]),
    )
    updates = kn(language_model, steps=1, at="gate", lambda_old_one_token=2.0).edit(requests)
    questions = [Question(r.text, (r.target, *r.correct)) for r in requests]
    after = score_answers(language_model, questions, updates, range(len(requests)))
    for i, (record, update) in enumerate(zip(records, updates, strict=True)):
        assert update.diagnostics["neurons"] == record["neurons"]
        scores = record["nll_post"]["rewrite_prompts_probs"][0]
        found = -after.loc[after.question == i, "mean"].to_numpy()
        np.testing.assert_allclose(
            found, [scores["target_new"], *scores["positive_list"]], atol=1e-3
        )
