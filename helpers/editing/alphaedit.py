"""AlphaEdit: MEMIT's layer loop with updates confined to the null space of what is known.

P projects onto the directions in which the second moment C is below a threshold. With L2 a ridge, K
and R a batch's keys and residuals, and A all keys so far, the batch's own among them,

    Delta W^T = (P A A^T + L2 I)^-1 P K R^T

(Fang et al. 2025, as its code has it). Pushed through, this is P A (A^T P A + L2 I)^-1 E R^T
where K = A E: only systems of the size of the number of keys. One edit alone is
r (P k)^T / (k^T P k + L2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from helpers.editing.editor import batches_of
from helpers.editing.hyperparameters import VectorHyperparameters
from helpers.editing.keys import read_at_subjects
from helpers.editing.null_space import NullSpace
from helpers.editing.overlay import overlay_all
from helpers.editing.registry import Variety
from helpers.editing.request import EditRequest
from helpers.editing.spreading import Factors, SpreadingEditor
from helpers.editing.update import Update

KeyHistory = dict[int, Tensor]
"""Keys [f, m] of the edits made so far in one run, by layer."""


class AlphaEditHyperparameters(VectorHyperparameters):
    """AlphaEdit: directions with a second moment below ``nullspace_threshold`` are free to change.

    The threshold is absolute, so the dimension it leaves depends on the model's scale; it is
    reported with every edit. ``L2`` is the ridge added to the keys' Gram matrix.
    """

    nullspace_threshold: float = Field(gt=0)
    L2: float = Field(gt=0)


@dataclass
class AlphaEdit(SpreadingEditor):
    """AlphaEdit on one model.

    The null spaces belong to the second moments, which editors of one run share.
    """

    hyperparameters: AlphaEditHyperparameters

    name = "alphaedit"
    version = 1
    varieties = (Variety(name="alphaedit", label="AlphaEdit", colour=0, marker="o", hatch=""),)

    def null_space(self, layer: int) -> NullSpace:
        """The null space of a layer's second moment."""
        return self.second_moments[layer].null_space(self.hyperparameters.nullspace_threshold)

    def noted(self, layer: int) -> dict[str, Any]:
        """The dimension of the null space."""
        return {"null_space_dimension": self.null_space(layer).dimension}

    def solve_each(self, layer: int, keys: Tensor, residuals: Tensor) -> Factors:
        """r (P k)^T / (k^T P k + L2) for every column."""
        projected = self.null_space(layer).project(keys)
        return residuals / ((keys * projected).sum(0) + self.hyperparameters.L2), projected

    def solve_jointly(
        self, layer: int, keys: Tensor, residuals: Tensor, history: KeyHistory | None = None
    ) -> Factors:
        """R and P A (A^T P A + L2 I)^-1 E, with A the keys of ``history`` and these."""
        known = torch.cat([(history or {}).get(layer, keys[:, :0]), keys], dim=1)
        projected = self.null_space(layer).project(known)
        ridge = self.hyperparameters.L2 * torch.eye(known.shape[1]).to(known)
        chosen = torch.eye(known.shape[1]).to(known)[:, -keys.shape[1] :]
        return residuals, projected @ torch.linalg.solve(known.T @ projected + ridge, chosen)

    def edit_sequentially(
        self, requests: Sequence[EditRequest], *, batch: int = 1
    ) -> Iterator[Update]:
        """Cumulative updates; each batch also protects the keys of the ones before.

        A batch's keys are read again on the model it has just edited, and kept for this run only.
        """
        total, history = Update({}), KeyHistory()
        editor = replace(self, memory=None)  # vectors of the edited model are not shared
        for chunk in batches_of(requests, batch):
            with overlay_all(self.language_model, total):
                step = editor.jointly(chunk, partial(self.solve_jointly, history=history))
            total = total.plus(step)
            # Facts whose edit was given up were not written, and need no protection.
            edits = zip(chunk, step.diagnostics["edits"], strict=True)
            written = [request for request, edit in edits if "failure" not in edit]
            if written:
                with overlay_all(self.language_model, total):
                    self._remember(history, written)
            yield total

    def _remember(self, history: KeyHistory, requests: Sequence[EditRequest]) -> None:
        modules = {layer: self._module(layer) for layer in self.hyperparameters.layers}
        seen = read_at_subjects(
            self.language_model, self.prompts(requests), inputs=list(modules.values())
        )
        for layer, module in modules.items():
            keys = self.averaged_keys(seen[module])
            history[layer] = torch.cat([history.get(layer, keys[:, :0]), keys], dim=1)
