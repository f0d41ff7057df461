"""FT: fine-tuning one MLP matrix on one fact, inside an L-infinity bound.

``ft-l`` reads all target tokens from the single distribution after the prompt (objective
``prompt_last``), as the code called FT-L does; ``ft-m`` is ordinary teacher-forced next-token loss
(``target_new``). Each edit has its own change of the matrix, its own Adam state and its own stop;
the loss is the target's mean negative log-likelihood, with APP's terms added (PEAK, eqs. 7-10).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from helpers.editing.app import App
from helpers.editing.batch import EditBatch
from helpers.editing.editor import Editor, diagnostics_of, made_in_batches
from helpers.editing.presets import LayerHyperparameters
from helpers.editing.request import EditRequest, with_one_prompt
from helpers.editing.rows import EditRow, edit_row
from helpers.editing.update import Dense, Update
from helpers.models import LanguageModel
from helpers.models.hooks import output_hooks
from helpers.models.weights import free_bytes


@dataclass
class LossEditor(Editor):
    """FT and MEND: their losses are read from whole rows, as every token changes from one block on."""

    model: LanguageModel
    hyperparameters: LayerHyperparameters
    app: App | None = None
    targets: str = "new"
    progress: bool = False
    token_budget: ClassVar[int]  # of a batch
    parts = ("loss",)

    @property
    def edits_at_a_time(self) -> int | None:
        """Most edits of a batch; None: as many as its tokens allow."""
        return None

    @abstractmethod
    def edit_rows(self, rows: Sequence[EditRow]) -> list[Update]:
        """One independent update per row, made in one batch."""

    def settings(self) -> dict[str, Any]:
        """Also the choice of targets."""
        return super().settings() | {"targets": self.targets}

    def edit(self, requests: Sequence[EditRequest]) -> list[Update]:
        """One independent update per request."""
        last = getattr(self.hyperparameters, "objective", "") == "prompt_last"
        how: dict[str, Any] = {"targets": self.targets, "prompt_last": last}
        model, chosen = self.model, with_one_prompt(requests)
        rows = [edit_row(model, request, self.app, **how) for request in chosen]
        return made_in_batches(
            [len(row.forest) for row in rows],
            self.token_budget,
            lambda chosen: self.edit_rows([rows[i] for i in chosen]),
            most=self.edits_at_a_time,
            activity="editing" if self.progress else "",
        )


class FtHyperparameters(LayerHyperparameters):
    """FT on one layer, its module's bias included, where it has one (GPT-2, GPT-J).

    ``norm_constraint`` bounds every entry's change. Below ``stop_threshold`` no further step is taken.
    """

    layers: tuple[int]
    num_steps: int = Field(gt=0)
    lr: float = Field(gt=0)
    norm_constraint: float | None = Field(default=None, gt=0)
    objective: Literal["prompt_last", "target_new"] = "prompt_last"
    stop_threshold: float = 1e-2


@dataclass
class _Change:
    """One edit's private change of matrix and bias, in fp32, and what it went through."""

    delta: Dense
    steps: int = 0
    losses: list[dict[str, float]] = field(default_factory=list)
    failure: str | None = None


@dataclass
class Ft(LossEditor):
    """FT on one model; the edits' private matrices and Adam states take a quarter of free memory."""

    hyperparameters: FtHyperparameters
    name = "ft"
    token_budget = 2048

    def __post_init__(self) -> None:
        (self.layer,) = self.hyperparameters.layers
        self.model.layout.block(self.layer)
        self.module = self.model.layout.mlp_out(self.layer)

    @property
    def edits_at_a_time(self) -> int:
        """What memory has room for: change, gradient, Adam's two moments, and one matrix in transit."""
        budget = free_bytes(self.model.device) // 4
        return max(1, budget // (5 * 4 * self.model.weight(self.module).numel()))

    def edit_rows(self, rows: Sequence[EditRow]) -> list[Update]:
        """Dense updates, optimised together; edits leave the batch when they stop or fail."""
        settings = self.hyperparameters
        bound = settings.norm_constraint
        model = self.model
        batch = EditBatch(model, rows, self.layer)
        shape = model.weight(self.module).shape
        biased = getattr(model.module(self.module), "bias", None) is not None
        options: dict[str, Any] = {"device": model.device, "requires_grad": True}
        changes = []
        for _ in rows:
            bias = torch.zeros(shape[0], **options) if biased else None
            changes.append(_Change(Dense(torch.zeros(*shape, **options), bias)))
        parameters = [p for change in changes for p in change.delta.tensors().values()]
        # Parameters without a gradient are left alone, momentum included: finished edits stay put.
        optimiser = torch.optim.Adam(parameters, lr=settings.lr, fused=True)
        present = list(changes)

        def adding(entering: Tensor, output: Tensor) -> Tensor:  # each row's own change
            own = zip(entering.float(), present, strict=True)
            return output + torch.stack([c.delta.rows(x) for x, c in own]).to(output.dtype)

        for _ in range(settings.num_steps):
            with output_hooks(model, {self.module: adding}):
                terms = batch.loss_terms(batch.hidden(), self.app)
            total = torch.stack(list(terms.values())).sum(0)
            numbers = torch.stack([term.detach() for term in terms.values()], dim=1).tolist()
            for change, noted in zip(present, numbers, strict=True):
                change.losses.append(dict(zip(terms, noted, strict=True)))
                if not all(map(math.isfinite, noted)):
                    change.failure = f"non-finite loss at step {change.steps}: {change.losses[-1]}"
            unfinished = (total >= settings.stop_threshold) & torch.isfinite(total)
            stays = unfinished.nonzero()[:, 0].tolist()
            if not stays:
                break
            present = [present[place] for place in stays]
            left = [p for change in present for p in change.delta.tensors().values()]
            optimiser.zero_grad()
            total[unfinished].sum().backward(inputs=left)
            if len(stays) < len(batch.rows):
                batch.keep(stays)
            optimiser.step()
            with torch.no_grad():
                for parameter in left if bound else ():
                    parameter.clamp_(-bound, bound)  # type: ignore[operator]
            for change in present:
                change.steps += 1
        return [self._update(change) for change in changes]

    def _update(self, change: _Change) -> Update:
        record = {"steps": change.steps, "losses": change.losses}
        if change.failure:
            return Update({}, {"failure": change.failure, **record})
        deltas = {self.module: Dense(**{k: t.detach() for k, t in change.delta.tensors().items()})}
        return Update(deltas, diagnostics_of(self.model, deltas, record))
