"""MEMOIR: a memory next to one MLP matrix, of which each edit writes, and each prompt reads, few columns.

With k [f] what enters the matrix, the output at every token becomes W k + M (m o k), where m is a mask of K
ones (Wang et al. 2025, "MEMOIR: Lifelong Model Editing with Minimal Overwrite and Informed Retention"):

    a = mean of k over a prompt's tokens, less the mean of this over background prompts
    m = pi(the K largest |a|)                  pi is one fixed random permutation of the inputs ("TopHash")

An edit takes the mask m_i of its bare prompt, trains the columns of M in m_i, and stores m_i. A prompt takes
the stored mask that it shares most columns with, not its own; none where their overlap |m o m_i| / K is below
tau.

Columns are trained by SGD on the target's mean negative log-likelihood over the prompt in several contexts,
with the gradient clipped to a norm. An edit is done where its loss is below ``stop_threshold`` and changes by
less than ``stop_change``. Decay of weights takes from all of M, so from all older edits, at each step.

Deviations. Two masks share K / f of their columns by chance, which the authors' tau of 0.4 is not far from
(K / f = 0.29). Here tau is what at most 5 % of held-out prompts reach, found anew as masks are stored, unless
it is given. The mask is decided once for a prompt and kept for what is generated after it; in the code each
token that is generated with a cache makes a mask of itself. The mean is over the target's tokens; the code
divides by one more and by padding, so that its rate depends on the batch. Contexts are those of other editors
here (sampled from the five likeliest tokens), and background prompts are packaged. The stop is at the
evaluation that fulfils it, not one step later. Nothing decays unless ``weight_decay`` is set; the code has
1e-5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field, ValidationInfo, field_validator
from torch import Tensor

from helpers.editing.batch import EditBatch
from helpers.editing.contexts import ContextTemplates
from helpers.editing.edit import EditError
from helpers.editing.gated import GatedEdit, GatedEditor, Trained
from helpers.editing.held_out import check_held_out, first_held_out, held_out_digest
from helpers.editing.interventions import Gate
from helpers.editing.masks import BestMask, mask_size
from helpers.editing.presets import LayerHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.rows import EditRow, prompts_in_contexts
from helpers.models import LanguageModel
from helpers.models.hooks import output_hooks
from helpers.models.tokens import answer_ids, separator_after
from helpers.models.weights import free_bytes


@dataclass(frozen=True)
class ResidualMemory(GatedEdit):
    """Masks, and a memory next to one matrix of the model with this ``fingerprint``."""

    module_name: str
    gate: BestMask
    fingerprint: str
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    kind: ClassVar[str] = "residual memory"
    gate_class: ClassVar[type[Gate]] = BestMask

    @property
    def gate_notes(self) -> dict[str, Any]:
        """The threshold, and how many masks are stored."""
        threshold = self.gate.least_overlap / self.gate.mask_size
        return {"threshold": threshold, "masks": len(self.gate.masks)}


class MemoirHyperparameters(LayerHyperparameters):
    """MEMOIR at the MLP's output matrix of one layer; ``mask_share`` is K / f, ``threshold`` is tau.

    Without a threshold it is measured on ``held_out`` prompts.
    """

    layers: tuple[int]
    mask_share: float = Field(gt=0, le=1)
    threshold: float | None = None
    held_out: int = Field(default=200, gt=0)
    num_steps: int = Field(default=30, ge=0)
    lr: float = Field(default=1.0, gt=0)
    gradient_norm: float = Field(default=1.0, gt=0)
    weight_decay: float = Field(default=0.0, ge=0, lt=1)
    stop_threshold: float = 0.02
    stop_change: float = 1e-4
    context_template_length_params: tuple[tuple[int, int], ...]

    @field_validator("threshold")
    @classmethod
    def _above_chance(cls, threshold: float | None, info: ValidationInfo) -> float | None:
        mask_share = info.data.get("mask_share")
        if threshold is not None and mask_share is not None and threshold <= mask_share:
            raise ValueError(
                f"two masks share {mask_share:g} of their columns by chance; write more, or null to"
                " have it measured"
            )
        return threshold

    @property
    def measured_requests(self) -> int:
        """None where the threshold is given."""
        return self.held_out if self.threshold is None else 0


@dataclass(kw_only=True)
class _TrainedColumns(Trained):
    """Columns of the memory [out, K], and the mask that they are at."""

    mask: Tensor  # boolean [in]

    def goes_on(self, loss: float, settings: MemoirHyperparameters) -> bool:
        """Note an evaluation; whether a step follows it."""
        change = abs(loss - self.losses[-1]["nll"]) if self.losses else math.inf
        self.note({"nll": loss})
        is_done = change <= settings.stop_change and loss <= settings.stop_threshold
        return not is_done and not self.failure


@dataclass
class Memoir(GatedEditor[ResidualMemory]):
    """MEMOIR on one model; a sequence is one memory."""

    lm: LanguageModel
    hyperparameters: MemoirHyperparameters
    contexts: ContextTemplates
    seed: int = 0  # of the permutation
    progress: bool = False
    name = "memoir"
    edit_class = ResidualMemory
    versioned_parts = ("contexts",)

    def __post_init__(self) -> None:
        super().__post_init__()
        share = self.hyperparameters.mask_share
        self.mask_size = mask_size(share, self.lm.layout.intermediate_size)  # K

    def settings(self) -> dict[str, Any]:
        """Also contexts and seed, and the prompts that a threshold is measured on."""
        measured = self.hyperparameters.measured_requests
        return super().settings() | {
            "contexts": [list(group) for group in self.contexts.groups],
            "seed": self.seed,
            "held_out": held_out_digest() if measured else "",
        }

    @property
    def edits_at_a_time(self) -> int:
        """What a quarter of free memory has room for: columns, their gradient, and one copy in transit."""
        numbers = 3 * self.lm.layout.hidden_size * self.mask_size
        return max(1, free_bytes(self.lm.device) // 4 // (4 * numbers))

    def rows(self, requests: Sequence[EditRequest]) -> list[EditRow]:
        """The target after the prompt in every context."""
        check_held_out(requests, self.hyperparameters.measured_requests)
        rows = []
        for request in requests:
            row = EditRow(request.record or request.text)
            prompts = prompts_in_contexts(self.lm, request, self.contexts)
            with request.named():
                target_ids = answer_ids(self.lm, request.target, separator_after(request.text))
            for prompt in prompts:
                row.target += row.predict(prompt.ids, target_ids, total_weight=1 / len(prompts))
            rows.append(row)
        return rows

    def empty(self) -> ResidualMemory:
        """A memory without masks."""
        layout, device = self.lm.layout, self.lm.device
        permutation = np.random.default_rng(self.seed).permutation(layout.intermediate_size)
        gate = BestMask(
            columns=torch.empty(0, dtype=torch.long, device=device),
            memory=torch.empty(layout.hidden_size, 0, device=device),
            masks=torch.empty(0, 0, dtype=torch.bool, device=device),
            center=self.background_queries.mean(0),
            permutation=torch.from_numpy(permutation).to(device),
            mask_size=self.mask_size,
            least_overlap=self.mask_size + 1,
        )
        return ResidualMemory(self.module_name, gate, self.lm.fingerprint)

    @cached_property
    def _held_out_queries(self) -> Tensor:
        """What the gate is asked with about the prompts that a threshold is measured on [prompts, in]."""
        requests = first_held_out(self.hyperparameters.held_out)
        return self.queries([request.text for request in requests])

    def extended(
        self, edit: ResidualMemory, request: EditRequest, row: EditRow, trained: Trained
    ) -> ResidualMemory:
        """The memory with the columns and the mask, and the threshold that it then has."""
        assert isinstance(trained, _TrainedColumns)
        settings = self.hyperparameters
        decay = (1 - settings.lr * settings.weight_decay) ** trained.steps
        gate = edit.gate.with_mask(trained.mask, trained.tensor, decay)
        if settings.threshold is None:
            least_overlap = gate.overlap_above(self._held_out_queries)
        else:
            least_overlap = math.ceil(settings.threshold * self.mask_size - 1e-6)
        return replace(edit, gate=replace(gate, least_overlap=least_overlap))

    def train(
        self, edit: ResidualMemory, requests: Sequence[EditRequest], rows: Sequence[EditRow]
    ) -> list[Trained]:
        """The memory's columns at each request's mask; requests that are done leave the batch."""
        if edit.gate.mask_size != self.mask_size:
            raise EditError(
                f"masks of {self.mask_size} columns cannot continue a {edit.kind} with masks of"
                f" {edit.gate.mask_size}: set mask_share"
            )
        settings = self.hyperparameters
        batch = EditBatch(self.lm, rows, self.layer)
        masks = edit.gate.hashed(self.queries([request.text for request in requests]))
        inputs = masks.nonzero()[:, 1].view(len(rows), self.mask_size)  # [rows, K], ascending
        columns = edit.gate.dense_memory()[:, inputs].transpose(0, 1)  # [rows, out, K]
        trained_columns = [_TrainedColumns(tensor=columns[0], mask=mask) for mask in masks]
        unfinished = list(trained_columns)
        for _ in range(settings.num_steps):
            columns = columns.detach().requires_grad_(True)
            losses = self._losses(batch, inputs, columns)  # [rows]
            goes_on = [
                trained.goes_on(loss, settings)
                for trained, loss in zip(unfinished, losses.tolist(), strict=True)
            ]
            if not any(goes_on):
                break
            kept_indices = [index for index, is_kept in enumerate(goes_on) if is_kept]
            (gradient,) = torch.autograd.grad(losses[kept_indices].sum(), columns)
            columns = columns.detach()
            if not all(goes_on):
                _put_tensors(unfinished, columns)
                unfinished = [unfinished[index] for index in kept_indices]
                batch.keep(kept_indices)
                inputs = inputs[kept_indices]
                columns = columns[kept_indices]
                gradient = gradient[kept_indices]
            norms = gradient.flatten(1).norm(dim=1)[:, None, None]
            clipped = gradient * (settings.gradient_norm / (norms + 1e-6)).clamp(max=1)
            columns = (1 - settings.lr * settings.weight_decay) * columns - settings.lr * clipped
            for trained in unfinished:
                trained.steps += 1
        _put_tensors(unfinished, columns)
        return list(trained_columns)

    def _losses(self, batch: EditBatch, inputs: Tensor, columns: Tensor) -> Tensor:
        """The targets' negative log-likelihood [rows], each row with its own columns of the memory."""

        def add(entering: Tensor, output: Tensor) -> Tensor:
            tokens = entering.shape[1]
            masked = entering.float().gather(2, inputs[:, None].expand(-1, tokens, -1))
            return output + (masked @ columns.transpose(1, 2)).to(output.dtype)

        with output_hooks(self.lm, {self.module_name: add}):
            return batch.read(batch.hidden()).nll


def _put_tensors(trained_columns: Sequence[_TrainedColumns], columns: Tensor) -> None:
    # Copies: a view would keep its whole batch in memory.
    for trained, columns_of_row in zip(trained_columns, columns.detach(), strict=True):
        trained.tensor = columns_of_row.clone()
