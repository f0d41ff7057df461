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
ScaledAt = Literal["activation", "gate"]


def integrated_gradients(
    lm: LanguageModel, query: Query, *, steps: int = 20, at: ScaledAt = "activation"
) -> Tensor:
    """One sentence's attributions [layers, neurons], at the activation or the gate's output."""
    batch = slot_batch(lm, [query], [query.slot])
    attribute = partial(_attribute_layers, lm, batch, query.required_target, steps=steps, at=at)
    all_layers = range(lm.layout.blocks)
    layers_per_pass = max(1, ROWS // steps)
    attributions: list[Tensor] = []
    for start in range(0, len(all_layers), layers_per_pass):
        layers = all_layers[start : start + layers_per_pass]
        attributions += run_halving(layers, attribute)
    return torch.cat(attributions)


class _SlotScaling:
    """Replaces modules' activations at the slot by alpha_j times them.

    Each module's are scaled in the newest rows, one for each of the ``steps``, which branched off at its
    layer.
    """

    def __init__(self, slot: int, steps: int) -> None:
        self.slot = slot
        self.steps = steps
        self.activations: dict[str, Tensor] = {}  # a_l [neurons] by module
        self.scaled: dict[str, Tensor] = {}  # alpha_j a_l [steps, neurons], leaves of the graph

    def scale(self, module_name: str, tokens: Tensor) -> Tensor:
        """A module's ``tokens`` [rows, tokens, neurons], scaled where they are to be."""
        earlier_rows = tokens[: -self.steps]
        newest_rows = tokens[-self.steps :].detach().clone()
        alphas = torch.linspace(0, 1, self.steps, device=tokens.device, dtype=tokens.dtype)
        self.activations[module_name] = newest_rows[0, self.slot].clone()
        scaled_activations = alphas[:, None] * self.activations[module_name]
        self.scaled[module_name] = scaled_activations.requires_grad_()
        newest_rows[:, self.slot] = self.scaled[module_name]
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
) -> Tensor:
    """Attributions [layers, neurons] of one sentence, all layers in one pass."""
    scaling = _SlotScaling(int(batch.slots[0]), steps)
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
