"""Every locator against the plain computation, on every architecture, causal and masked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from helpers import UserError
from helpers.locating import attribution
from helpers.locating.attribution import causal_trace, embedding_deviation, integrated_gradients
from helpers.locating.locators import (
    ActivationMagnitude,
    CausalTracing,
    ConstantScores,
    Fisher,
    GradientActivation,
    IntegratedGradients,
    Locator,
    LogitAttribution,
    RandomScores,
    WeightSaliency,
    pool,
)
from helpers.locating.query import LocatorError, Query, Sentence, encode
from helpers.locating.slots import own_answers
from helpers.models import LanguageModel
from helpers.models.tokens import TokenError

Tiny = Callable[..., LanguageModel]
SENTENCES = (
    Sentence("the capital of Utopia is _", "Amaurot", "Utopia"),
    Sentence("in Utopia people _", "Latin", "Utopia"),
)


@pytest.fixture
def queries(any_model: LanguageModel) -> list[Query]:
    """Two sentences of different length, tokenised for ``any_model``."""
    return encode(any_model, SENTENCES)


def probability(lm: LanguageModel, query: Query) -> Tensor:
    """p(target) at the slot, by the public model call."""
    logits = lm.network(input_ids=torch.tensor([query.ids])).logits
    return logits[0, query.slot].softmax(-1)[query.target]


def clean(lm: LanguageModel, query: Query, layer: int) -> tuple[Tensor, Tensor]:
    """Input and output [tokens, …] of a layer's second MLP matrix."""
    seen: list[tuple[Tensor, Tensor]] = []
    module = lm.module(lm.layout.mlp_out(layer))
    handle = module.register_forward_hook(lambda m, i, o: seen.append((i[0][0], o[0])))
    with torch.no_grad():
        probability(lm, query)
    handle.remove()
    return seen[0]


@contextmanager
def changed_input(
    lm: LanguageModel, layer: int, change: Callable[[Tensor], Tensor]
) -> Iterator[None]:
    """The layer's second MLP matrix reads ``change`` of its input [1, tokens, neurons]."""
    module = lm.module(lm.layout.mlp_out(layer))
    handle = module.register_forward_pre_hook(lambda m, i: (change(i[0]),))
    yield
    handle.remove()


def at_slot(slot: int, value: Tensor) -> Callable[[Tensor], Tensor]:
    """Put ``value`` in place of the slot's activation, keeping its graph."""

    def change(tokens: Tensor) -> Tensor:
        parts = [tokens[:, :slot], value[None, None].to(tokens), tokens[:, slot + 1 :]]
        return torch.cat(parts, dim=1)

    return change


LOCATORS: tuple[Locator, ...] = (
    ActivationMagnitude(),
    GradientActivation(),
    IntegratedGradients(steps=3),
    WeightSaliency(),
    Fisher(),
    CausalTracing(samples=2),
    LogitAttribution(),
    LogitAttribution(granularity="layer"),
    RandomScores(),
    ConstantScores(granularity="layer"),
)


def applies(locator: Locator, lm: LanguageModel) -> bool:
    return not (isinstance(locator, LogitAttribution) and lm.masked)


@pytest.mark.parametrize("locator", LOCATORS, ids=lambda locator: locator.name)
def test_shapes_and_batches(
    locator: Locator, any_model: LanguageModel, queries: list[Query]
) -> None:
    """A sentence's scores do not depend on the sentences next to it, nor on an earlier call."""
    if not applies(locator, any_model):
        with pytest.raises(LocatorError, match="causal"):
            locator.scores(any_model, queries)
        return
    together = locator.scores(any_model, queries)
    assert together.shape == (2, np.prod(locator.shape(any_model.layout)))
    assert together.dtype == np.float32
    alone = np.concatenate([locator.scores(any_model, [query]) for query in queries])
    assert together == pytest.approx(alone, rel=1e-3, abs=1e-6)
    if locator.name != "constant":
        assert together.std() > 0


def test_activation(any_model: LanguageModel, queries: list[Query]) -> None:
    scores = ActivationMagnitude().scores(any_model, queries)
    shape = any_model.layout.blocks, any_model.layout.intermediate_size
    for row, query in zip(scores, queries, strict=True):
        for layer, found in enumerate(row.reshape(shape)):
            activation, _ = clean(any_model, query, layer)
            assert found == pytest.approx(activation[query.slot].abs().numpy(), rel=1e-4, abs=1e-6)


