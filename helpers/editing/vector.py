"""The optimised vector of the ROME family, for many edits at once.

For each edit a vector delta [hidden] is added at the subject's last token, to the output of one
module (the MLP in ROME, the block in MEMIT and AlphaEdit), and optimised so that the target becomes
likely (ROME, eq. 4; PEAK, eqs. 7-10 with APP):

    NLL + kl_factor * KL(current || initial) + v_weight_decay * ||delta|| / ||v_init||^2 + APP

Every edit is one row with its own Adam state, stop and clamp. Keys and values of everything left of
the edited positions are computed once; rows that are done are not read again, and leave the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor
from tqdm.auto import tqdm

from helpers.editing.app import App, app_terms
from helpers.editing.edited_batch import EditedBatch
from helpers.editing.hyperparameters import VectorHyperparameters
from helpers.editing.recorded_step import Recorder
from helpers.editing.rows import EditRow
from helpers.models.batching import run_halving, token_batches
from helpers.models.language_model import LanguageModel

_BETAS, _EPSILON = (0.9, 0.999), 1e-8  # Adam's defaults, as every implementation uses them


@dataclass
class Vector:
    """Result of one edit's optimisation.

    ``delta`` [hidden] is added to ``initial`` [hidden], the hooked activation before the edit.
    ``steps`` counts optimiser steps taken; ``losses`` holds, for each evaluation, the terms by name.
    ``failure`` says why the edit was given up, if it was.
    """

    version: ClassVar[int] = 1  # raise it when the same settings find another vector
    delta: Tensor
    initial: Tensor
    steps: int = 0
    losses: list[dict[str, float]] = field(default_factory=list)
    failure: str | None = None


def optimise_vectors(
    language_model: LanguageModel,
    rows: Sequence[EditRow],
    module: str,
    settings: VectorHyperparameters,
    app: App | None = None,
    *,
    token_budget: int = 2048,
    recorder: Recorder | None = None,
    progress: bool = False,
) -> list[Vector]:
    """Optimise one vector per row, in batches of like length.

    Args:
        language_model: the model; its weights are not touched.
        rows: one packed row per edit.
        module: the module to whose output the vector is added.
        app: coefficients of APP, where rows carry answers.
        token_budget: optimised tokens per batch, padding included.
        recorder: records a step and plays it again (``helpers.editing.recorded_step``).

    Returns:
        Vectors in the order of ``rows``. A non-finite loss ends that edit only (``failure``).
    """
    lengths = [int(row.forest.active().sum()) for row in rows]
    found: dict[int, Vector] = {}
    bar = tqdm(total=len(rows), unit="edit", desc="optimising", disable=not progress)
    for batch in token_batches(lengths, token_budget):

        def run(chosen: Sequence[int]) -> list[Vector]:
            own = [rows[i] for i in chosen]
            return _optimise(language_model, own, module, settings, app, recorder)

        vectors = [vector for part in run_halving(batch, run) for vector in part]
        found.update(zip(batch, vectors, strict=True))
        bar.update(len(batch))
    bar.close()
    return [found[i] for i in range(len(rows))]


@dataclass
class _Adam:
    """Per-row Adam state; rows are independent, so a sum of losses gives each its own gradient."""

    mean: Tensor
    square: Tensor
    steps: int = 0

    @torch.no_grad()
    def step(self, delta: Tensor, gradient: Tensor, rate: float) -> None:
        """Move ``delta`` in place."""
        self.steps += 1
        self.mean.mul_(_BETAS[0]).add_(gradient, alpha=1 - _BETAS[0])
        self.square.mul_(_BETAS[1]).addcmul_(gradient, gradient, value=1 - _BETAS[1])
        root = (self.square / (1 - _BETAS[1] ** self.steps)).sqrt_().add_(_EPSILON)
        delta.addcdiv_(self.mean, root, value=-rate / (1 - _BETAS[0] ** self.steps))

    def keep(self, index: Tensor) -> None:
        self.mean, self.square = self.mean[index], self.square[index]


def done_share(device: torch.device) -> float:
    """Share of a batch that is done before it leaves; until then it is run on and not read.

    On a CPU a step costs what its rows cost, so rows leave at once. On a GPU to leave costs many
    small operations, and other shapes.
    """
    return 0.0 if device.type == "cpu" else 0.25


@dataclass
class _Going:
    """Rows of a batch that go on: ``rows[place]`` is the row at a place, ``places`` are not done."""

    rows: list[int]
    places: list[int]
    device: torch.device

    def finish(self, done: Sequence[int]) -> None:
        """Take note of the places that are done."""
        self.places = [place for place in self.places if place not in set(done)]

    def leave(self) -> Tensor | None:
        """Places that stay, [n], where those that are done are to leave now."""
        gone = len(self.rows) - len(self.places)
        if not gone or gone < done_share(self.device) * len(self.rows):
            return None
        index = torch.tensor(self.places, device=self.device)
        self.rows = [self.rows[place] for place in self.places]
        self.places = list(range(len(self.rows)))
        return index


def _optimise(
    language_model: LanguageModel,
    rows: Sequence[EditRow],
    module: str,
    settings: VectorHyperparameters,
    app: App | None,
    recorder: Recorder | None,
) -> list[Vector]:
    """Optimise one batch; rows are done when they stop, fail, or reach the last step."""
    batch = EditedBatch.build(language_model, rows, module)
    delta = torch.zeros(len(rows), language_model.layout.hidden_size, device=language_model.device)
    delta.requires_grad_(True)
    adam = _Adam(torch.zeros_like(delta), torch.zeros_like(delta))
    going = _Going(list(range(len(rows))), list(range(len(rows))), language_model.device)
    vectors: list[Vector] = []
    play: Callable[[], _Found] | None = None
    for step in range(settings.v_num_grad_steps):
        if recorder and step and play is None:  # the first step makes what the others read
            play = recorder(partial(_evaluate, batch, delta, settings, app))
        if play:
            terms, total, gradient = play()
        else:
            terms, total = _loss_terms(batch, delta, settings, app)
        if step == 0:
            vectors = [Vector(torch.zeros_like(v), v) for v in batch.initial]
            limit = settings.clamp_norm_factor * batch.initial.norm(dim=-1, keepdim=True)
        last = step + 1 == settings.v_num_grad_steps
        _record(vectors, going, delta, terms, total, settings, step, last=last)
        if not going.places:
            break
        if play is None:  # not before: the last step needs none
            (gradient,) = torch.autograd.grad(total.sum(), delta)
        adam.step(delta, gradient, settings.v_lr)
        if (index := going.leave()) is not None:
            delta, limit = delta.detach()[index].requires_grad_(True), limit[index]
            batch.keep(index)
            adam.keep(index)
            play = None  # other shapes
        with torch.no_grad():
            delta.mul_((limit / delta.norm(dim=-1, keepdim=True)).clamp_(max=1.0))
    return vectors


_Found = tuple[dict[str, Tensor], Tensor, Tensor]


def _evaluate(
    batch: EditedBatch, delta: Tensor, settings: VectorHyperparameters, app: App | None
) -> _Found:
    """The terms by name and their sum, each [rows], and the gradient [rows, hidden]."""
    terms, total = _loss_terms(batch, delta, settings, app)
    (gradient,) = torch.autograd.grad(total.sum(), delta)
    return {name: term.detach() for name, term in terms.items()}, total.detach(), gradient


def _loss_terms(
    batch: EditedBatch, delta: Tensor, settings: VectorHyperparameters, app: App | None
) -> tuple[dict[str, Tensor], Tensor]:
    """The weighted terms of the loss and their sum, each [rows]."""
    reading = batch.read(batch.forward(delta))
    reference = batch.reference
    assert reference is not None
    terms = {"nll": reading.target_nll}
    terms["kl"] = settings.kl_factor * reading.kl_from(reference)
    decay = delta.norm(dim=-1) / batch.initial.norm(dim=-1) ** 2
    terms["weight_decay"] = settings.v_weight_decay * decay
    if app and not app.inert:
        before = reference.correct.values, reference.false.values
        terms["app"] = app.total(app_terms(reading.correct, reading.false, *before, app.margin))
    return terms, torch.stack(list(terms.values())).sum(0)


def _record(
    vectors: list[Vector],
    going: _Going,
    delta: Tensor,
    terms: dict[str, Tensor],
    total: Tensor,
    settings: VectorHyperparameters,
    step: int,
    *,
    last: bool,
) -> None:
    """Note this evaluation's terms; rows below the threshold, not finite, or at the end are done.

    What a done row's vector needs is taken here. The step's one host transfer.
    """
    noted = torch.stack([*(term.detach() for term in terms.values()), total.detach()], dim=1)
    values = noted.tolist()
    done = []
    for place in going.places:
        *numbers, whole = values[place]
        vector = vectors[going.rows[place]]
        vector.losses.append(dict(zip(terms, numbers, strict=True)))
        watched = vector.losses[-1]["nll"] if settings.stop_on == "nll" else whole
        if not all(math.isfinite(number) for number in (*numbers, whole)):
            vector.failure = f"non-finite loss at step {step}: {vector.losses[-1]}"
        if last or vector.failure or watched < settings.stop_threshold:
            # A copy: a view would keep its whole batch in memory, and move with it.
            vector.delta, vector.steps = delta[place].detach().clone(), step
            done.append(place)
    going.finish(done)
