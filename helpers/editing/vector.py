"""The optimised vector of the ROME family, for many edits at once.

For each edit a vector delta [hidden] is added at the subject's last token, to the output of one
module (the MLP in ROME, the block in MEMIT and AlphaEdit), and optimised so that the target becomes
likely (ROME, eq. 4; PEAK, eqs. 7-10 with APP):

    NLL + kl_factor * KL(current || initial) + v_weight_decay * ||delta|| / ||v_init||^2 + APP

The second and third terms are those of ROME's code, not of PEAK's Equation 12, which has the KL term at
weight 1 and no decay. KL compares the next-token distributions at the subject's last token of
"{subject} is a": the words "is a" come after it and are never run. In all presets ``kl_factor`` is 0.0625.

Every edit is one row with its own Adam state, stop and clamp; rows that are done leave the batch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from helpers.editing.app import App
from helpers.editing.batch import EditBatch
from helpers.editing.contexts import ContextTemplates
from helpers.editing.editor import Editor, Memo, made_in_batches, memoised
from helpers.editing.moments import SecondMoment
from helpers.editing.presets import VectorHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.rows import EditRow, edit_row, subject_prompts
from helpers.editing.update import Update
from helpers.models import LanguageModel
from helpers.models.batching import tokens_at_once
from helpers.models.hooks import output_hooks
from helpers.models.tokens import SubjectPrompt


@dataclass
class Vector:
    """Result of one edit's optimisation: ``delta`` [hidden], to be added to ``initial`` [hidden]."""

    delta: Tensor
    initial: Tensor
    steps: int = 0  # of the optimiser
    losses: list[dict[str, float]] = field(default_factory=list)  # terms by name, per evaluation
    failure: str | None = None  # why the edit was given up

    @property
    def noted(self) -> dict[str, Any]:
        """What is recorded of it with its edit."""
        return {"steps": self.steps, "losses": self.losses}

    def failed(self, reason: str | None = None) -> Update:
        """An empty update that states why its edit was given up; default: the vector's own failure."""
        return Update({}, {"failure": reason or self.failure, **self.noted})