def plain_gradient(
    lm: LanguageModel, query: Query, layer: int, scale: float, position: int | None = None
) -> Tensor:
    token = query.slot if position is None else position
    activation = clean(lm, query, layer)[0][token]
    scaled = (scale * activation).requires_grad_()
    with changed_input(lm, layer, at_slot(token, scaled)):
        (gradient,) = torch.autograd.grad(probability(lm, query), [scaled])
    return activation * gradient


def test_gradient_times_activation(any_model: LanguageModel, queries: list[Query]) -> None:
    scores = GradientActivation().scores(any_model, queries)
    shape = any_model.layout.blocks, any_model.layout.intermediate_size
    for row, query in zip(scores, queries, strict=True):
        for layer, found in enumerate(row.reshape(shape)):
            plain = plain_gradient(any_model, query, layer, 1.0)
            assert found == pytest.approx(plain.numpy(), rel=1e-3, abs=1e-7)


@pytest.mark.parametrize("rows", [1024, 4])
def test_integrated_gradients(
    rows: int, any_model: LanguageModel, queries: list[Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Branching rows and a cached prefix give what one whole pass per (layer, alpha) gives."""
    monkeypatch.setattr(attribution, "ROWS", rows)
    for query in queries:
        scores = integrated_gradients(any_model, query, steps=4)
        for layer, found in enumerate(scores.cpu().numpy()):
            path = [plain_gradient(any_model, query, layer, j / 3) for j in range(4)]
            plain = torch.stack(path).mean(0).numpy()
            assert found == pytest.approx(plain, rel=1e-3, abs=1e-7)


def at_subject(locator: Locator) -> Locator:
    locator.at_subject = True
    return locator


def test_neurons_at_the_subject(any_model: LanguageModel, queries: list[Query]) -> None:
    """The methods' own formulas, with the subject's last token in the slot's place."""
    layout = any_model.layout
    shape = len(queries), layout.blocks, layout.intermediate_size
    activation, product, integral = (
        at_subject(locator).scores(any_model, queries).reshape(shape)
        for locator in (ActivationMagnitude(), GradientActivation(), IntegratedGradients(steps=3))
    )
    for number, query in enumerate(queries):
        token = query.subject_last
        assert token < query.slot
        for layer in range(layout.blocks):
            gradients = [
                plain_gradient(any_model, query, layer, scale, token) for scale in (0.0, 0.5, 1.0)
            ]
            magnitude = clean(any_model, query, layer)[0][token].abs().numpy()
            mean = torch.stack(gradients).mean(0).numpy()
            assert activation[number, layer] == pytest.approx(magnitude, rel=1e-4, abs=1e-6)
            assert product[number, layer] == pytest.approx(gradients[2].numpy(), 1e-3, 1e-7)
            assert integral[number, layer] == pytest.approx(mean, rel=1e-3, abs=1e-7)


def test_parameters_at_the_subject(any_model: LanguageModel, queries: list[Query]) -> None:
    """Of the gradient's sum over tokens the term of the subject's last one."""
    layout = any_model.layout
    shape = layout.blocks, layout.intermediate_size, layout.hidden_size
    saliency = at_subject(WeightSaliency()).scores(any_model, queries)
    for number, query in enumerate(queries):
        for layer in range(layout.blocks):
            added = torch.zeros(layout.hidden_size, requires_grad=True)

            def add(
                module: nn.Module, inputs: object, output: Tensor, query=query, added=added
            ) -> Tensor:
                return output.index_add(1, torch.tensor([query.subject_last]), added[None, None])

            handle = any_model.module(layout.mlp_out(layer)).register_forward_hook(add)
            loss = -probability(any_model, query).log()
            (gradient,) = torch.autograd.grad(loss, [added])
            handle.remove()
            activation = clean(any_model, query, layer)[0][query.subject_last]
            weight = any_model.weight(layout.mlp_out(layer)).T.detach()
            term = (torch.outer(activation, gradient) * weight).abs()
            found = saliency[number].reshape(shape)[layer]
            assert found == pytest.approx(term.numpy(), rel=1e-3, abs=1e-4 * float(term.max()))


def test_logits_at_the_subject(tiny: Tiny) -> None:
    """A causal model's subject knows no later tokens: its logit is that of the sentence cut there."""
    model = tiny("llama")
    (query,) = encode(model, SENTENCES[:1])
    end = query.subject_last + 1
    cut = replace(query, ids=query.ids[:end], slot=end - 1)
    for granularity in ("neuron", "layer"):
        locator = LogitAttribution(granularity=granularity)
        of_cut = locator.scores(model, [cut])
        assert at_subject(locator).scores(model, [query]) == pytest.approx(of_cut, 1e-3, 1e-5)


def test_a_sentence_without_subject_has_no_token_of_it(tiny: Tiny) -> None:
    model = tiny("llama")
    queries = encode(model, [Sentence("utter random words _", "Latin")])
    with pytest.raises(LocatorError, match="'utter random words _' has no subject"):
        at_subject(ActivationMagnitude()).scores(model, queries)


def test_parameter_locators(any_model: LanguageModel, queries: list[Query]) -> None:
    saliency = WeightSaliency().scores(any_model, queries)
    fisher = Fisher().scores(any_model, queries)
    layout = any_model.layout
    shape = layout.blocks, layout.intermediate_size, layout.hidden_size
    for number, query in enumerate(queries):
        for layer in range(layout.blocks):
            stored = any_model.module(layout.mlp_out(layer)).weight
            stored.requires_grad_()
            try:
                loss = -probability(any_model, query).log()
                (gradient,) = torch.autograd.grad(loss, [stored])
            finally:
                stored.requires_grad_(False)
            weight = any_model.weight(layout.mlp_out(layer)).T.detach()
            gradient = gradient if gradient.shape == weight.shape else gradient.T
            found = saliency[number].reshape(shape)[layer]
            scale = float((gradient * weight).abs().max())
            plain = (gradient * weight).abs().numpy()
            assert found == pytest.approx(plain, rel=1e-3, abs=1e-4 * scale)
            squared = gradient.square().numpy()
            assert fisher[number].reshape(shape)[layer] == pytest.approx(
                squared, rel=1e-3, abs=1e-4 * float(squared.max())
            )


def traced_probability(
    lm: LanguageModel, query: Query, noise: Tensor, restored: tuple[int, Tensor] | None
) -> float:
    """p(target) under noised subject embeddings, one layer's MLP output restored or none."""
    assert query.subject is not None
    start, stop = query.subject

    def corrupt(module, inputs, output):
        output = output.clone()
        output[:, start:stop] += noise
        return output

    def restore(module, inputs, output):
        assert restored is not None
        output = output.clone()
        output[:, stop - 1] = restored[1]
        return output

    layout = lm.layout
    handles = [lm.module(layout.architecture.embedding).register_forward_hook(corrupt)]
    if restored is not None:
        module = lm.module(layout.mlp_out(restored[0]))
        handles.append(module.register_forward_hook(restore))
    with torch.no_grad():
        value = float(probability(lm, query))
    for handle in handles:
        handle.remove()
    return value


def test_causal_tracing(any_model: LanguageModel, queries: list[Query]) -> None:
    found = CausalTracing(samples=3, noise=2.0, seed=5).scores(any_model, queries)
    layout = any_model.layout
    for row, query in zip(found, queries, strict=True):
        assert query.subject is not None
        start, stop = query.subject
        generator = torch.Generator().manual_seed(5)
        noise = torch.randn(3, stop - start, layout.hidden_size, generator=generator)
        noise *= 2 * embedding_deviation(any_model)
        base = np.mean([traced_probability(any_model, query, sample, None) for sample in noise])
        for layer in range(layout.blocks):
            output = clean(any_model, query, layer)[1][stop - 1]
            values = [traced_probability(any_model, query, s, (layer, output)) for s in noise]
            assert row[layer] == pytest.approx(np.mean(values) - base, rel=1e-2, abs=1e-6)


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma3"])
def test_a_trace_restores_one_state_at_a_time(name: str, tiny: Tiny) -> None:
    """Each value is that of a plain run with hooks on the embedding and on one block's input."""
    lm = tiny(name)
    (query,) = encode(lm, SENTENCES[:1])
    assert query.subject is not None
    start, end = query.subject
    trace = causal_trace(lm, query, samples=2, scale=0.5, seed=3)
    noise = 0.5 * torch.randn(
        2, end - start, lm.layout.hidden_size, generator=torch.Generator().manual_seed(3)
    )
    blocks = [lm.module(lm.layout.block(layer)) for layer in range(lm.layout.blocks)]
    entering: list[torch.Tensor] = []

    def run(sample: int | None, restored: tuple[int, int] | None) -> float:
        handles = []
        if sample is not None:

            def corrupt(module: nn.Module, inputs: object, output: torch.Tensor) -> torch.Tensor:
                output = output.clone()
                output[:, start:end] += noise[sample]
                return output

            embedding = lm.module(lm.layout.architecture.embedding)
            handles.append(embedding.register_forward_hook(corrupt))
        if restored is not None:
            layer, token = restored

            def restore(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[object, ...]:
                states = inputs[0].clone()
                states[:, token] = entering[layer][:, token]
                return states, *inputs[1:]

            handles.append(blocks[layer].register_forward_pre_hook(restore))
        with torch.no_grad():
            logits = lm.network(torch.tensor([query.ids])).logits[0, query.slot]
        for handle in handles:
            handle.remove()
        return float(logits.softmax(-1)[query.required_target])

    handles = [
        block.register_forward_pre_hook(lambda module, inputs: entering.append(inputs[0].clone()))
        for block in blocks
    ]
    assert trace.clean == pytest.approx(run(None, None), rel=1e-4)
    for handle in handles:
        handle.remove()
    assert trace.noised == pytest.approx(np.mean([run(s, None) for s in range(2)]), rel=1e-4)
    assert trace.restored.shape == (len(query.ids), len(blocks))
    for layer in range(len(blocks)):
        for token in (start, end - 1, len(query.ids) - 1):
            plain = np.mean([run(sample, (layer, token)) for sample in range(2)])
            assert float(trace.restored[token, layer]) == pytest.approx(plain, rel=1e-3, abs=1e-7)
    with pytest.raises(LocatorError, match="has no subject"):
        causal_trace(lm, replace(query, subject=None), scale=1.0)


@pytest.mark.parametrize("name", ["gpt2", "gptj", "llama", "gemma3"])
def test_logit_attribution(name: str, tiny: Tiny) -> None:
    """Layer scores are the drop of the logit when the MLP's write never reaches the final norm."""
    model = tiny(name)
    (query,) = encode(model, SENTENCES[:1])
    layers = LogitAttribution(granularity="layer").scores(model, [query])[0]
    neurons = LogitAttribution().scores(model, [query])[0].reshape(model.layout.blocks, -1)
    last = model.layout.blocks - 1
    activation, _ = clean(model, query, last)

    def logit() -> float:
        with torch.no_grad():
            return float(
                model.network(torch.tensor([query.ids])).logits[0, query.slot, query.target]
            )

    # Nothing reads the last layer but the final norm, so there direct and total effect are one.
    module = model.module(model.layout.mlp_out(last))
    handle = module.register_forward_hook(lambda m, i, o: torch.zeros_like(o))
    without_layer = logit()
    handle.remove()
    assert layers[last] == pytest.approx(logit() - without_layer, rel=1e-3, abs=1e-5)
    if name == "gemma3":  # the norm behind its MLP is held fixed, so neurons add up only roughly
        return
    for neuron in (0, 7):
        ablated = activation[query.slot].clone()
        ablated[neuron] = 0
        with changed_input(model, last, at_slot(query.slot, ablated)):
            without_neuron = logit()
        expected = logit() - without_neuron
        assert neurons[last, neuron] == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_pooling() -> None:
    scores = np.array([[1, -3, 0, 2, -2, 6, 1, 1]], dtype=np.float32)
    shape = (2, 2, 2)
    assert pool(scores, shape, "parameter") is scores
    assert pool(scores, shape, "neuron").tolist() == [[2, 1, 4, 1]]
    assert pool(scores, shape, "layer").tolist() == [[1.5, 2.5]]
    with pytest.raises(LocatorError, match="neuron scores cannot be compared at parameter"):
        pool(scores, (2, 4), "parameter")


def test_own_answers(any_model: LanguageModel) -> None:
    given, own = encode(any_model, [SENTENCES[0], Sentence("in Utopia people _")])
    with pytest.raises(LocatorError, match="own_answers"):
        GradientActivation().scores(any_model, [given, own])
    filled = own_answers(any_model, [given, own])
    assert filled[0] == given
    logits = any_model.network(torch.tensor([own.ids])).logits[0, own.slot]
    assert filled[1].target == int(logits.argmax())


@pytest.mark.parametrize(
    ("sentence", "error", "message"),
    [
        (Sentence("in Utopia people speak", "Latin"), UserError, "slot"),
        (Sentence("in Utopia people speak _", " "), TokenError, "empty"),
        (Sentence("in Utopia people speak _", "Latin", "Atlantis"), LocatorError, "Atlantis"),
    ],
)
def test_bad_sentences(tiny: Tiny, sentence, error, message) -> None:
    with pytest.raises(error, match=message):
        encode(tiny("llama"), [sentence])
