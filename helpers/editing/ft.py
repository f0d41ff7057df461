"""FT: fine-tuning one MLP matrix on one fact, inside an L-infinity bound.

``ft-l`` reads all target tokens from the single distribution after the prompt (objective
``prompt_last``), as the code called FT-L does; ``ft-m`` is ordinary teacher-forced next-token loss
(``target_new``). Each edit has its own change of the matrix, its own Adam state and its own stop;
the loss is the target's mean negative log-likelihood, with APP's terms added (PEAK, eqs. 7-10) or icd's.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from helpers.editing.app import App
from helpers.editing.batch import EditBatch
from helpers.editing.editor import Editor, diagnostics_of, made_in_batches
from helpers.editing.icd import Icd
from helpers.editing.interventions import Dense
from helpers.editing.presets import LossHyperparameters
from helpers.editing.request import EditRequest, with_one_prompt
from helpers.editing.rows import EditRow, edit_row
from helpers.editing.weight_edit import WeightEdit
from helpers.models import LanguageModel
from helpers.models.hooks import output_hooks
from helpers.models.weights import free_bytes


@dataclass
class LossEditor(Editor):
    """Base of the editors that lower a loss of whole rows: FT, MEND and others that change every token.

    ROME and its relatives change one token's vector, and are ``VectorEditor``.
    """

    lm: LanguageModel
    hyperparameters: LossHyperparameters
    app: App | None = None
    targets: str = "new"
    progress: bool = False
    icd: Icd | None = None
    token_budget: ClassVar[int]  # of a batch
    versioned_parts = ("loss",)

    @property
    def edits_at_a_time(self) -> int | None:
        """Most edits of a batch; None: as many as its tokens allow."""
        return None

    @property
    def reads_prompt_last(self) -> bool:
        """Whether all tokens of an answer are read from the one distribution after the prompt."""
        return False

    @abstractmethod
    def edit_rows(self, rows: Sequence[EditRow]) -> list[WeightEdit]:
        """One independent update per row, made in one batch."""

    def settings(self) -> dict[str, Any]:
        """All that the updates depend on: any editor's settings, and the choice of targets."""
        return super().settings() | {"targets": self.targets}

    def rows(self, requests: Sequence[EditRequest]) -> list[EditRow]:
        """For each request the row of tokens that its loss reads."""
        return [
            edit_row(
                self.lm,
                request,
                self.app,
                icd=self.icd,
                targets=self.targets,
                answers_read_at_end=self.reads_prompt_last,
                eos=self.hyperparameters.eos,
            )
            for request in with_one_prompt(requests)
        ]

    def watched_loss(self, terms: Mapping[str, Tensor]) -> Tensor:
        """What ends an edit once it is small [rows]: the sum of the terms, or with icd the NLL."""
        return terms["nll"] if self.icd is not None else torch.stack(list(terms.values())).sum(0)

    def edit(self, requests: Sequence[EditRequest]) -> list[WeightEdit]:
        """One independent update per request."""
        rows = self.rows(requests)
        return made_in_batches(
            [len(row.forest) for row in rows],
            self.token_budget,
            lambda row_indices: self.edit_rows([rows[i] for i in row_indices]),
            max_items=self.edits_at_a_time,
            activity="editing" if self.progress else "",
        )


class FtHyperparameters(LossHyperparameters):
    """FT on one layer, its module's bias included, where it has one (GPT-2, GPT-J).

    ``norm_constraint`` bounds every entry's change. Below a loss of ``stop_threshold`` no further step is
    taken.
    """

    layers: tuple[int]
    num_steps: int = Field(gt=0)
    lr: float = Field(gt=0)
    norm_constraint: float | None = Field(default=None, gt=0)
    objective: Literal["prompt_last", "target_new"] = "prompt_last"
    stop_threshold: float = 1e-2


@dataclass
class _PendingEdit:
    """One edit's private change of matrix and bias, in fp32, and what it went through."""

    delta: Dense
    steps: int = 0
    losses: list[dict[str, float]] = field(default_factory=list)
    failure: str | None = None

    @property
    def parameters(self) -> list[Tensor]:
        """What is optimised: the matrix [d, f], and the bias [d] where there is one."""
        return list(self.delta.tensors().values())

    def note(self, losses: dict[str, float]) -> None:
        """Note the terms of an evaluation; a number that is not finite ends the edit."""
        self.losses.append(losses)
        if not all(math.isfinite(value) for value in losses.values()):
            self.failure = f"non-finite loss at step {self.steps}: {losses}"


