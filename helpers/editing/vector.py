"""The optimised vector of the ROME family, for many edits at once.

For each edit a vector delta [hidden] is added at the subject's last token, to the output of one
module (the MLP in ROME, the block in MEMIT and AlphaEdit), and optimised so that the target becomes
likely (ROME, eq. 4; PEAK, eqs. 7-10 with APP):

    NLL + kl_factor * KL(current || initial) + v_weight_decay * ||delta|| / ||v_init||^2 + APP or icd

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
from helpers.editing.edit import Edit
from helpers.editing.editor import Editor, Memo, made_in_batches, memoised
from helpers.editing.icd import Icd
from helpers.editing.moments import SecondMoment
from helpers.editing.presets import VectorHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.rows import EditRow, edit_row, prompts_in_contexts
from helpers.editing.weight_edit import WeightEdit
from helpers.models import LanguageModel
from helpers.models.batching import tokens_at_once
from helpers.models.hooks import output_hooks
from helpers.models.tiles import takes_tiles
from helpers.models.tokens import SubjectPrompt


@dataclass
class Vector:
    """What one edit's optimisation found: ``delta`` [hidden], to be added to ``initial`` [hidden]."""

    delta: Tensor
    initial: Tensor
    steps: int = 0  # of the optimiser
    losses: list[dict[str, float]] = field(default_factory=list)  # terms by name, per evaluation
    failure: str | None = None  # why the edit was given up
    top_evaluations: int = 0  # at which the whole target was the most probable

    @property
    def notes(self) -> dict[str, Any]:
        """What is recorded of it with its edit."""
        return {"steps": self.steps, "losses": self.losses}

    def failed_edit(self, reason: str | None = None) -> WeightEdit:
        """An empty edit that states why its edit was given up; default: the vector's own failure."""
        return WeightEdit({}, {"failure": reason or self.failure, **self.notes})