@dataclass
class VectorEditor(Editor):
    """What ROME, MEMIT and AlphaEdit share: their parts, their checks and the vector."""

    model: LanguageModel
    hyperparameters: VectorHyperparameters
    contexts: ContextTemplates
    second_moments: Mapping[int, SecondMoment] = field(default_factory=dict)  # by edited layer
    app: App | None = None
    targets: str = "new"
    progress: bool = False
    memo: Memo | None = field(default=None, repr=False)  # vectors of the unedited model

    def __post_init__(self) -> None:
        for layer in self.hyperparameters.layers:
            self.model.layout.block(layer)
        self.parts = ("vector", "contexts", *(["second_moments"] if self.second_moments else []))

    def settings(self) -> dict[str, Any]:
        """Also the context templates, the statistics and the choice of targets."""
        statistics = {str(k): [m.corpus, m.tokens] for k, m in self.second_moments.items()}
        return super().settings() | {
            "contexts": [list(group) for group in self.contexts.groups],
            "second_moments": statistics,
            "targets": self.targets,
        }

    def edit_after(self, earlier: Update, requests: Sequence[EditRequest]) -> Update:
        """Vectors found on an edited model are not shared."""
        return Editor.edit_after(replace(self, memo=None), earlier, requests)

    def prompts(self, requests: Sequence[EditRequest]) -> list[list[SubjectPrompt]]:
        """Each request's prompt in every context, the bare one first."""
        return [subject_prompts(self.model, r, self.contexts) for r in requests]

    def optimised(self, requests: Sequence[EditRequest], module: str) -> list[Vector]:
        """One vector per request, added to the output of ``module``; a ``failure`` ends that edit only."""
        model = self.model
        how: dict[str, Any] = {"contexts": self.contexts, "targets": self.targets}

        def found(missing: Sequence[EditRequest]) -> list[Vector]:
            rows = [edit_row(model, request, self.app, **how) for request in missing]
            return made_in_batches(
                [int(row.active().sum()) for row in rows],
                tokens_at_once(model, 2048, gradients=True),
                lambda chosen: self._optimise([rows[i] for i in chosen], module),
                activity="optimising" if self.progress else "",
            )

        elsewhere = {"layers", "context_template_length_params", "context_template_start"}
        optimisation = set(VectorHyperparameters.model_fields) - elsewhere
        values = self.hyperparameters.model_dump(mode="json", include=optimisation)
        place = [model.fingerprint, model.dtype_name, str(model.device), module]
        app = None if self.app is None else asdict(self.app)
        key = json.dumps(
            [place, values, self.contexts.templates, app, self.targets], sort_keys=True
        )
        return memoised(self.memo, key, requests, found)

    def _optimise(self, rows: Sequence[EditRow], module: str) -> list[Vector]:
        """Optimise one batch; rows are done when they stop, fail, or reach the last step."""
        model, settings = self.model, self.hyperparameters
        batch = EditBatch(model, rows, model.layout.layer_of(module))
        delta = torch.zeros(len(rows), model.layout.hidden_size, device=model.device)
        delta.requires_grad_(True)
        adam = _Adam(torch.zeros_like(delta), torch.zeros_like(delta))
        present, vectors = list(range(len(rows))), list[Vector]()
        seen: list[Tensor] = []
        initial = limit = torch.empty(0)
        for step in range(settings.v_num_grad_steps):
            hidden = _forward(batch, module, delta, seen)
            if step == 0:
                (initial,) = seen
                vectors = [Vector(torch.zeros_like(v), v) for v in initial]
                limit = settings.clamp_norm_factor * initial.norm(dim=-1, keepdim=True)
            terms = self._loss_terms(batch, hidden, delta, initial)
            total = torch.stack(list(terms.values())).sum(0)
            own = [vectors[row] for row in present]
            stays = self._record(own, delta, terms, total, step)
            if not stays:
                break
            (gradient,) = torch.autograd.grad(total.sum(), delta)
            adam.step(delta, gradient, settings.v_lr)
            if len(stays) < len(present):
                index = torch.tensor(stays, device=model.device)
                present = [present[place] for place in stays]
                limit = limit[index]
                delta = delta.detach()[index].requires_grad_(True)
                initial, adam.mean, adam.square = (
                    part[index] for part in (initial, adam.mean, adam.square)
                )
                batch.keep(stays)
            with torch.no_grad():
                delta.mul_((limit / delta.norm(dim=-1, keepdim=True)).clamp_(max=1.0))
        return vectors

    def _loss_terms(
        self, batch: EditBatch, hidden: Tensor, delta: Tensor, initial: Tensor
    ) -> dict[str, Tensor]:
        """The weighted terms of the loss, each [rows]; APP enters here, as the last."""
        reading, settings = batch.read(hidden), self.hyperparameters
        assert batch.reference is not None
        divergence = (reading.kl.exp() * (reading.kl - batch.reference.kl)).sum(-1)
        decay = delta.norm(dim=-1) / initial.norm(dim=-1) ** 2
        return {
            "nll": reading.nll,
            "kl": settings.kl_factor * divergence,
            "weight_decay": settings.v_weight_decay * decay,
            **batch.app_terms(reading, self.app),
        }

    def _record(
        self,
        vectors: Sequence[Vector],
        delta: Tensor,
        terms: dict[str, Tensor],
        total: Tensor,
        step: int,
    ) -> list[int]:
        """Note this evaluation's terms, in the step's one host transfer; places of rows that stay."""
        settings, stays = self.hyperparameters, []
        last = step + 1 == settings.v_num_grad_steps
        noted = torch.stack([*(term.detach() for term in terms.values()), total.detach()], dim=1)
        for place, (vector, numbers) in enumerate(zip(vectors, noted.tolist(), strict=True)):
            vector.losses.append(dict(zip(terms, numbers[:-1], strict=True)))
            watched = numbers[0 if settings.stop_on == "nll" else -1]
            if not all(map(math.isfinite, numbers)):
                vector.failure = f"non-finite loss at step {step}: {vector.losses[-1]}"
            if last or vector.failure or watched < settings.stop_threshold:
                # A copy: a view would keep its whole batch in memory, and move with it.
                vector.delta, vector.steps = delta[place].detach().clone(), step
            else:
                stays.append(place)
        return stays


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
        first, second = 0.9, 0.999  # Adam's defaults
        self.mean.mul_(first).add_(gradient, alpha=1 - first)
        self.square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        root = (self.square / (1 - second**self.steps)).sqrt_().add_(1e-8)
        delta.addcdiv_(self.mean, root, value=-rate / (1 - first**self.steps))


def _forward(batch: EditBatch, module: str, delta: Tensor, seen: list[Tensor]) -> Tensor:
    """Final hidden states with ``delta`` added; what it is added to goes into ``seen``, once."""

    def adding(_: Tensor, output: Tensor) -> Tensor:
        if not seen:
            rows = torch.arange(len(delta), device=delta.device)
            seen.append(output[rows, batch.bare].detach().float())
        added = delta.index_select(0, batch.edited[0]).to(output.dtype)
        return output.flatten(0, 1).index_add(0, batch.edited[1], added).view_as(output)

    with output_hooks(batch.model, {module: adding}):
        return batch.hidden()