@dataclass
class Ft(LossEditor):
    """FT on one model; the edits' private matrices and Adam states take a quarter of free memory."""

    hyperparameters: FtHyperparameters
    name = "ft"
    token_budget = 2048

    def __post_init__(self) -> None:
        (self.layer,) = self.hyperparameters.layers
        self.lm.layout.block(self.layer)
        self.module = self.lm.layout.mlp_out(self.layer)

    @property
    def reads_prompt_last(self) -> bool:
        """True of FT-L."""
        return self.hyperparameters.objective == "prompt_last"

    @property
    def edits_at_a_time(self) -> int:
        """What memory has room for: change, gradient, Adam's two moments, and one matrix in transit."""
        budget = free_bytes(self.lm.device) // 4
        return max(1, budget // (5 * 4 * self.lm.weight(self.module).numel()))

    def edit_rows(self, rows: Sequence[EditRow]) -> list[WeightEdit]:
        """Dense updates, optimised together; edits leave the batch when they stop or fail."""
        settings = self.hyperparameters
        batch = EditBatch(self.lm, rows, self.layer)
        edits = [self._unchanged() for _ in rows]
        # Parameters without a gradient are left alone, momentum included: finished edits stay put.
        optimiser = torch.optim.Adam(
            [parameter for edit in edits for parameter in edit.parameters],
            lr=settings.lr,
            fused=True,
        )
        unfinished = list(edits)  # a row of the batch each
        for _ in range(settings.num_steps):
            terms = self._loss_terms(batch, unfinished)
            total = torch.stack(list(terms.values())).sum(0)  # [rows]
            by_row = torch.stack([term.detach() for term in terms.values()], dim=1).tolist()
            for edit, values in zip(unfinished, by_row, strict=True):
                edit.note(dict(zip(terms, values, strict=True)))
            is_large = self.watched_loss(terms) >= settings.stop_threshold
            goes_on = is_large & torch.isfinite(total)
            kept_rows = goes_on.nonzero()[:, 0].tolist()
            if not kept_rows:
                break
            unfinished = [unfinished[index] for index in kept_rows]
            parameters = [parameter for edit in unfinished for parameter in edit.parameters]
            optimiser.zero_grad()
            total[goes_on].sum().backward(inputs=parameters)
            if len(kept_rows) < len(batch.rows):
                batch.keep(kept_rows)
            optimiser.step()
            self._bound(parameters)
            for edit in unfinished:
                edit.steps += 1
        return [self._weight_edit(edit) for edit in edits]

    def _unchanged(self) -> _PendingEdit:
        device = self.lm.device
        outputs, inputs = self.lm.weight(self.module).shape
        matrix = torch.zeros(outputs, inputs, device=device, requires_grad=True)
        bias = None
        if getattr(self.lm.module(self.module), "bias", None) is not None:
            bias = torch.zeros(outputs, device=device, requires_grad=True)
        return _PendingEdit(Dense(matrix, bias))

    def _loss_terms(self, batch: EditBatch, edits: Sequence[_PendingEdit]) -> dict[str, Tensor]:
        """The terms of the loss [rows], each row under its own edit."""

        def add_changes(entering: Tensor, output: Tensor) -> Tensor:
            changes = [
                edit.delta.contribution(row_input)
                for edit, row_input in zip(edits, entering.float(), strict=True)
            ]
            return output + torch.stack(changes).to(output.dtype)

        with output_hooks(self.lm, {self.module: add_changes}):
            return batch.loss_terms(batch.hidden(), self.app, self.icd)

    @torch.no_grad()
    def _bound(self, parameters: Sequence[Tensor]) -> None:
        bound = self.hyperparameters.norm_constraint
        if bound is not None:
            for parameter in parameters:
                parameter.clamp_(-bound, bound)

    def _weight_edit(self, edit: _PendingEdit) -> WeightEdit:
        notes = {"steps": edit.steps, "losses": edit.losses}
        if edit.failure:
            return WeightEdit({}, {"failure": edit.failure, **notes})
        tensors = {name: tensor.detach() for name, tensor in edit.delta.tensors().items()}
        deltas = {self.module: Dense(**tensors)}
        return WeightEdit(deltas, diagnostics_of(self.lm, deltas, notes))
