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
from typing import ClassVar, Literal, NamedTuple

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
from helpers.locating.slots import at_columns, slot_batch, slot_logits, traced
from helpers.models import LanguageModel
from helpers.models.architectures import Layout
from helpers.models.hooks import record
from helpers.models.state import in_own_state

Granularity = Literal["layer", "neuron", "parameter"]
Tokens = Literal["last", "all", "subject", "none"]
"""``last``: the slot's; ``subject``: the subject's last one; ``none``: scores that read no model."""
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
    tokens: ClassVar[Tokens] = "last"  # that the method scores
    at_subject: bool = False  # score the subject's last token in their place

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
        if (entry_count := int(np.prod(shape))) > MOST_ENTRIES:
            raise LocatorError(f"{entry_count:,} weights are too many: take layers or neurons")
        return shape

    @property
    def scored_tokens(self) -> Tokens:
        """Which tokens it scores."""
        return "subject" if self.at_subject else self.tokens

    def positions(self, queries: Sequence[Query]) -> list[int]:
        """Index of the token that is scored in each sentence: the slot, or the subject's last."""
        return [query.subject_last if self.at_subject else query.slot for query in queries]

    def settings(self) -> dict[str, object]:
        """Everything except the model that determines the scores, for result keys."""
        return {"class": type(self).__name__, **vars(self)}


def pool(scores: Scores, shape: Sequence[int], granularity: Granularity) -> Scores:
    """Mean |score| [n, units] of each coarser unit, so that locators of unit ``shape`` can be compared."""
    coarse_depth = GRANULARITIES.index(granularity) + 1
    if coarse_depth > len(shape):
        finest = GRANULARITIES[len(shape) - 1]
        raise LocatorError(f"{finest} scores cannot be compared at {granularity} granularity")
    if coarse_depth == len(shape):
        return scores
    coarse_units = int(np.prod(shape[:coarse_depth]))
    by_coarse_unit = np.abs(scores).reshape(len(scores), coarse_units, -1)
    return by_coarse_unit.mean(axis=2, dtype=np.float32)


class ActivationMagnitude(Locator):
    """|a| of every neuron at the slot; needs no answer."""

    name = "activation"
    granularity = "neuron"

    @torch.inference_mode()
    def scores(self, lm: LanguageModel, queries: Sequence[Query]) -> Scores:
        """Absolute activations, [queries, layers x neurons]."""
        module_names = _matrix_names(lm)
        batch = slot_batch(lm, queries)
        with record(lm, inputs=module_names) as activations:
            slot_logits(lm, batch)
        columns = batch.columns(self.positions(queries))
        magnitudes = [
            at_columns(activations[module_name], columns).abs() for module_name in module_names
        ]
        return _as_scores(torch.cat(magnitudes, dim=1))


class GradientActivation(Locator):
    """a · ∂p(answer)/∂a of every neuron at the slot: integrated gradients with a single step."""

    name = "gradient x activation"
    granularity = "neuron"

    def scores(self, lm: LanguageModel, queries: Sequence[Query]) -> Scores:
        """Signed products, [queries, layers x neurons]."""
        module_names = _matrix_names(lm)
        targets = _target_tensor(lm, queries)
        positions = self.positions(queries)
        batch = slot_batch(lm, queries, positions)
        with traced(lm, module_names) as traced_modules:
            logits = slot_logits(lm, batch)
            target_logits = logits.gather(1, targets[:, None])[:, 0]
            probabilities = target_logits.sub(logits.logsumexp(1)).exp()
            activations = [traced_modules[module_name].input for module_name in module_names]
            gradients = torch.autograd.grad(probabilities.sum(), activations)
        columns = batch.columns(positions)
        products = [
            at_columns(activation.detach() * gradient, columns)
            for activation, gradient in zip(activations, gradients, strict=True)
        ]
        return _as_scores(torch.cat(products, dim=1))


class IntegratedGradients(Locator):
    """Knowledge neurons' attribution of every neuron, by m ``steps`` (the paper's 20)."""

    name = "integrated gradients"
    granularity = "neuron"
    at_a_time = 1

    def __init__(self, *, steps: int = 20) -> None:
        self.steps = steps

    def scores(self, lm: LanguageModel, queries: Sequence[Query]) -> Scores:
        """Attributions, [queries, layers x neurons]."""
        attributions = [
            integrated_gradients(lm, query, steps=self.steps, position=position)
            for query, position in zip(queries, self.positions(queries), strict=True)
        ]
        return _as_scores(torch.stack(attributions))


