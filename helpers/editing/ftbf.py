"""FT-BF: breadth-first fine-tuning of one matrix on all requests at once, with the end of the text.

Each epoch goes through all requests in mini-batches of a new random order; a step is Adam's on the mean of
the mini-batch's losses, and each loss is FT-M's with the end-of-text token after the target (LocFT-BF, Yang
et al. 2026). A mini-batch below ``stop_threshold`` takes no step, and an epoch whose mean is below it is
the last.

It is told more than other editors: it sees every request ``num_steps`` times, together with all others. A
sequence's edit after T requests is therefore a training from the unedited model on the first T
(information: all). Training on what is new alone, upon an earlier edit, is ``edit_on``. One request alone
is FT-M with ``eos``.

Deviations. One MLP matrix, with its bias, is trained; for Mistral the authors train a whole block. Module
names are exact (theirs match by substring). The order is seeded. What enters the edited block is computed
once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from helpers.editing.batch import EditBatch
from helpers.editing.edit import EditError
from helpers.editing.editor import diagnostics_of, made_in_batches
from helpers.editing.ft import Ft, FtHyperparameters
from helpers.editing.interventions import Dense
from helpers.editing.request import EditRequest
from helpers.editing.rows import EditRow
from helpers.editing.sequence import SequenceState
from helpers.editing.teacher import teacher_probabilities
from helpers.editing.weight_edit import WeightEdit
from helpers.models.batching import token_batches
from helpers.models.hooks import output_hooks


class FtBfHyperparameters(FtHyperparameters):
    """FT-BF: ``num_steps`` are epochs, ``batch_size`` the requests of a step."""

    objective: Literal["prompt_last", "target_new"] = "target_new"
    eos: bool = True
    batch_size: int = Field(default=100, gt=0)


class _StepLoss(NamedTuple):
    """Means over a mini-batch."""

    total: float
    nll: float


@dataclass
class FtBf(Ft):
    """FT-BF on one model."""

    hyperparameters: FtBfHyperparameters
    seed: int = 0  # of the order of requests
    name = "ftbf"

    def settings(self) -> dict[str, Any]:
        """Also the seed."""
        return super().settings() | {"seed": self.seed}

    def edit_sequentially(self, requests: Sequence[EditRequest]) -> Iterator[WeightEdit]:
        """After each request the edit that is trained on it and all before it, from the unedited model."""
        for count in range(1, len(requests) + 1):
            yield self.edit_jointly(requests[:count])

    def after_turn(self, state: SequenceState, requests: Sequence[EditRequest]) -> SequenceState:
        """Refused: it is trained on all requests together."""
        raise EditError("FT-BF sees all requests of a sequence at once: use edit_jointly")

    def edit_jointly(self, requests: Sequence[EditRequest]) -> WeightEdit:
        """One matrix for all requests."""
        rows = self.rows(requests)
        if not rows:
            return WeightEdit({})
        entering = self._entering(rows)
        teachers = teacher_probabilities(self.lm, rows)
        change = self._unchanged()
        optimiser = torch.optim.Adam(change.parameters, lr=self.hyperparameters.lr)
        generator = torch.Generator().manual_seed(self.seed)
        losses_of_epochs: list[dict[str, float]] = []
        for _ in range(self.hyperparameters.num_steps):
            shuffled_indices = torch.randperm(len(rows), generator=generator).tolist()
            losses: list[_StepLoss] = []  # of each request, that of its mini-batch
            for first_index in range(0, len(rows), self.hyperparameters.batch_size):
                step_indices = shuffled_indices[
                    first_index : first_index + self.hyperparameters.batch_size
                ]
                optimiser.zero_grad()
                step_loss = self._mean_loss(
                    [rows[i] for i in step_indices],
                    [entering[i] for i in step_indices],
                    [teachers[i] for i in step_indices],
                    change.delta,
                )
                losses += [step_loss] * len(step_indices)
                if not math.isfinite(step_loss.total):
                    failure = f"non-finite loss in epoch {len(losses_of_epochs)}: {step_loss.total}"
                    return WeightEdit({}, {"failure": failure, "losses": losses_of_epochs})
                if self._watched_mean([step_loss]) >= self.hyperparameters.stop_threshold:
                    optimiser.step()
                    self._bound(change.parameters)
            losses_of_epochs.append({"total": sum(loss.total for loss in losses) / len(losses)})
            if self._watched_mean(losses) < self.hyperparameters.stop_threshold:
                break
        tensors = {name: tensor.detach() for name, tensor in change.delta.tensors().items()}
        deltas = {self.module: Dense(**tensors)}
        notes = {"steps": len(losses_of_epochs), "losses": losses_of_epochs}
        return WeightEdit(deltas, diagnostics_of(self.lm, deltas, notes))

    def _entering(self, rows: Sequence[EditRow]) -> list[Tensor]:
        """What enters the edited block in each row [nodes, hidden]; no step changes it."""

        def read(row_indices: Sequence[int]) -> list[Tensor]:
            batch = EditBatch(self.lm, [rows[index] for index in row_indices], self.layer)
            # Where no position is edited, a row's columns are its nodes.
            return [
                batch.entering[number, : len(rows[index].forest)].clone()
                for number, index in enumerate(row_indices)
            ]

        return made_in_batches([len(row.forest) for row in rows], self.token_budget, read)

    def _mean_loss(
        self,
        rows: Sequence[EditRow],
        entering: Sequence[Tensor],
        teachers: Sequence[Tensor],
        delta: Dense,
    ) -> _StepLoss:
        """The means of the rows' losses under the change, whose gradient it adds to."""
        mean_total = 0.0
        mean_nll = 0.0
        for indices in token_batches([len(row.forest) for row in rows], self.token_budget):
            entering_batch = [entering[index] for index in indices]
            padded = torch.nn.utils.rnn.pad_sequence(entering_batch, batch_first=True)
            batch = EditBatch(
                self.lm,
                [rows[index] for index in indices],
                self.layer,
                entering=padded,
                teachers=[teachers[index] for index in indices],
            )
            if self.app is not None or self.icd is not None:
                with torch.no_grad():
                    batch.read(batch.hidden())  # the reference: the unedited model

            def add_change(x: Tensor, output: Tensor) -> Tensor:
                return output + delta.contribution(x.float()).to(output.dtype)

            with output_hooks(self.lm, {self.module: add_change}):
                terms = batch.loss_terms(batch.hidden(), self.app, self.icd)
            loss = torch.stack(list(terms.values())).sum() / len(rows)
            loss.backward(inputs=list(delta.tensors().values()))
            mean_total += float(loss.detach())
            mean_nll += float(terms["nll"].detach().sum()) / len(rows)
        return _StepLoss(mean_total, mean_nll)

    def _watched_mean(self, losses: Sequence[_StepLoss]) -> float:
        """The mean of what ends the training once it is small: of the whole loss, or with icd of the NLL."""
        if self.icd is None:
            return sum(loss.total for loss in losses) / len(losses)
        return sum(loss.nll for loss in losses) / len(losses)
