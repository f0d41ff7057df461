"""FT: fine-tuning one MLP matrix on one fact, inside an L-infinity bound.

``ft-l`` reads all target tokens from the single distribution after the prompt (objective
``prompt_last``), as the code called FT-L does; ``ft-m`` is ordinary teacher-forced next-token loss
(``target_new``). Each edit has its own change of the matrix, its own Adam state and its own stop;
the loss is the target's mean negative log-likelihood, with APP's terms added (PEAK, eqs. 7-10).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from helpers.editing.app import App
from helpers.editing.deltas import Dense
from helpers.editing.editor import Editor, batches_of, diagnostics_of
from helpers.editing.hyperparameters import FtHyperparameters
from helpers.editing.loss_batch import LossBatch, loss_row
from helpers.editing.request import EditRequest
from helpers.editing.rows import EditRow
from helpers.editing.update import Update
from helpers.models.batching import run_halving, token_batches
from helpers.models.hooks import output_hooks
from helpers.models.language_model import LanguageModel
from helpers.models.memory import free_bytes

_COPIES = (
    5  # of the matrix, in fp32, per edit: change, gradient, Adam's two moments, one in transit
)


@dataclass
class _Change:
    """One edit's private change of the matrix [out, in] and bias [out], and what it went through."""

    matrix: Tensor
    bias: Tensor | None
    steps: int = 0
    losses: list[dict[str, float]] = field(default_factory=list)
    failure: str | None = None

    @property
    def parameters(self) -> list[Tensor]:
        return [self.matrix] if self.bias is None else [self.matrix, self.bias]

    def added(self, x: Tensor) -> Tensor:
        """Contribution [tokens, out] for inputs [tokens, in]."""
        product = x @ self.matrix.T
        return product if self.bias is None else product + self.bias


@dataclass
class Ft(Editor):
    """FT on one model.

    ``targets="all"`` makes every correct answer a target beside the new one (PEAK, Table 5).
    ``token_budget`` bounds the tokens optimised at a time, ``memory_budget`` the bytes of the edits'
    private matrices and Adam states (default: a quarter of what is free).

    Raises:
        ValueError: a layer the model does not have, or unknown ``targets``.
    """

    language_model: LanguageModel
    hyperparameters: FtHyperparameters
    app: App | None = None
    targets: str = "new"
    token_budget: int = 2048
    memory_budget: int | None = None
    progress: bool = False

    name = "ft"

    @property
    def variety(self) -> str:
        """``ft-l`` or ``ft-m``, by the objective."""
        return {"prompt_last": "ft-l", "target_new": "ft-m"}[self.hyperparameters.objective]

    def __post_init__(self) -> None:
        if self.targets not in ("new", "all"):
            raise ValueError(f"targets must be 'new' or 'all', not {self.targets!r}")
        self.language_model.layout.block(self.layer)  # raises for a layer that does not exist

    @property
    def layer(self) -> int:
        """The edited block."""
        return self.hyperparameters.layers[0]

    @property
    def module(self) -> str:
        """The edited matrix."""
        return self.language_model.layout.mlp_out(self.layer)

    def settings(self) -> dict[str, Any]:
        """Also the choice of targets."""
        return super().settings() | {"targets": self.targets}

    def edit(self, requests: Sequence[EditRequest]) -> list[Update]:
        """One independent dense update per request."""
        rows = [self._row(request) for request in requests]
        found: dict[int, Update] = {}
        bar = tqdm(total=len(rows), unit="edit", desc="fine-tuning", disable=not self.progress)
        for similar in token_batches([len(row.forest) for row in rows], self.token_budget):
            for batch in batches_of(similar, self._edits_at_a_time()):
                for part in run_halving(batch, lambda chosen: self._tune(rows, chosen)):
                    found |= part
                bar.update(len(batch))
        bar.close()
        return [found[i] for i in range(len(rows))]

    def _row(self, request: EditRequest) -> EditRow:
        return loss_row(
            self.language_model,
            request,
            self.app,
            all_answers=self.targets == "all",
            prompt_last=self.hyperparameters.objective == "prompt_last",
        )

    def _edits_at_a_time(self) -> int:
        budget = self.memory_budget or free_bytes(self.language_model.device) // 4
        return max(1, budget // (_COPIES * 4 * self.language_model.weight(self.module).numel()))

    def _tune(self, rows: Sequence[EditRow], chosen: Sequence[int]) -> dict[int, Update]:
        """Optimise one batch; edits leave it when they stop or fail."""
        settings = self.hyperparameters
        batch = LossBatch.build(self.language_model, [rows[i] for i in chosen], self.layer)
        changes = [self._unchanged() for _ in chosen]
        parameters = [p for change in changes for p in change.parameters]
        # Parameters without a gradient are left alone, momentum included: finished edits stay put.
        optimiser = torch.optim.Adam(parameters, lr=settings.lr, fused=True)
        present = list(changes)
        for _ in range(settings.num_steps):
            terms = batch.loss_terms(self._hidden(batch, present), self.app)
            total = torch.stack(list(terms.values())).sum(0)
            _record(present, terms)
            going = (total >= settings.stop_threshold) & torch.isfinite(total)
            if not bool(going.any()):
                break
            optimiser.zero_grad()
            total[going].sum().backward()
            if not bool(going.all()):
                present = _leave(batch, present, going)
            optimiser.step()
            self._bound(present)
        return {i: self._update(change) for i, change in zip(chosen, changes, strict=True)}

    def _unchanged(self) -> _Change:
        """A zero change in fp32, whatever the model's type."""
        module = self.language_model.module(self.module)
        device = self.language_model.device
        out, into = self.language_model.weight(self.module).shape
        bias = getattr(module, "bias", None)
        return _Change(
            torch.zeros(out, into, device=device, requires_grad=True),
            None if bias is None else torch.zeros(out, device=device, requires_grad=True),
        )

    def _hidden(self, batch: LossBatch, present: Sequence[_Change]) -> Tensor:
        """Final hidden states with every row under its own change of the matrix."""

        def adding(entering: Tensor, output: Tensor) -> Tensor:
            rows = zip(entering.float(), present, strict=True)
            return output + torch.stack([c.added(x) for x, c in rows]).to(output.dtype)

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
        bias = None if change.bias is None else change.bias.detach()
        deltas = {self.module: Dense(change.matrix.detach(), bias)}
        return Update(deltas, diagnostics_of(self.language_model, deltas, extra=record))


def _leave(batch: LossBatch, present: Sequence[_Change], going: Tensor) -> list[_Change]:
    """Take finished edits out of the batch and their gradients away."""
    index = going.nonzero()[:, 0]
    stays = set(index.tolist())
    for place, change in enumerate(present):
        for parameter in change.parameters if place not in stays else ():
            parameter.grad = None
    batch.keep(index)
    return [present[i] for i in index.tolist()]


def _record(present: Sequence[_Change], terms: dict[str, Tensor]) -> None:
    """Note this evaluation's terms, and failures (one host transfer)."""
    values = torch.stack([term.detach() for term in terms.values()], dim=1).tolist()
    for change, numbers in zip(present, values, strict=True):
        change.losses.append(dict(zip(terms, numbers, strict=True)))
        if not all(abs(number) < float("inf") for number in numbers):
            change.failure = f"non-finite loss at step {change.steps}: {change.losses[-1]}"