class CausalTracing(Locator):
    """Indirect effect of each layer's MLP; ``noise`` in standard deviations of the embeddings.

    Three standard deviations and ten ``samples`` of the noise are the method's own (Meng et al. 2022).
    """

    name = "causal tracing"
    granularity = "layer"
    at_a_time = 1
    tokens = "subject"

    def __init__(self, *, samples: int = 10, noise: float = 3.0, seed: int = 0) -> None:
        self.samples = samples
        self.noise = noise
        self.seed = seed

    def scores(self, lm: LanguageModel, queries: Sequence[Query]) -> Scores:
        """Indirect effects, [queries, layers]; signed."""
        scale = self.noise * embedding_deviation(lm)
        effects = [
            indirect_effects(lm, query, samples=self.samples, scale=scale, seed=self.seed)
            for query in queries
        ]
        return _as_scores(torch.stack(effects))


class LogitAttribution(Locator):
    """Drop of the answer's logit without one neuron's, or one layer's, *direct* write.

    A neuron writes w = a_j · w_j into the residual stream r, a layer the sum of its neurons and its bias.
    Without it the logit is g · (r − w) / σ(r − w); g is the answer's row times the final norm's scale,
    r and g are centred for a layer norm. Products with a layer's matrix replace single writes. At the
    subject's last token it is the logit that the token's own residual stream gives the answer.
    """

    def __init__(self, *, granularity: Literal["neuron", "layer"] = "neuron") -> None:
        self.granularity: Granularity = granularity
        self.name = f"logit attribution ({granularity})"

    @torch.inference_mode()
    def scores(self, lm: LanguageModel, queries: Sequence[Query]) -> Scores:
        """Logit drops, signed, in fp32: [queries, layers x neurons] or [queries, layers]."""
        if lm.masked:  # its residual stream is normalised at every layer
            raise LocatorError("logit attribution needs a causal model with one final norm")
        module_names = _matrix_names(lm)
        final_norm = lm.layout.architecture.final_norm
        batch = slot_batch(lm, queries)
        with record(lm, inputs=[*module_names, final_norm]) as inputs:
            slot_logits(lm, batch)
        columns = batch.columns(self.positions(queries))
        input_at_token = {
            module_name: at_columns(module_input, columns)
            for module_name, module_input in inputs.items()
        }

        fp32_norm = deepcopy(lm.module(final_norm)).float()
        residual = input_at_token[final_norm].float()  # r [queries, hidden]
        answers = lm.network.get_output_embeddings().weight[_target_tensor(lm, queries)]
        readout = answers.float() * _norm_weight(fp32_norm, residual)  # g [queries, hidden]
        is_centred = isinstance(fp32_norm, nn.LayerNorm)
        if is_centred:
            residual = residual - residual.mean(1, keepdim=True)
            readout = readout - readout.mean(1, keepdim=True)
        epsilon = next(value for name, value in vars(fp32_norm).items() if "eps" in name)
        variance = residual.square().mean(1, keepdim=True) + epsilon  # σ(r)²
        residual_readout = (readout * residual).sum(1, keepdim=True)  # g · r
        logit = residual_readout / variance.sqrt()

        hidden_size = residual.shape[1]
        drops = []
        for layer, module_name in enumerate(module_names):
            writes = self._writes(lm, layer, input_at_token[module_name])
            # |s ⊙ M_j|², g · w_j and r · w_j of each unit [queries, units]
            squared_lengths = writes.scale.square() @ writes.matrix.square()
            if is_centred:
                write_sums = writes.scale @ writes.matrix
                squared_lengths = squared_lengths - write_sums.square() / hidden_size
            readout_of_writes = (writes.scale * readout) @ writes.matrix * writes.activations
            residual_on_writes = (writes.scale * residual) @ writes.matrix * writes.activations
            squared_writes = writes.activations.square() * squared_lengths
            change_of_squares = squared_writes - 2 * residual_on_writes
            variance_without = variance + change_of_squares / hidden_size  # σ(r − w)²
            logit_without = (residual_readout - readout_of_writes) / variance_without.sqrt()
            drops.append(logit - logit_without)
        return _as_scores(torch.cat(drops, dim=1))

    def _writes(self, lm: LanguageModel, layer: int, activations: Tensor) -> _Writes:
        module_name = lm.layout.mlp_out(layer)
        layer_write = lm.module(module_name)(activations).float()  # [queries, hidden]
        scale = torch.full_like(layer_write, lm.residual_multiplier)
        norm_name = lm.layout.mlp_norm(layer)
        if norm_name is not None:  # a diagonal map once its scale is that of the whole write
            normed = deepcopy(lm.module(norm_name)).float()(layer_write)
            scale = normed / torch.where(layer_write == 0, 1, layer_write)
        if self.granularity == "neuron":
            return _Writes(lm.weight(module_name).float(), activations.float(), scale)
        # The layer is one unit, whose write is all of the scale.
        queries, hidden_size = layer_write.shape
        return _Writes(
            matrix=layer_write.new_ones(hidden_size, 1),
            activations=layer_write.new_ones(queries, 1),
            scale=scale * layer_write,
        )


