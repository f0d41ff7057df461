"""LoRA: an adapter of low rank in several matrices, trained on one fact.

In each chosen matrix of each layer, with A [rank, in] and B [out, rank],

    Delta W = (alpha / rank) B A,       B = 0 at first, A uniform in +-1 / sqrt(in)

(Hu et al. 2022). The loss is FT-M's: the mean negative log-likelihood of the target's tokens, with APP's
terms added, or icd's. Each edit has its own adapter, its own Adam state and its own stop; all are trained
in one batch. A is drawn from the request's record and a seed, so that a batch gives what each edit gives
alone.

``sequence`` is what an adapter does when a further edit comes: ``continue`` trains the one adapter on, as
EasyEdit and WikiBigEdit do (their sequences are fine-tuning with a low rank); ``stack`` puts a new one on
top; ``merge`` takes the mean of all adapters, each trained on the unedited model (WikiBigEdit's LoRA-
Merge).

Deviations. EasyEdit trains AdaLoRA for most models, whose allocation of ranks it never calls, with a
dropout of 0.1; here it is LoRA without dropout, so that runs agree. Its prompts are counted in one
tokenisation and masked in another. A row whose loss is below ``stop_threshold`` stops for good, as in FT.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from helpers.editing.batch import EditBatch
from helpers.editing.edit import Edit, EditError
from helpers.editing.editor import diagnostics_of
from helpers.editing.ft import LossEditor
from helpers.editing.interventions import Delta, Dense, LowRank
from helpers.editing.presets import LossHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.rows import EditRow
from helpers.editing.vector import RowAdam
from helpers.editing.weight_edit import WeightEdit, only_weights
from helpers.models.architectures import Matrix
from helpers.models.hooks import OnOutput, output_hooks
from helpers.models.weights import free_bytes


class LoraHyperparameters(LossHyperparameters):
    """LoRA in ``matrices`` of all ``layers``."""

    matrices: tuple[Matrix, ...] = ("q", "v")
    rank: int = Field(default=8, gt=0)
    alpha: float = Field(default=32.0, gt=0)
    num_steps: int = Field(gt=0)
    lr: float = Field(gt=0)
    stop_threshold: float = 1e-2
    sequence: Literal["continue", "stack", "merge"] = "continue"


class Factors(NamedTuple):
    """A batch's factors of one matrix."""

    a: Tensor  # [rows, rank, in]
    b: Tensor  # [rows, out, rank]


@dataclass
class _Training:
    """What one adapter went through."""

    adapter: Tensor  # all its numbers, matrix after matrix, A before B
    steps: int = 0
    losses: list[dict[str, float]] = field(default_factory=list)
    failure: str | None = None

    @property
    def notes(self) -> dict[str, Any]:
        """What is recorded with the edit."""
        failure = {"failure": self.failure} if self.failure else {}
        return {"steps": self.steps, "losses": self.losses, **failure}