@dataclass
class VectorEditor(Editor):
    """What ROME, MEMIT and AlphaEdit share: their parts, their checks and the vector."""

    lm: LanguageModel
    hyperparameters: VectorHyperparameters
    contexts: ContextTemplates
    second_moments: Mapping[int, SecondMoment] = field(default_factory=dict)  # by edited layer
    app: App | None = None
    targets: str = "new"
    progress: bool = False
    memo: Memo | None = field(default=None, repr=False)  # vectors of the unedited model
    icd: Icd | None = None

    def __post_init__(self) -> None:
        for layer in self.hyperparameters.layers:
            self.lm.layout.block(layer)
        self.versioned_parts = (
            "vector",
            "contexts",
            *(["second_moments"] if self.second_moments else []),
        )

    def settings(self) -> dict[str, Any]:
        """All that the updates depend on, with the context templates, the statistics and the targets."""
        statistics = {
            str(layer): [moment.corpus, moment.tokens]
            for layer, moment in self.second_moments.items()
        }
        return super().settings() | {
            "contexts": [list(group) for group in self.contexts.groups],
            "second_moments": statistics,
            "targets": self.targets,
        }

    def edit_after(self, earlier: Edit, requests: Sequence[EditRequest]) -> Edit:
        """Vectors found on an edited model are not shared."""
        return Editor.edit_after(replace(self, memo=None), earlier, requests)

    def prompts(self, requests: Sequence[EditRequest]) -> list[list[SubjectPrompt]]:
        """Each request's prompt in every context, the bare one first."""
        return [prompts_in_contexts(self.lm, r, self.contexts) for r in requests]

    def optimised(self, requests: Sequence[EditRequest], module_name: str) -> list[Vector]:
        """One vector per request, added to the module's output; a ``failure`` ends that edit only."""

        def optimise(missing: Sequence[EditRequest]) -> list[Vector]:
            rows = [
                edit_row(
                    self.lm,
                    request,
                    self.app,
                    icd=self.icd,
                    contexts=self.contexts,
                    targets=self.targets,
                    eos=self.hyperparameters.eos,
                )
                for request in missing
            ]
            return made_in_batches(
                [int(row.active().sum()) for row in rows],
                tokens_at_once(self.lm, 1024, gradients=True),
                lambda row_indices: self._optimise([rows[i] for i in row_indices], module_name),
                activity="optimising" if self.progress else "",
                padded=not takes_tiles(self.lm),
            )

        return memoised(self.memo, self._memo_key(module_name), requests, optimise)

    def _memo_key(self, module_name: str) -> str:
        """All that vectors depend on in addition to their requests."""
        in_templates = {"context_template_length_params", "context_template_start"}
        names = set(VectorHyperparameters.model_fields) - {"layers"} - in_templates
        lm = self.lm
        memo_key = {
            "model": [lm.fingerprint, lm.dtype_name, str(lm.device)],
            "module": module_name,
            "hyperparameters": self.hyperparameters.model_dump(mode="json", include=names),
            "contexts": self.contexts.templates,
            "app": None if self.app is None else asdict(self.app),
            "icd": None if self.icd is None else asdict(self.icd),
            "targets": self.targets,
        }
        return json.dumps(memo_key, sort_keys=True)

    def _optimise(self, rows: Sequence[EditRow], module_name: str) -> list[Vector]:
        """Optimise one batch; rows are done when they stop, fail, or reach the last step."""
        settings = self.hyperparameters
        layer = self.lm.layout.layer_of(module_name)
        batch = EditBatch(self.lm, rows, layer, side_by_side=True)
        addition = _AddedVectors(batch, module_name)
        vectors: list[Vector] = []
        unfinished_rows = list(range(len(rows)))  # of the rows, those that are still in the batch
        for step in range(settings.v_num_grad_steps):
            hidden = addition.hidden()
            if not vectors:
                vectors = [Vector(torch.zeros_like(value), value) for value in addition.initial]
            terms = self._loss_terms(batch, hidden, addition)
            losses = torch.stack(list(terms.values())).sum(0)  # [rows]
            unfinished_vectors = [vectors[row] for row in unfinished_rows]
            if settings.top_evaluations is not None:
                are_top = batch.targets_are_top(hidden).tolist()
                for vector, is_top in zip(unfinished_vectors, are_top, strict=True):
                    vector.top_evaluations += is_top
            kept_indices = self._finish_done(
                unfinished_vectors, addition.delta, terms, losses, step
            )
            if not kept_indices:
                break
            addition.step(losses, settings.v_lr, settings.clamp_norm_factor)
            if len(kept_indices) < len(unfinished_rows):
                unfinished_rows = [unfinished_rows[index] for index in kept_indices]
                addition.keep(kept_indices)
                batch.keep(kept_indices)
        return vectors

    def _loss_terms(
        self, batch: EditBatch, hidden: Tensor, addition: _AddedVectors
    ) -> dict[str, Tensor]:
        """The weighted terms of the loss, each [rows]; APP or icd enters here, as the last."""
        settings = self.hyperparameters
        reading = batch.read(hidden)
        assert batch.reference is not None
        divergence = (
            reading.kl_log_probabilities.exp()
            * (reading.kl_log_probabilities - batch.reference.kl_log_probabilities)
        ).sum(-1)
        decay = addition.delta.norm(dim=-1) / addition.initial.norm(dim=-1) ** 2
        return {
            "nll": reading.nll,
            "kl": settings.kl_factor * divergence,
            "weight_decay": settings.v_weight_decay * decay,
            **batch.app_terms(reading, self.app),
            **batch.icd_terms(reading, self.icd),
        }

    def _finish_done(
        self,
        vectors: Sequence[Vector],
        delta: Tensor,
        terms: dict[str, Tensor],
        losses: Tensor,
        step: int,
    ) -> list[int]:
        """Finish the vectors that are done at this evaluation, whose terms all note; indices of the others.

        This is the step's only transfer to the host, but for that of what is top.
        """
        settings = self.hyperparameters
        stops_on_nll = settings.stop_on == "nll" or self.icd is not None
        is_last = step + 1 == settings.v_num_grad_steps
        terms_by_row = torch.stack(
            [*(term.detach() for term in terms.values()), losses.detach()], dim=1
        )
        kept_indices = []
        for index, (vector, (*values, loss)) in enumerate(
            zip(vectors, terms_by_row.tolist(), strict=True)
        ):
            terms_of_row = dict(zip(terms, values, strict=True))
            vector.losses.append(terms_of_row)
            watched_loss = terms_of_row["nll"] if stops_on_nll else loss
            if not all(math.isfinite(value) for value in (*values, loss)):
                vector.failure = f"non-finite loss at step {step}: {terms_of_row}"
            is_top = vector.top_evaluations == settings.top_evaluations
            if is_last or is_top or vector.failure or watched_loss < settings.stop_threshold:
                # A copy: a view would keep its whole batch in memory, and move with it.
                vector.delta = delta[index].detach().clone()
                vector.steps = step
            else:
                kept_indices.append(index)
        return kept_indices


