"""Locators: a score per unit of the model for each sentence, at a stated granularity.

A *neuron* is an intermediate unit of an MLP (an input of its second matrix, after activation function
and gate), a *parameter* an entry of that matrix, a *layer* a whole MLP. Units are ordered by layer,
then neuron, then the neuron's parameters.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from helpers.locating.attribution import (
    embedding_deviation,
    indirect_effects,
    integrated_gradients,
)
from helpers.locating.query import LocatorError, Query
from helpers.locating.slots import slot_batch, slot_logits, traced
from helpers.models import LanguageModel
from helpers.models.architectures import Layout
from helpers.models.hooks import record
from helpers.models.state import in_own_state

Granularity = Literal["layer", "neuron", "parameter"]
Scores = NDArray[np.float32]

GRANULARITIES: tuple[Granularity, ...] = ("layer", "neuron", "parameter")  # coarse to fine
# Of a model's parameters: a batch's scores are at_a_time vectors of this length in fp32.
MOST_ENTRIES = 1_000_000_000


class Locator(ABC):
    """Scores the units of a model for sentences; never changes the model."""

    name: str  # in result tables
    granularity: Granularity
    seed: int  # of those that draw random numbers
    at_a_time: int = 16  # sentences of a call, which bounds memory

    def __init_subclass__(cls) -> None:
        """Every locator scores in ``own_state``."""
        super().__init_subclass__()
        if "scores" in vars(cls):
            cls.scores = in_own_state(vars(cls)["scores"])  # type: ignore[method-assign]

    @abstractmethod
    def scores(self, lm: LanguageModel, queries: Sequence[Query]) -> Scores:
        """Scores [queries, units] in fp32; they do not depend on the other queries of the call."""

    def shape(self, layout: Layout) -> tuple[int, ...]:
        """Shape whose product is the number of units: (layers, neurons, parameters) as far as fine."""
        sizes = layout.blocks, layout.intermediate_size, layout.hidden_size
        shape = sizes[: GRANULARITIES.index(self.granularity) + 1]
        if (entries := int(np.prod(shape))) > MOST_ENTRIES:
            raise LocatorError(f"{entries:,} weights are too many: take layers or neurons")
        return shape

    def settings(self) -> dict[str, object]:
        """Everything besides the model that determines the scores, for result keys."""
        return {"class": type(self).__name__, **vars(self)}


def pool(scores: Scores, shape: Sequence[int], granularity: Granularity) -> Scores:
    """Mean |score| [n, units] of each coarser unit, so that locators of unit ``shape`` can be compared."""
    depth = GRANULARITIES.index(granularity) + 1
    if depth > len(shape):
        own = GRANULARITIES[len(shape) - 1]
        raise LocatorError(f"{own} scores cannot be compared at {granularity} granularity")
    if depth == len(shape):
        return scores
    parts = np.abs(scores).reshape(len(scores), int(np.prod(shape[:depth])), -1)
    return parts.mean(axis=2, dtype=np.float32)


class ActivationMagnitude(Locator):
    """|a| of every neuron at the slot; needs no answer."""

    name = "activation"
    granularity = "neuron"

    @torch.inference_mode()
    def scores(self, lm: LanguageModel, queries: Sequence[Query]) -> Scores:
        """Absolute activations, [queries, layers x neurons]."""
        names, batch = _matrices(lm), slot_batch(lm, queries)
        with record(lm, inputs=names) as activations:
            slot_logits(lm, batch)
        found = [batch.at_slots(activations[name]).abs() for name in names]
        return _numbers(torch.cat(found, dim=1))


class GradientActivation(Locator):
    """a · ∂p(answer)/∂a of every neuron at the slot: integrated gradients with a single step."""

    name = "gradient x activation"
    granularity = "neuron"

    def scores(self, lm: LanguageModel, queries: Sequence[Query]) -> Scores:
        """Signed products, [queries, layers x neurons]."""
        names, targets = _matrices(lm), _target_tensor(lm, queries)
        batch = slot_batch(lm, queries, [query.slot for query in queries])
        with traced(lm, names) as seen:
            logits = slot_logits(lm, batch)
            chosen = logits.gather(1, targets[:, None])[:, 0]
            total = chosen.sub(logits.logsumexp(1)).exp().sum()  # of the targets' probabilities
            activations = [seen[name][0] for name in names]
            gradients = torch.autograd.grad(total, activations)
        pairs = zip(activations, gradients, strict=True)
        found = [batch.at_slots(a.detach() * gradient) for a, gradient in pairs]
        return _numbers(torch.cat(found, dim=1))


class IntegratedGradients(Locator):
    """Knowledge neurons' attribution of every neuron, by m ``steps`` (the paper's 20)."""

    name = "integrated gradients"
    granularity = "neuron"
    at_a_time = 1

    def __init__(self, *, steps: int = 20) -> None:
        self.steps = steps

    def scores(self, lm: LanguageModel, queries: Sequence[Query]) -> Scores:
        """Attributions, [queries, layers x neurons]."""
        found = [integrated_gradients(lm, q, steps=self.steps) for q in queries]
        return _numbers(torch.stack(found))


class CausalTracing(Locator):
    """Indirect effect of each layer's MLP; ``noise`` in standard deviations of the embeddings.

    Three standard deviations and ten ``samples`` of the noise are the method's own (Meng et al. 2022).
    """

    name = "causal tracing"
    granularity = "layer"
    at_a_time = 1

    def __init__(self, *, samples: int = 10, noise: float = 3.0, seed: int = 0) -> None:
        self.samples, self.noise, self.seed = samples, noise, seed

    def scores(self, lm: LanguageModel, queries: Sequence[Query]) -> Scores:
        """Indirect effects, [queries, layers]; signed."""
        scale = self.noise * embedding_deviation(lm)
        how: dict[str, Any] = {"samples": self.samples, "scale": scale, "seed": self.seed}
        return _numbers(torch.stack([indirect_effects(lm, q, **how) for q in queries]))


class LogitAttribution(Locator):
    """Drop of the answer's logit without one neuron's, or one layer's, *direct* write.

    A neuron writes w = a_j · w_j into the residual stream r, a layer the sum of its neurons and its bias.
    Without it the logit is g · (r − w) / σ(r − w); g is the answer's row times the final norm's scale,
    r and g are centred for a layer norm. Products with a layer's matrix replace single writes.
    """

    def __init__(self, *, granularity: Literal["neuron", "layer"] = "neuron") -> None:
        self.granularity: Granularity = granularity
        self.name = f"logit attribution ({granularity})"

    @torch.inference_mode()
    def scores(self, lm: LanguageModel, queries: Sequence[Query]) -> Scores:
        """Logit drops, signed, in fp32: [queries, layers x neurons] or [queries, layers]."""
        if lm.masked:  # its residual stream is normalised at every layer
            raise LocatorError("logit attribution needs a causal model with one final norm")
        names, final = _matrices(lm), lm.layout.architecture.final_norm
        batch = slot_batch(lm, queries)
        with record(lm, inputs=[*names, final]) as recorded:
            slot_logits(lm, batch)
        at_slot = {name: batch.at_slots(seen) for name, seen in recorded.items()}
        norm, residual = deepcopy(lm.module(final)).float(), at_slot[final].float()
        size = residual.shape[1]
        signs = residual.new_tensor([1, -1]).repeat(size // 2)  # a norm only scales it
        answers = lm.network.get_output_embeddings().weight[_target_tensor(lm, queries)]
        readout = answers.float() * (norm(signs) - norm(0 * signs)) * signs
        if centred := isinstance(norm, nn.LayerNorm):
            residual, readout = (x - x.mean(1, keepdim=True) for x in (residual, readout))
        epsilon = next(value for name, value in vars(norm).items() if "eps" in name)
        squares = residual.square().mean(1, keepdim=True) + epsilon
        whole = (readout * residual).sum(1, keepdim=True)
        found = []
        for layer, name in enumerate(names):
            matrix, inputs, scale = self._writes(lm, layer, at_slot[name])
            square = scale.square() @ matrix.square() - centred * (scale @ matrix).square() / size
            across, along = ((scale * x) @ matrix * inputs for x in (residual, readout))
            left = squares + (inputs.square() * square - 2 * across) / size
            found.append(whole / squares.sqrt() - (whole - along) / left.sqrt())
        return _numbers(torch.cat(found, dim=1))

    def _writes(self, lm: LanguageModel, layer: int, activations: Tensor) -> tuple[Tensor, ...]:
        """(M [hidden, units], a [queries, units], s [queries, hidden]): a unit writes a_j (s ⊙ M_j)."""
        name, norm = lm.layout.mlp_out(layer), lm.layout.mlp_norm(layer)
        whole = lm.module(name)(activations).float()
        scale = torch.ones_like(whole)
        if norm is not None:  # a diagonal map once its scale is that of the whole write
            normed = deepcopy(lm.module(norm)).float()(whole)
            scale = normed / torch.where(whole == 0, scale, whole)
        if self.granularity == "neuron":
            return lm.weight(name).float(), activations.float(), scale
        return whole.new_ones(whole.shape[1], 1), whole.new_ones(len(whole), 1), scale * whole


class _GradientLocator(Locator):
    """Gradients of −log p(answer) with respect to every entry of the MLPs' second matrices.

    For a sentence it is the sum over tokens of (gradient of the output) x (input): no weight is unfrozen.
    """

    granularity = "parameter"
    at_a_time = 4
    squared = False

    def scores(self, lm: LanguageModel, queries: Sequence[Query]) -> Scores:
        """Scores [queries, layers x neurons x hidden]: a neuron's output weights lie together."""
        sizes = self.shape(lm.layout)
        names, targets = _matrices(lm), _target_tensor(lm, queries)
        batch = slot_batch(lm, queries)
        with traced(lm, names) as seen:
            logits = slot_logits(lm, batch)
            loss = nn.functional.cross_entropy(logits, targets, reduction="sum")
            gradients = torch.autograd.grad(loss, [seen[name][1] for name in names])
        scores = torch.empty(len(queries), *sizes, device=lm.device)
        for layer, (name, gradient) in enumerate(zip(names, gradients, strict=True)):
            found = scores[:, layer]  # everything happens in its place: scores are large
            torch.bmm(seen[name][0].detach().mT.float(), gradient.float(), out=found)
            if self.squared:
                found.square_()
            else:
                found.mul_(lm.weight(name).T.float().contiguous()).abs_()
        return scores.flatten(1).cpu().numpy()