@dataclass
class Lora(LossEditor):
    """LoRA on one model; adapters, gradients and Adam's moments take a quarter of free memory."""

    hyperparameters: LoraHyperparameters
    seed: int = 0  # of A
    name = "lora"
    token_budget = 2048

    def __post_init__(self) -> None:
        settings = self.hyperparameters
        names = [
            name
            for layer in settings.layers
            for name in self.lm.layout.matrices(settings.matrices, layer)
        ]
        self.shapes = {name: tuple(self.lm.weight(name).shape) for name in names}
        self.sizes = [
            settings.rank * size for out, into in self.shapes.values() for size in (into, out)
        ]

    @property
    def edits_at_a_time(self) -> int:
        """What memory has room for: an adapter, its gradient and Adam's two moments."""
        return max(1, free_bytes(self.lm.device) // 4 // (4 * 4 * sum(self.sizes)))

    def settings(self) -> dict[str, Any]:
        """Also the seed."""
        return super().settings() | {"seed": self.seed}

    def edit_rows(self, rows: Sequence[EditRow]) -> list[WeightEdit]:
        """Adapters that begin anew, trained together."""
        return [self._weight_edit(training) for training in self._trained(rows, self._begun(rows))]

    def edit_on(self, earlier: Edit, requests: Sequence[EditRequest]) -> Edit:
        """``earlier`` with the requests, one after the other, as ``sequence`` sets."""
        if self.hyperparameters.sequence == "stack":
            return super().edit_on(earlier, requests)
        total = only_weights(earlier, f"{self.method} after another edit")
        for row in self.rows(requests):
            if self.hyperparameters.sequence == "continue":
                first_adapter = self._adapter_of(total) if total else self._begun([row])
                (training,) = self._trained([row], first_adapter)
                grown_edit = self._weight_edit(training)
                total = total.with_diagnostics(training.notes) if training.failure else grown_edit
            else:
                (added_edit,) = self.edit_rows([row])
                total = self._merged(total, added_edit)
        return total

    def _merged(self, earlier: WeightEdit, added_edit: WeightEdit) -> WeightEdit:
        """The mean of all adapters; how many they are is noted with the edit."""
        adapter_count = int(earlier.diagnostics.get("adapters", 0))
        if added_edit.failed:
            return earlier.with_diagnostics({**added_edit.diagnostics, "adapters": adapter_count})
        mean_edit = _scaled(earlier, adapter_count / (adapter_count + 1)).plus(
            _scaled(added_edit, 1 / (adapter_count + 1))
        )
        notes = {**added_edit.diagnostics, "adapters": adapter_count + 1}
        return mean_edit.with_diagnostics(notes)

    def _begun(self, rows: Sequence[EditRow]) -> Tensor:
        """Adapters [rows, size] with B = 0, each drawn from its own record."""
        adapters = []
        for row in rows:
            generator = np.random.default_rng([self.seed, zlib.crc32(row.record.encode())])
            adapter_parts = []
            for out, into in self.shapes.values():
                drawn_a = generator.uniform(-1, 1, self.hyperparameters.rank * into) / math.sqrt(
                    into
                )
                adapter_parts += [drawn_a, np.zeros(self.hyperparameters.rank * out)]
            adapters.append(np.concatenate(adapter_parts))
        return torch.from_numpy(np.stack(adapters)).float().to(self.lm.device)

    def _adapter_of(self, edit: WeightEdit) -> Tensor:
        """The adapter [1, size] that an edit consists of."""
        adapter_parts = []
        for module_name in self.shapes:
            delta = edit.get(module_name)
            if not isinstance(delta, LowRank) or delta.left.shape[1] != self.hyperparameters.rank:
                raise EditError(
                    f"LoRA continues an adapter of rank {self.hyperparameters.rank}, which the earlier edit"
                    f" has not at {module_name}: use sequence: stack, or its hyperparameters"
                )
            adapter_parts += [delta.right.T.flatten(), delta.left.flatten() / self._scale]
        return torch.cat(adapter_parts)[None].to(self.lm.device)

    @property
    def _scale(self) -> float:
        return self.hyperparameters.alpha / self.hyperparameters.rank

    def _factors(self, adapters: Tensor) -> dict[str, Factors]:
        """Each matrix's factors, views of adapters [rows, size]."""
        adapter_parts = iter(adapters.split(self.sizes, dim=1))
        rank = self.hyperparameters.rank
        factors = {}
        for name, (out, into) in self.shapes.items():
            a = next(adapter_parts).unflatten(1, (rank, into))
            b = next(adapter_parts).unflatten(1, (out, rank))
            factors[name] = Factors(a, b)
        return factors

    def _trained(self, rows: Sequence[EditRow], adapters: Tensor) -> list[_Training]:
        """Adapters [rows, size] trained together; rows that are done leave the batch."""
        settings = self.hyperparameters
        first_layer = min(self.lm.layout.layer_of(name) for name in self.shapes)
        batch = EditBatch(self.lm, rows, first_layer)
        if self.app is not None or self.icd is not None:
            with torch.no_grad():
                batch.read(batch.hidden())  # the reference: the model without an adapter
        trainings = [_Training(adapter) for adapter in adapters]
        adam = RowAdam(torch.zeros_like(adapters), torch.zeros_like(adapters))
        unfinished_trainings = list(trainings)
        for _ in range(settings.num_steps):
            adapters = adapters.detach().requires_grad_(True)
            with output_hooks(self.lm, self._hooks(adapters)):
                terms = batch.loss_terms(batch.hidden(), self.app, self.icd)
            losses = torch.stack(list(terms.values())).sum(0)  # [rows]
            is_large = self.watched_loss(terms) >= settings.stop_threshold
            is_unfinished = is_large & torch.isfinite(losses)
            terms_by_row = torch.stack([term.detach() for term in terms.values()], dim=1).tolist()
            for training, values in zip(unfinished_trainings, terms_by_row, strict=True):
                terms_of_row = dict(zip(terms, values, strict=True))
                training.losses.append(terms_of_row)
                if not all(map(math.isfinite, values)):
                    training.failure = f"non-finite loss at step {training.steps}: {terms_of_row}"
            kept_indices = is_unfinished.nonzero()[:, 0].tolist()
            if not kept_indices:
                break
            (gradient,) = torch.autograd.grad(losses[is_unfinished].sum(), adapters)
            adapters = adapters.detach()
            if len(kept_indices) < len(unfinished_trainings):
                unfinished_trainings = [unfinished_trainings[index] for index in kept_indices]
                batch.keep(kept_indices)
                adapters, gradient = adapters[is_unfinished], gradient[is_unfinished]
                adam.mean, adam.square = adam.mean[is_unfinished], adam.square[is_unfinished]
            adam.step(adapters, gradient, settings.lr)
            for training, adapter in zip(unfinished_trainings, adapters, strict=True):
                training.steps += 1
                training.adapter = adapter
        return trainings

    def _hooks(self, adapters: Tensor) -> dict[str, OnOutput]:
        """What adds each row's adapter to the outputs of its matrices."""

        def adding(factors: Factors) -> OnOutput:
            def add(entering: Tensor, output: Tensor) -> Tensor:
                reduced = entering.float() @ factors.a.transpose(1, 2)  # [rows, tokens, rank]
                added = self._scale * (reduced @ factors.b.transpose(1, 2))
                return output + added.to(output.dtype)

            return add

        return {name: adding(factors) for name, factors in self._factors(adapters).items()}

    def _weight_edit(self, training: _Training) -> WeightEdit:
        if training.failure:
            return WeightEdit({}, training.notes)
        deltas = {}
        for name, factors in self._factors(training.adapter.detach()[None]).items():
            right = factors.a[0].T.contiguous()
            deltas[name] = LowRank((self._scale * factors.b[0]).contiguous(), right)
        return WeightEdit(deltas, diagnostics_of(self.lm, deltas, training.notes))


def _scaled(edit: WeightEdit, factor: float) -> WeightEdit:
    """An edit times a number."""
    deltas: dict[str, Delta] = {}
    for name, delta in edit.items():
        if isinstance(delta, LowRank):
            deltas[name] = LowRank(factor * delta.left, delta.right)
        else:
            deltas[name] = Dense(factor * delta.dense())
    return WeightEdit(deltas, edit.diagnostics)