class _AddedVectors:
    """The vectors of a batch, ``delta`` [rows, hidden], added to a module's output at the edited tokens."""

    def __init__(self, batch: EditBatch, module_name: str) -> None:
        self.batch = batch
        self.module_name = module_name
        shape = len(batch.rows), batch.lm.layout.hidden_size
        self.delta = torch.zeros(shape, device=batch.lm.device, requires_grad=True)
        self.adam = RowAdam(torch.zeros_like(self.delta), torch.zeros_like(self.delta))
        self._initial: Tensor | None = None  # until the first pass

    @property
    def initial(self) -> Tensor:
        """What the vectors are added to in the bare prompts [rows, hidden]; after the first pass."""
        assert self._initial is not None
        return self._initial

    def hidden(self) -> Tensor:
        """Final hidden states [rows, active, hidden] under the vectors."""
        with output_hooks(self.batch.lm, {self.module_name: self._add_to_output}):
            return self.batch.hidden()

    def _add_to_output(self, _: Tensor, output: Tensor) -> Tensor:
        batch = self.batch
        flat = output.flatten(0, 1)  # [rows * active, hidden]
        if self._initial is None:
            self._initial = flat[batch.bare_positions].detach().float()
        at_edited = self.delta.index_select(0, batch.edited_rows).to(output.dtype)
        return flat.index_add(0, batch.edited_positions, at_edited).view_as(output)

    def step(self, losses: Tensor, rate: float, clamp_norm_factor: float) -> None:
        """One step of Adam on the sum of the losses [rows]; no vector becomes longer than its limit."""
        (gradient,) = torch.autograd.grad(losses.sum(), self.delta)
        self.adam.step(self.delta, gradient, rate)
        with torch.no_grad():
            limit = clamp_norm_factor * self.initial.norm(dim=-1, keepdim=True)  # [rows, 1]
            self.delta.mul_((limit / self.delta.norm(dim=-1, keepdim=True)).clamp_(max=1.0))

    def keep(self, row_indices: Sequence[int]) -> None:
        """Drop all rows but these."""
        index = torch.tensor(row_indices, device=self.delta.device)
        self.delta = self.delta.detach()[index].requires_grad_(True)
        self._initial = self.initial[index]
        self.adam.mean = self.adam.mean[index]
        self.adam.square = self.adam.square[index]


@dataclass
class RowAdam:
    """Per-row Adam state; rows are independent, so a sum of losses gives each its own gradient."""

    mean: Tensor
    square: Tensor
    steps: int = 0

    @torch.no_grad()
    def step(self, delta: Tensor, gradient: Tensor, rate: float) -> None:
        """Move ``delta`` in place."""
        self.steps += 1
        beta_1, beta_2 = 0.9, 0.999  # Adam's defaults
        self.mean.mul_(beta_1).add_(gradient, alpha=1 - beta_1)
        self.square.mul_(beta_2).addcmul_(gradient, gradient, value=1 - beta_2)
        root = (self.square / (1 - beta_2**self.steps)).sqrt_().add_(1e-8)
        delta.addcdiv_(self.mean, root, value=-rate / (1 - beta_1**self.steps))
