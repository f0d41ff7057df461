"""Two methods that run one sentence many times: integrated gradients and causal tracing.

*Knowledge neurons* (Dai et al. 2022, eq. 2, zero baseline) scale the activation a_l of layer l at the
slot by alpha and average the gradients of the answer's probability:

    Attr_l = a_l / m · Σ_j ∂p(answer | alpha_j a_l) / ∂a_l,   alpha_j = j / (m − 1), j = 0 … m − 1

(the usual code's grid, which holds both ends). *Causal tracing* (Meng et al. 2022, Section 2.1) adds
noise to the subject's embeddings and restores one layer's clean MLP output at the subject's last
token. Its indirect effect is p(answer | noise, layer restored) − p(answer | noise). The paper's plots
restore windows of ten layers; here it is one layer at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from helpers.locating.query import LocatorError, Query
from helpers.locating.slots import SlotBatch, branching, slot_batch, slot_logits
from helpers.models import LanguageModel
from helpers.models.batching import run_halving
from helpers.models.forward import resumed
from helpers.models.hooks import OnOutput, input_hooks, output_hooks, record

ROWS = 1024  # of one pass of integrated gradients, which takes layers in groups
ScaledAt = Literal["activation", "gate"]


def integrated_gradients(
    lm: LanguageModel,
    query: Query,
    *,
    steps: int = 20,
    at: ScaledAt = "activation",
    position: int | None = None,
) -> Tensor:
    """One sentence's attributions [layers, neurons], at the activation or the gate's output.

    ``position`` is the token's whose activation is scaled; None: the slot.
    """
    scaled_position = query.slot if position is None else position
    batch = slot_batch(lm, [query], [scaled_position])
    column = int(batch.columns([scaled_position]))
    attribute = partial(
        _attribute_layers, lm, batch, query.required_target, steps=steps, at=at, column=column
    )
    all_layers = range(lm.layout.blocks)
    layers_per_pass = max(1, ROWS // steps)
    attributions: list[Tensor] = []
    for start in range(0, len(all_layers), layers_per_pass):
        layers = all_layers[start : start + layers_per_pass]
        attributions += run_halving(layers, attribute)
    return torch.cat(attributions)


class _TokenScaling:
    """Replaces modules' activations at one token by alpha_j times them.

    Each module's are scaled in the newest rows, one for each of the ``steps``, which branched off at its
    layer.
    """

    def __init__(self, column: int, steps: int) -> None:
        self.column = column
        self.steps = steps
        self.activations: dict[str, Tensor] = {}  # a_l [neurons] by module
        self.scaled: dict[str, Tensor] = {}  # alpha_j a_l [steps, neurons], leaves of the graph

    def scale(self, module_name: str, tokens: Tensor) -> Tensor:
        """A module's ``tokens`` [rows, tokens, neurons], scaled where they are to be."""
        earlier_rows = tokens[: -self.steps]
        newest_rows = tokens[-self.steps :].detach().clone()
        alphas = torch.linspace(0, 1, self.steps, device=tokens.device, dtype=tokens.dtype)
        self.activations[module_name] = newest_rows[0, self.column].clone()
        scaled_activations = alphas[:, None] * self.activations[module_name]
        self.scaled[module_name] = scaled_activations.requires_grad_()
        newest_rows[:, self.column] = self.scaled[module_name]
        return torch.cat([earlier_rows, newest_rows])

    def scale_output(self, name: str, _: Tensor, output: Tensor) -> Tensor:
        """``scale`` for a hook that is shown a module's input as well."""
        return self.scale(name, output)


def _attribute_layers(
    lm: LanguageModel,
    batch: SlotBatch,
    target: int,
    layers: Sequence[int],
    *,
    steps: int,
    at: ScaledAt,
    column: int,
) -> Tensor:
    """Attributions [layers, neurons] of one sentence's token in a column, all layers in one pass."""
    scaling = _TokenScaling(column, steps)
    if at == "activation":
        module_names = [lm.layout.mlp_out(layer) for layer in layers]
        input_changes = {name: partial(scaling.scale, name) for name in module_names}
        hooked = input_hooks(lm, input_changes)
    else:
        module_names = [lm.layout.gate(layer) for layer in layers]
        output_changes = {name: partial(scaling.scale_output, name) for name in module_names}
        hooked = output_hooks(lm, output_changes)
    with (
        torch.enable_grad(),
        branching(lm, batch, layers=layers, copies=steps) as branched,
        hooked,
    ):
        slots = batch.slots.expand(1 + steps * len(layers))
        logits = slot_logits(lm, branched, slots)[1:]  # without the unchanged row
        summed_probability = logits.log_softmax(1)[:, target].exp().sum()
        leaves = [scaling.scaled[module_name] for module_name in module_names]
        gradients = torch.autograd.grad(summed_probability, leaves)
    attributions = [
        scaling.activations[module_name] * gradient.mean(0)
        for module_name, gradient in zip(module_names, gradients, strict=True)
    ]
    return torch.stack(attributions)


