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
from helpers.editing.request import EditRequest, checked_requests
from helpers.editing.rows import EditRow, edit_row
from helpers.editing.update import Dense, Update
from helpers.models.hooks import output_hooks
from helpers.models.language_model import LanguageModel
from helpers.models.weights import free_bytes

_COPIES = 5  # of the matrix per edit: change, gradient, Adam's two moments, one in transit


@dataclass
class LossEditor(Editor):
    """FT and MEND: their losses are read from whole rows, as every token changes from one block on."""

    language_model: LanguageModel
    hyperparameters: LayerHyperparameters
    app: App | None = None
    targets: str = "new"
    progress: bool = False

    token_budget: ClassVar[int]  # of a batch
    activity: ClassVar[str] = "editing"  # words next to its progress bar

    @property
    def edits_at_a_time(self) -> int | None:
        """Most edits of a batch; None: as many as its tokens allow."""
        return None

    @abstractmethod
    def edit_rows(self, rows: Sequence[EditRow]) -> list[Update]:
        """One independent update per row, made in one batch."""

    def parts(self) -> tuple[str, ...]:
        """The loss."""
        return ("loss",)

    def settings(self) -> dict[str, Any]:
        """Also the choice of targets."""
        return super().settings() | {"targets": self.targets}

    def edit(self, requests: Sequence[EditRequest]) -> list[Update]:
        """One independent update per request."""
        last = getattr(self.hyperparameters, "objective", "") == "prompt_last"
        how: dict[str, Any] = {"targets": self.targets, "prompt_last": last}
        rows = [
            edit_row(self.language_model, request, self.app, **how)
            for request in checked_requests(requests)
        ]
        return made_in_batches(
            [len(row.forest) for row in rows],
            self.token_budget,
            lambda chosen: self.edit_rows([rows[i] for i in chosen]),
            most=self.edits_at_a_time,
            activity=self.activity if self.progress else "",
        )


class FtHyperparameters(LayerHyperparameters):
    """FT on one layer.

    ``norm_constraint`` bounds every entry's change (L-infinity; None: unbounded). An edit whose loss
    is below ``stop_threshold`` takes no further step. A module's bias, where it has one (GPT-2,
    GPT-J), is trained with its matrix.
    """

    one_layer = True
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

    @property
    def parameters(self) -> list[Tensor]:
        return list(self.delta.tensors().values())


@dataclass
class Ft(LossEditor):
    """FT on one model; the edits' private matrices and Adam states take a quarter of free memory.

    Raises:
        ValueError: a layer the model does not have.
    """

    hyperparameters: FtHyperparameters

    name = "ft"
    token_budget = 2048
    activity = "fine-tuning"

    def __post_init__(self) -> None:
        (self.layer,) = self.hyperparameters.layers
        self.language_model.layout.block(self.layer)
        self.module = self.language_model.layout.mlp_out(self.layer)

    @property
    def edits_at_a_time(self) -> int:
        """What memory has room for."""
        budget = free_bytes(self.language_model.device) // 4
        return max(1, budget // (_COPIES * 4 * self.language_model.weight(self.module).numel()))

    def edit_rows(self, rows: Sequence[EditRow]) -> list[Update]:
        """Dense updates, optimised together; edits leave the batch when they stop or fail."""
        settings = self.hyperparameters
        batch = EditBatch(self.language_model, rows, self.layer)
        changes = [self._unchanged() for _ in rows]
        parameters = [p for change in changes for p in change.parameters]
        # Parameters without a gradient are left alone, momentum included: finished edits stay put.
        optimiser = torch.optim.Adam(parameters, lr=settings.lr, fused=True)
        present = list(changes)
        for _ in range(settings.num_steps):
            terms = batch.loss_terms(self._hidden(batch, present), self.app)
            total = torch.stack(list(terms.values())).sum(0)
            _record(present, terms)
            unfinished = (total >= settings.stop_threshold) & torch.isfinite(total)
            if not bool(unfinished.any()):
                break
            optimiser.zero_grad()
            total[unfinished].sum().backward()
            if not bool(unfinished.all()):
                present = _without_finished(batch, present, unfinished)
            optimiser.step()
            self._bound(present)
        return [self._update(change) for change in changes]

    def _unchanged(self) -> _Change:
        out, into = self.language_model.weight(self.module).shape
        options: dict[str, Any] = {"device": self.language_model.device, "requires_grad": True}
        biased = getattr(self.language_model.module(self.module), "bias", None) is not None
        bias = torch.zeros(out, **options) if biased else None
        return _Change(Dense(torch.zeros(out, into, **options), bias))

    def _hidden(self, batch: EditBatch, present: Sequence[_Change]) -> Tensor:
        """Final hidden states with every row under its own change of the matrix."""

        def adding(entering: Tensor, output: Tensor) -> Tensor:
            rows = zip(entering.float(), present, strict=True)
            return output + torch.stack([c.delta.rows(x) for x, c in rows]).to(output.dtype)

        with output_hooks(self.language_model, {self.module: adding}):
            return batch.hidden()

    @torch.no_grad()
    def _bound(self, present: Sequence[_Change]) -> None:
        bound = self.hyperparameters.norm_constraint
        for change in present:
            change.steps += 1
            for parameter in change.parameters if bound else ():
                parameter.clamp_(-bound, bound)  # type: ignore[operator]

    def _update(self, change: _Change) -> Update:
        record = {"steps": change.steps, "losses": change.losses}
        if change.failure:
            return Update({}, {"failure": change.failure, **record})
        bias = None if change.delta.bias is None else change.delta.bias.detach()
        deltas = {self.module: Dense(change.delta.matrix.detach(), bias)}
        return Update(deltas, diagnostics_of(self.language_model, deltas, extra=record))


def _without_finished(
    batch: EditBatch, present: Sequence[_Change], unfinished: Tensor
) -> list[_Change]:
    """Take finished edits out of the batch and their gradients away."""
    stays = unfinished.nonzero()[:, 0].tolist()
    for place, change in enumerate(present):
        for parameter in change.parameters if place not in stays else ():
            parameter.grad = None
    batch.keep(stays)
    return [present[i] for i in stays]


def _record(present: Sequence[_Change], terms: dict[str, Tensor]) -> None:
    """Note this evaluation's terms, and failures (one host transfer)."""
    values = torch.stack([term.detach() for term in terms.values()], dim=1).tolist()
    for change, numbers in zip(present, values, strict=True):
        change.losses.append(dict(zip(terms, numbers, strict=True)))
        if not all(map(math.isfinite, numbers)):
            change.failure = f"non-finite loss at step {change.steps}: {change.losses[-1]}"
