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
from typing import Literal

import torch
from torch import Tensor

from helpers.locating.query import Query
from helpers.locating.slots import SlotBatch, branching, slot_batch, slot_logits
from helpers.models import LanguageModel
from helpers.models.batching import run_halving
from helpers.models.hooks import OnOutput, input_hooks, output_hooks, record

ROWS = 1024  # of one pass of integrated gradients, which takes layers in groups
Place = Literal["activation", "gate"]


def integrated_gradients(
    lm: LanguageModel, query: Query, *, steps: int = 20, at: Place = "activation"
) -> Tensor:
    """One sentence's attributions [layers, neurons], at the activation or the gate's output."""
    batch, target = slot_batch(lm, [query], [query.slot]), query.required_target
    blocks, group = lm.layout.blocks, max(1, ROWS // steps)

    def run(layers: Sequence[int]) -> Tensor:
        return _attribute_layers(lm, batch, target, layers, steps, at)

    groups = (range(start, min(start + group, blocks)) for start in range(0, blocks, group))
    return torch.cat([part for layers in groups for part in run_halving(layers, run)])


def _attribute_layers(
    lm: LanguageModel,
    batch: SlotBatch,
    target: int,
    layers: Sequence[int],
    steps: int,
    at: Place,
) -> Tensor:
    layout, slot = lm.layout, int(batch.slots[0])
    names = [layout.mlp_out(i) if at == "activation" else layout.gate(i) for i in layers]
    activations: dict[str, Tensor] = {}
    scaled: dict[str, Tensor] = {}

    def scale(name: str, *tokens: Tensor) -> Tensor:
        # The newest rows' activation at the slot becomes a leaf of the graph.
        own = tokens[-1][-steps:].detach().clone()
        alphas = torch.linspace(0, 1, steps, device=own.device, dtype=own.dtype)
        activations[name] = own[0, slot].clone()
        scaled[name] = (alphas[:, None] * activations[name]).requires_grad_()
        own[:, slot] = scaled[name]
        return torch.cat([tokens[-1][:-steps], own])

    hooked = input_hooks if at == "activation" else output_hooks
    with (
        torch.enable_grad(),
        branching(lm, batch, layers=layers, copies=steps) as branched,
        hooked(lm, {name: partial(scale, name) for name in names}),
    ):
        slots = batch.slots.expand(1 + steps * len(layers))
        logits = slot_logits(lm, branched, slots)[1:]
        total = logits.log_softmax(1)[:, target].exp().sum()
        gradients = torch.autograd.grad(total, [scaled[name] for name in names])
    pairs = zip(names, gradients, strict=True)
    return torch.stack([activations[name] * gradient.mean(0) for name, gradient in pairs])


@torch.no_grad()
def indirect_effects(
    lm: LanguageModel, query: Query, *, samples: int, scale: float, seed: int
) -> Tensor:
    """One sentence's indirect effects [layers], averaged over noise samples of deviation ``scale``.

    In a sentence without a subject (KLoB-u) its middle token is the subject; that choice is ours.
    """
    middle = query.slot // 2
    start, stop = query.subject or (middle, middle + 1)
    batch = slot_batch(lm, [query], [start])
    offset = int(batch.positions[0, 0])  # tokens that are constant and do not run again
    noised, last = slice(start - offset, stop - offset), stop - offset - 1
    layout = lm.layout
    blocks, names = layout.blocks, [layout.mlp_out(layer) for layer in range(layout.blocks)]
    with record(lm, outputs=names) as clean:
        slot_logits(lm, batch)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(samples, stop - start, layout.hidden_size, generator=generator)

    def corrupt(_: Tensor, output: Tensor) -> Tensor:
        output = output.clone()
        output[:, noised] += (scale * noise).to(output.device, output.dtype)
        return output

    def restore(name: str, _: Tensor, output: Tensor) -> Tensor:
        output = output.clone()  # whose newest rows branched off at this layer
        output[-samples:, last] = clean[name][0, last]
        return output

    hooks: dict[str, OnOutput] = {name: partial(restore, name) for name in names}
    hooks[layout.architecture.embedding] = corrupt
    repeated = replace(batch, ids=batch.ids.expand(samples, -1), slots=batch.slots.expand(samples))
    with (
        branching(lm, repeated, layers=range(blocks), copies=1) as rows,
        output_hooks(lm, hooks),
    ):
        slots = batch.slots.expand(samples * (blocks + 1))
        logits = slot_logits(lm, rows, slots)
    target = query.required_target
    probabilities = logits.softmax(1)[:, target].view(blocks + 1, samples).mean(1)
    return probabilities[1:] - probabilities[0]


def embedding_deviation(lm: LanguageModel) -> float:
    """Standard deviation of the input embeddings over 4,096 evenly spaced tokens of the vocabulary."""
    size = lm.network.get_input_embeddings().weight.shape[0]
    ids = torch.arange(0, size, max(1, size // 4096), device=lm.device)
    embedding = lm.module(lm.layout.architecture.embedding)
    with torch.no_grad():
        return float(embedding(ids).float().std())