@torch.no_grad()
def indirect_effects(
    lm: LanguageModel, query: Query, *, samples: int, scale: float, seed: int
) -> Tensor:
    """One sentence's indirect effects [layers], averaged over noise samples of deviation ``scale``.

    In a sentence without a subject (KLoB-u) its middle token is the subject; that choice is ours.
    """
    middle_token = query.slot // 2
    subject_start, subject_end = query.subject or (middle_token, middle_token + 1)
    batch = slot_batch(lm, [query], [subject_start])
    constant_tokens = int(batch.positions[0, 0])  # those before, which do not run again
    subject_columns = slice(subject_start - constant_tokens, subject_end - constant_tokens)
    subject_last = subject_columns.stop - 1
    layout = lm.layout
    blocks = layout.blocks
    module_names = [layout.mlp_out(layer) for layer in range(blocks)]
    with record(lm, outputs=module_names) as clean:
        slot_logits(lm, batch)
    generator = torch.Generator().manual_seed(seed)
    embedding_noise = torch.randn(
        samples, subject_end - subject_start, layout.hidden_size, generator=generator
    )

    def corrupt(_: Tensor, embeddings: Tensor) -> Tensor:
        corrupted = embeddings.clone()
        corrupted[:, subject_columns] += (scale * embedding_noise).to(
            embeddings.device, embeddings.dtype
        )
        return corrupted

    def restore(module_name: str, _: Tensor, output: Tensor) -> Tensor:
        restored = output.clone()  # whose newest rows branched off at this layer
        restored[-samples:, subject_last] = clean[module_name][0, subject_last]
        return restored

    hooks: dict[str, OnOutput] = {
        module_name: partial(restore, module_name) for module_name in module_names
    }
    hooks[layout.architecture.embedding] = corrupt
    repeated = replace(batch, ids=batch.ids.expand(samples, -1), slots=batch.slots.expand(samples))
    with (
        branching(lm, repeated, layers=range(blocks), copies=1) as branched,
        output_hooks(lm, hooks),
    ):
        slots = batch.slots.expand(samples * (blocks + 1))
        logits = slot_logits(lm, branched, slots)
    probabilities = logits.softmax(1)[:, query.required_target]
    # First the rows in which nothing is restored, then those of each layer.
    mean_probabilities = probabilities.view(blocks + 1, samples).mean(1)
    return mean_probabilities[1:] - mean_probabilities[0]


def embedding_deviation(lm: LanguageModel) -> float:
    """Standard deviation of the input embeddings over 4,096 evenly spaced tokens of the vocabulary."""
    vocabulary_size = lm.network.get_input_embeddings().weight.shape[0]
    sampled_ids = torch.arange(
        0, vocabulary_size, max(1, vocabulary_size // 4096), device=lm.device
    )
    embedding = lm.module(lm.layout.architecture.embedding)
    with torch.no_grad():
        return float(embedding(sampled_ids).float().std())


class CausalTrace(NamedTuple):
    """Where the answer comes back: the probabilities of one sentence's answer in three kinds of runs."""

    clean: float  # without noise
    noised: float  # with noise on the subject's embeddings
    restored: (
        Tensor  # with noise, and one token's clean state at one layer's entry [tokens, layers]
    )


@torch.no_grad()
def causal_trace(
    lm: LanguageModel, query: Query, *, samples: int = 10, scale: float, seed: int = 0
) -> CausalTrace:
    """Restore each hidden state of one sentence by itself, as in Meng et al. 2022 (Figure 1e).

    The subject's embeddings get noise of standard deviation ``scale``; then the state that enters one layer
    at one token is exchanged for that of the run without noise. Probabilities are means over ``samples`` of
    the noise, the same ones at every token and layer.
    """
    if lm.masked:
        raise LocatorError("a trace by token needs a causal model, whose tokens see no later ones")
    if query.subject is None:
        raise LocatorError(f"sentence {query.text!r} has no subject; give one, it gets the noise")
    start, end = query.subject
    batch = slot_batch(lm, [query])
    token_count = batch.ids.shape[1]
    block_names = [lm.layout.block(layer) for layer in range(lm.layout.blocks)]
    generator = torch.Generator().manual_seed(seed)
    noise = scale * torch.randn(samples, end - start, lm.layout.hidden_size, generator=generator)

    def corrupt(_: Tensor, embeddings: Tensor) -> Tensor:
        corrupted = embeddings.clone()
        corrupted[:, start:end] += noise.to(embeddings.device, embeddings.dtype)
        return corrupted

    noised_batch = _repeated(batch, samples)
    clean_probability = _probability_of_answer(lm, batch, query)
    with record(lm, inputs=block_names) as clean_states:  # [1, tokens, hidden] each
        slot_logits(lm, batch)
    with output_hooks(lm, {lm.layout.architecture.embedding: corrupt}):
        noised_probability = _probability_of_answer(lm, noised_batch, query)
        with record(lm, inputs=block_names) as noised_states:  # [samples, tokens, hidden] each
            slot_logits(lm, noised_batch)

    # Rows [token · samples, (token + 1) · samples) restore that token; all begin at the layer.
    row_count = token_count * samples
    rows = torch.arange(row_count, device=batch.ids.device)
    tokens = rows // samples
    restored_batch = _repeated(batch, row_count)
    by_layer = []
    for layer, block_name in enumerate(block_names):
        entering = noised_states[block_name].repeat(token_count, 1, 1)
        entering[rows, tokens] = clean_states[block_name][0, tokens]
        with resumed(lm, layer, entering):
            probabilities = _probability_of_answer(lm, restored_batch, query)
        by_layer.append(probabilities.view(token_count, samples).mean(1))
    return CausalTrace(
        float(clean_probability), float(noised_probability.mean()), torch.stack(by_layer, dim=1)
    )


def _repeated(batch: SlotBatch, count: int) -> SlotBatch:
    """One sentence's batch with its row repeated."""
    return replace(
        batch,
        ids=batch.ids.expand(count, -1),
        positions=batch.positions.expand(count, -1),
        visible=batch.visible.expand(count, -1, -1),
        slots=batch.slots.expand(count),
    )


def _probability_of_answer(lm: LanguageModel, batch: SlotBatch, query: Query) -> Tensor:
    """The probability of the query's answer in each row."""
    return slot_logits(lm, batch).softmax(1)[:, query.required_target]
