"""The layer loop of MEMIT and AlphaEdit: one optimised vector, spread over several layers.

The vector is optimised at the block output of the last edited layer. Then, layer by layer, with the
layers below already edited, an equal share of what is still missing there,

    r = (z - current z) / (number of layers left),

is written into the layer's second MLP matrix at the averaged key k (Meng et al. 2023,
Algorithm 1). How a matrix takes up keys K [f, n] and residuals R [d, n] is what the editors differ
in. The earlier layers' updates are carried as overlays, all edits in one batched forward per layer.

Gemma 3 normalises the MLP's output before it enters the residual stream; there the share is handed
back through the norm (``normed``), and what the norm cannot deliver is left to the layers after it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from helpers.editing import normed
from helpers.editing.deltas import LowRank
from helpers.editing.editor import diagnostics_of, failed, joint_diagnostics
from helpers.editing.keys import read_at_subjects
from helpers.editing.overlay import overlay_all
from helpers.editing.request import EditRequest
from helpers.editing.update import Update
from helpers.editing.vector import Vector
from helpers.editing.vector_editor import VectorEditor
from helpers.models.tokens import SubjectPrompt

VERSION = 1  # raise it when the layer loop gives other updates
Factors = tuple[Tensor, Tensor]
"""left [d, n] and right [f, n] of a matrix left @ right.T."""


@dataclass(frozen=True)
class _Goals:
    """Edits whose vectors were found: their places, prompts, and wanted block outputs z [n, d]."""

    places: list[int]
    prompts: list[list[SubjectPrompt]]
    values: Tensor


@dataclass
class SpreadingEditor(VectorEditor):
    """Base of MEMIT and AlphaEdit."""

    grouped = True

    @abstractmethod
    def solve_each(self, layer: int, keys: Tensor, residuals: Tensor) -> Factors:
        """Independent edits: column i of the factors is edit i's own rank-one update.

        Args:
            layer: the block edited.
            keys: [f, n] in fp64.
            residuals: [d, n] in fp64.
        """

    @abstractmethod
    def solve_jointly(self, layer: int, keys: Tensor, residuals: Tensor) -> Factors:
        """Factors of one update that takes up all keys (arguments as in ``solve_each``)."""

    def versions(self) -> dict[str, int]:
        """The layer loop's, and the way back through the MLP's norm where there is one."""
        parts = {"spreading": VERSION}
        if self.language_model.layout.architecture.mlp_norm is not None:
            parts["normed"] = normed.VERSION
        return super().versions() | parts

    def noted(self, layer: int) -> dict[str, Any]:
        """What else the diagnostics say about a layer."""
        return {}

    def edit(self, requests: Sequence[EditRequest]) -> list[Update]:
        """One independent update per request, of rank one in every edited matrix."""
        vectors, goals = self._goals(requests)
        updates = [Update({}) for _ in goals.places]
        notes: list[dict[str, Any]] = [{} for _ in goals.places]
        for layer, left in self._countdown(goals):
            keys, residuals = self._read(goals, layer, left, updates)
            factors = self.solve_each(layer, keys, residuals)
            for i, (update, note) in enumerate(zip(updates, notes, strict=True)):
                delta = LowRank(*(factor[:, i : i + 1].float() for factor in factors))
                updates[i] = Update({**update, self._module(layer): delta})
                note[self._module(layer)] = {"key_norm": float(keys[:, i].norm())}
                note[self._module(layer)] |= self.noted(layer)
        made = {
            place: self._recorded(update, vectors[place], {"layers": note})
            for place, update, note in zip(goals.places, updates, notes, strict=True)
        }
        return [made[i] if i in made else failed(v) for i, v in enumerate(vectors)]

    def edit_jointly(self, requests: Sequence[EditRequest]) -> Update:
        """One update for all requests, solved for together layer by layer."""
        return self.jointly(requests, self.solve_jointly)

    def jointly(
        self,
        requests: Sequence[EditRequest],
        solve: Callable[[int, Tensor, Tensor], Factors],
    ) -> Update:
        """``edit_jointly`` with another way to solve for a layer's factors."""
        vectors, goals = self._goals(requests)
        update, notes = Update({}), {}
        for layer, left in self._countdown(goals):
            with overlay_all(self.language_model, update):
                keys, residuals = self._read(goals, layer, left)
            factors = solve(layer, keys, residuals)
            delta = LowRank(*(factor.float() for factor in factors))
            update = Update({**update, self._module(layer): delta})
            notes[self._module(layer)] = self.noted(layer)
        edits = [
            dict(failed(v).diagnostics) if v.failure else diagnostics_of(self.language_model, {}, v)
            for v in vectors
        ]
        return self._recorded(update, None, {"layers": notes, **joint_diagnostics(edits)})

    def averaged_keys(self, seen: Sequence[Tensor]) -> Tensor:
        """Keys [f, n] from each edit's keys [templates, f], weighted by template, in fp64."""
        weights = torch.tensor(self.contexts.weights, device=seen[0].device, dtype=torch.float64)
        return torch.stack([weights @ keys.double() for keys in seen], dim=1)

    def _goals(self, requests: Sequence[EditRequest]) -> tuple[list[Vector], _Goals]:
        layout = self.language_model.layout
        vectors = self.optimised(requests, layout.block(self.hyperparameters.layers[-1]))
        places = [i for i, vector in enumerate(vectors) if not vector.failure]
        prompts = self.prompts([requests[i] for i in places])
        values = [(vectors[i].initial + vectors[i].delta).double() for i in places]
        return vectors, _Goals(places, prompts, torch.stack(values) if values else torch.empty(0))

    def _countdown(self, goals: _Goals) -> Iterator[tuple[int, int]]:
        """Each layer with the number of layers left, itself included; none without goals."""
        layers = self.hyperparameters.layers if goals.places else ()
        return ((layer, len(layers) - i) for i, layer in enumerate(layers))

    def _module(self, layer: int) -> str:
        return self.language_model.layout.mlp_out(layer)

    def _read(
        self, goals: _Goals, layer: int, left: int, updates: Sequence[Update] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Keys [f, n] and this layer's residuals [d, n]."""
        layout = self.language_model.layout
        module, mlp = self._module(layer), layout.mlp(layer)
        last = layout.block(self.hyperparameters.layers[-1])
        norm = layout.mlp_norm(layer)
        seen = read_at_subjects(
            self.language_model,
            goals.prompts,
            inputs=[module],
            outputs=[last, mlp] if norm else [last],
            updates=updates,
        )
        current = torch.stack([values[0] for values in seen[last]]).double()
        residuals = (goals.values - current).T / left
        if norm:
            outputs = torch.stack([values[0] for values in seen[mlp]], dim=1)
            residuals = normed.before_norm(self.language_model.module(norm), outputs, residuals)
        return self.averaged_keys(seen[module]), residuals

    def _recorded(self, update: Update, vector: Vector | None, extra: dict[str, Any]) -> Update:
        noted = diagnostics_of(self.language_model, update, vector, extra)
        if not all(math.isfinite(norm) for norm in noted["norm"].values()):
            return Update({}, {**noted, "failure": "the update is not finite"})
        return Update(dict(update), noted)