class WeightSaliency(_GradientLocator):
    """|weight · gradient|: first-order change of the loss when the entry is removed."""

    name = "gradient x weight"


class Fisher(_GradientLocator):
    """Squared gradient, the entry's empirical Fisher information."""

    name = "Fisher"
    squared = True


class RandomScores(Locator):
    """A control: uniform scores that depend on the sentence's tokens and a seed only."""

    label: ClassVar = "random"

    def __init__(self, *, granularity: Granularity = "neuron", seed: int = 0) -> None:
        self.granularity, self.seed, self.name = granularity, seed, self.label

    def scores(self, lm: LanguageModel, queries: Sequence[Query]) -> Scores:
        """Uniform numbers, [queries, units]."""
        units = int(np.prod(self.shape(lm.layout)))
        drawn = [np.random.default_rng(self._seed(query)) for query in queries]
        return np.stack([each.random(units, np.float32) for each in drawn])

    def _seed(self, query: Query) -> list[int]:
        return [self.seed, zlib.crc32(np.array(query.ids).tobytes())]


class ConstantScores(RandomScores):
    """A control: the same scores, hence the same top units, for every sentence."""

    label = "constant"

    def _seed(self, query: Query) -> list[int]:
        return [self.seed]


LOCATORS: dict[str, Callable[[], Locator]] = {
    "knowledge-neurons": IntegratedGradients,
    "gradient-activation": GradientActivation,
    "activation": ActivationMagnitude,
    "logit-neuron": lambda: LogitAttribution(granularity="neuron"),
    "logit-layer": lambda: LogitAttribution(granularity="layer"),
    "gradient-weight": WeightSaliency,
    "fisher": Fisher,
    "causal-tracing": CausalTracing,
    "random": RandomScores,
    "constant": ConstantScores,
}


def make_locator(name: str, seed: int = 0) -> Locator:
    """The locator called so; a ``LocatorError`` for an unknown name."""
    if name not in LOCATORS:
        raise LocatorError(f"no locator {name!r}; there are: {', '.join(LOCATORS)}")
    made = LOCATORS[name]()
    if "seed" in vars(made):
        made.seed = seed
    return made


def _matrices(lm: LanguageModel) -> list[str]:
    return [lm.layout.mlp_out(i) for i in range(lm.layout.blocks)]


def _target_tensor(lm: LanguageModel, queries: Sequence[Query]) -> Tensor:
    targets = [query.required_target for query in queries]
    return torch.tensor(targets, device=lm.device)


def _numbers(scores: Tensor) -> Scores:
    return scores.flatten(1).float().cpu().numpy()
