"""The optimised vector of the ROME family, for many edits at once.

For each edit a vector delta [hidden] is added at the subject's last token, to the output of one
module (the MLP in ROME, the block in MEMIT and AlphaEdit), and optimised so that the target becomes
likely (ROME, eq. 4; PEAK, eqs. 7-10 with APP):

    NLL + kl_factor * KL(current || initial) + v_weight_decay * ||delta|| / ||v_init||^2 + APP

Every edit is one row with its own Adam state, stop and clamp. Keys and values of everything left of
the edited positions are computed once; rows that are done leave the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from tqdm.auto import tqdm

from helpers.editing.app import App, app_terms
from helpers.editing.edited_batch import EditedBatch
from helpers.editing.hyperparameters import VectorHyperparameters
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
    progress: bool = False,
) -> list[Vector]:
    """Optimise one vector per row, in batches of like length.

    Args:
        language_model: the model; its weights are not touched.
        rows: one packed row per edit.
        module: the module to whose output the vector is added.
        settings: hyperparameters.
        app: coefficients of APP, where rows carry answers.
        token_budget: optimised tokens per batch, padding included.
        progress: show a progress bar.

    Returns:
        Vectors in the order of ``rows``. A non-finite loss ends that edit only (``failure``).
    """
    lengths = [int(row.forest.active().sum()) for row in rows]
    found: dict[int, Vector] = {}
    bar = tqdm(total=len(rows), unit="edit", desc="optimising", disable=not progress)
    for batch in token_batches(lengths, token_budget):

        def run(chosen: Sequence[int]) -> list[Vector]:
            return _optimise(language_model, [rows[i] for i in chosen], module, settings, app)

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

    def step(self, delta: Tensor, gradient: Tensor, rate: float) -> Tensor:
        self.steps += 1
        self.mean = _BETAS[0] * self.mean + (1 - _BETAS[0]) * gradient
        self.square = _BETAS[1] * self.square + (1 - _BETAS[1]) * gradient**2
        unbiased_mean = self.mean / (1 - _BETAS[0] ** self.steps)
        unbiased_square = self.square / (1 - _BETAS[1] ** self.steps)
        return delta - rate * unbiased_mean / (unbiased_square.sqrt() + _EPSILON)

    def keep(self, index: Tensor) -> None:
        self.mean, self.square = self.mean[index], self.square[index]


def _optimise(
    language_model: LanguageModel,
    rows: Sequence[EditRow],
    module: str,
    settings: VectorHyperparameters,
    app: App | None,
) -> list[Vector]:
    """Optimise one batch; rows leave it when they stop, fail, or reach the last step."""
    batch = EditedBatch.build(language_model, rows, module)
    delta = torch.zeros(len(rows), language_model.layout.hidden_size, device=language_model.device)
    adam = _Adam(torch.zeros_like(delta), torch.zeros_like(delta))
    vectors: list[Vector] = []
    present = list(range(len(rows)))
    for step in range(settings.v_num_grad_steps):
        delta.requires_grad_(True)
        hidden = batch.forward(delta)
        if step == 0:
            vectors = [Vector(delta[i].detach(), v) for i, v in enumerate(batch.initial)]
        terms = _loss_terms(batch, hidden, delta, settings, app)
        total = torch.stack(list(terms.values())).sum(0)
        done = _finished(terms, total, settings, last=step + 1 == settings.v_num_grad_steps)
        going = _record(vectors, present, delta, terms, done, step)
        if not going:
            break
        (gradient,) = torch.autograd.grad(total.masked_fill(done, 0.0).sum(), delta)
        if len(going) < len(present):
            index = torch.tensor(going, device=delta.device)
            present = [present[place] for place in going]
            delta, gradient = delta.detach()[index], gradient[index]
            batch.keep(index)
            adam.keep(index)
        delta = adam.step(delta.detach(), gradient, settings.v_lr)
        limit = settings.clamp_norm_factor * batch.initial.norm(dim=-1, keepdim=True)
        delta = delta * (limit / delta.norm(dim=-1, keepdim=True)).clamp(max=1.0)
    for vector in vectors:
        vector.delta = vector.delta.clone()  # a view would keep its whole batch in memory
    return vectors


def _loss_terms(
    batch: EditedBatch,
    hidden: Tensor,
    delta: Tensor,
    settings: VectorHyperparameters,
    app: App | None,
) -> dict[str, Tensor]:
    """The weighted terms of the loss, each [rows]."""
    reading = batch.read(hidden)
    reference = batch.reference
    assert reference is not None
    terms = {"nll": reading.target_nll}
    terms["kl"] = settings.kl_factor * reading.kl_from(reference)
    decay = delta.norm(dim=-1) / batch.initial.norm(dim=-1) ** 2
    terms["weight_decay"] = settings.v_weight_decay * decay
    if app and not app.inert:
        before = reference.correct.values, reference.false.values
        terms["app"] = app.total(app_terms(reading.correct, reading.false, *before, app.margin))
    return terms


def _finished(
    terms: dict[str, Tensor], total: Tensor, settings: VectorHyperparameters, *, last: bool
) -> Tensor:
    """Rows that end here: below the threshold, not finite, or at the last evaluation."""
    watched = terms["nll"] if settings.stop_on == "nll" else total
    done = (watched < settings.stop_threshold) | ~torch.isfinite(total)
    return torch.ones_like(done) if last else done


def _record(
    vectors: list[Vector],
    present: list[int],
    delta: Tensor,
    terms: dict[str, Tensor],
    done: Tensor,
    step: int,
) -> list[int]:
    """Note this evaluation's terms, the vector they belong to, and failures.

    Returns:
        Places of the rows that are not done; they come in the step's one host transfer.
    """
    names = list(terms)
    noted = [*(terms[name].detach() for name in names), done]
    values = torch.stack([column.float() for column in noted], dim=1).tolist()
    for place, row, (*numbers, _) in zip(range(len(present)), present, values, strict=True):
        vector = vectors[row]
        vector.delta, vector.steps = delta[place].detach(), step
        vector.losses.append(dict(zip(names, numbers, strict=True)))
        if not all(abs(number) < float("inf") for number in numbers):
            vector.failure = f"non-finite loss at step {step}: {vector.losses[-1]}"
    return [place for place, (*_, ended) in enumerate(values) if not ended]