class _Writes(NamedTuple):
    """What a layer's units write: unit j's is w_j = a_j (s ⊙ M_j)."""

    matrix: Tensor  # M [hidden, units]
    activations: Tensor  # a [queries, units]
    scale: Tensor  # s [queries, hidden]


def _norm_weight(norm: nn.Module, residual: Tensor) -> Tensor:
    """What a final norm multiplies each dimension by [hidden], read from what it makes of ±1."""
    signs = residual.new_tensor([1, -1]).repeat(residual.shape[1] // 2)  # the norm only scales it
    without_bias: Tensor = norm(signs) - norm(0 * signs)
    return without_bias * signs


class _GradientLocator(Locator):
    """Gradients of −log p(answer) with respect to every entry of the MLPs' second matrices.

    For a sentence it is the sum over tokens of (gradient of the output) x (input): no weight is unfrozen.
    At the subject's last token it is that token's term of the sum.
    """

    granularity = "parameter"
    at_a_time = 4
    tokens = "all"
    squared = False

    def scores(self, lm: LanguageModel, queries: Sequence[Query]) -> Scores:
        """Scores [queries, layers x neurons x hidden]: a neuron's output weights lie together."""
        module_names = _matrix_names(lm)
        targets = _target_tensor(lm, queries)
        shape = self.shape(lm.layout)
        batch = slot_batch(lm, queries)
        with traced(lm, module_names) as traced_modules:
            logits = slot_logits(lm, batch)
            loss = nn.functional.cross_entropy(logits, targets, reduction="sum")
            outputs = [traced_modules[module_name].output for module_name in module_names]
            gradients = torch.autograd.grad(loss, outputs)
        columns = batch.columns(self.positions(queries))
        scores = torch.empty(len(queries), *shape, device=lm.device)
        for layer, (module_name, gradient) in enumerate(zip(module_names, gradients, strict=True)):
            # All is computed in the layer's slice of the scores, which are large.
            layer_scores = scores[:, layer]  # [queries, neurons, hidden]
            inputs = traced_modules[module_name].input.detach()  # [queries, tokens, neurons]
            if self.at_subject:
                inputs = at_columns(inputs, columns)[:, None]  # [queries, 1, neurons]
                gradient = at_columns(gradient, columns)[:, None]
            torch.bmm(inputs.mT.float(), gradient.float(), out=layer_scores)
            if self.squared:
                layer_scores.square_()
            else:
                layer_scores.mul_(lm.weight(module_name).T.float().contiguous()).abs_()
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
    tokens = "none"

    def __init__(self, *, granularity: Granularity = "neuron", seed: int = 0) -> None:
        self.granularity = granularity
        self.seed = seed
        self.name = self.label

    def scores(self, lm: LanguageModel, queries: Sequence[Query]) -> Scores:
        """Uniform numbers, [queries, units]."""
        unit_count = int(np.prod(self.shape(lm.layout)))
        generators = [np.random.default_rng(self._seed(query)) for query in queries]
        return np.stack([generator.random(unit_count, np.float32) for generator in generators])

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


def make_locator(name: str, seed: int = 0, *, at_subject: bool = False) -> Locator:
    """The locator called ``name``, with the seed if it draws numbers; a ``LocatorError`` without one.

    ``at_subject``: it scores the subject's last token in the place of the method's own tokens.
    """
    if name not in LOCATORS:
        raise LocatorError(f"no locator {name!r}; there are: {', '.join(LOCATORS)}")
    locator = LOCATORS[name]()
    if "seed" in vars(locator):
        locator.seed = seed
    if at_subject:  # else it is no part of the settings
        locator.at_subject = True
    return locator


def _matrix_names(lm: LanguageModel) -> list[str]:
    return [lm.layout.mlp_out(layer) for layer in range(lm.layout.blocks)]


def _target_tensor(lm: LanguageModel, queries: Sequence[Query]) -> Tensor:
    targets = [query.required_target for query in queries]
    return torch.tensor(targets, device=lm.device)


def _as_scores(scores: Tensor) -> Scores:
    return scores.flatten(1).float().cpu().numpy()
