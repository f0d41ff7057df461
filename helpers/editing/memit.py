"""MEMIT and AlphaEdit: one optimised vector, spread over several layers.

The vector is optimised at the block output of the last edited layer. Then, layer by layer, with the
layers below already edited, an equal share of what is still missing there,

    r = (z - current z) / (number of layers left),

is written into the layer's second MLP matrix at the averaged key k (Meng et al. 2023, Algorithm 1).
The editors differ in how a matrix takes up keys K [f, n] and residuals R [d, n]. With C the second
moment, MEMIT (eq. 14) has

    Delta W = R K^T (lambda C + K K^T)^-1.

AlphaEdit (Fang et al. 2025, as its code has it) confines updates to the null space of what is known.
P projects onto the directions in which C is below a threshold; with A all keys so far, the batch's
own (K = A E) among them,

    Delta W^T = (P A A^T + L2 I)^-1 P K R^T.

Pushed through, both are Delta W^T = D (ridge I + A^T D)^-1 E R^T: D = (lambda C)^-1 A, ridge 1 and
A = K for MEMIT, D = P A and ridge L2 for AlphaEdit. So no [f, f] matrix is formed beyond one Cholesky
factor of C, and one edit alone is r d^T / (ridge + k . d).

Where the MLP's output is normalised before it enters the residual stream (Gemma 3, OLMo 2), the share
is handed back through the norm (``before_norm``); what it cannot deliver is left to later layers.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from helpers.editing.contexts import read_at_subjects
from helpers.editing.editor import diagnostics_of, joint_diagnostics
from helpers.editing.presets import VectorHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.update import LowRank, Update, overlay_all
from helpers.editing.vector import Vector, VectorEditor

KeyHistory = dict[int, Tensor]  # keys [f, m] of the edits made so far in one run, by layer


@dataclass
class SpreadingEditor(VectorEditor):
    """Base of MEMIT and AlphaEdit."""

    grouped = True

    @abstractmethod
    def directions(self, layer: int, keys: Tensor) -> tuple[Tensor, float]:
        """D [f, n] for keys [f, n], in fp64, and the ridge."""

    def solve_each(self, layer: int, keys: Tensor, residuals: Tensor) -> tuple[Tensor, Tensor]:
        """Factors [d, n] and [f, n] of n edits alone, by column, from keys and residuals in fp64."""
        found, ridge = self.directions(layer, keys)
        return residuals / (ridge + (keys * found).sum(0)), found

    def solve_jointly(
        self, layer: int, keys: Tensor, residuals: Tensor, history: KeyHistory | None = None
    ) -> tuple[Tensor, Tensor]:
        """Factors of one update that takes up all keys, and leaves those of ``history`` alone."""
        known = torch.cat([(history or {}).get(layer, keys[:, :0]), keys], dim=1)
        found, ridge = self.directions(layer, known)
        identity = torch.eye(known.shape[1]).to(known)
        inner = ridge * identity + known.T @ found
        return residuals, found @ torch.linalg.solve(inner, identity[:, -keys.shape[1] :])

    def __post_init__(self) -> None:
        super().__post_init__()
        normed = self.model.layout.architecture.mlp_norm is not None
        self.parts += ("spreading", *(["normed"] if normed else []))

    def _noted(self, layer: int) -> dict[str, Any]:
        return {}  # what else the diagnostics report of a layer

    def edit(self, requests: Sequence[EditRequest]) -> list[Update]:
        """One independent update per request, of rank one in every edited matrix."""
        vectors = self._vectors(requests)
        sound = [i for i, vector in enumerate(vectors) if not vector.failure]
        updates = {i: Update({}) for i in sound}
        notes: dict[int, Any] = {i: {"layers": {}, **vectors[i].noted} for i in sound}
        for layer, keys, residuals in self._layers(requests, vectors, updates):
            factors = self.solve_each(layer, keys, residuals)
            module = self._module(layer)
            for column, i in enumerate(sound):
                own = slice(column, column + 1)
                delta = LowRank(*(factor[:, own].float() for factor in factors))
                updates[i] = Update({**updates[i], module: delta})
                notes[i]["layers"][module] = self._noted(layer)
        return [
            vector.failed() if vector.failure else self._recorded(updates[i], notes[i])
            for i, vector in enumerate(vectors)
        ]

    def edit_jointly(
        self, requests: Sequence[EditRequest], history: KeyHistory | None = None
    ) -> Update:
        """One update for all requests, solved for together layer by layer."""
        vectors, notes = self._vectors(requests), {}
        updates = {i: Update({}) for i, vector in enumerate(vectors) if not vector.failure}
        update = Update({})
        for layer, keys, residuals in self._layers(requests, vectors, updates):
            factors = self.solve_jointly(layer, keys, residuals, history)
            delta = LowRank(*(factor.float() for factor in factors))
            update = Update({**update, self._module(layer): delta})
            updates |= dict.fromkeys(updates, update)
            notes[self._module(layer)] = self._noted(layer)
        unedited = diagnostics_of(self.model, {})
        edits = [v.failed().diagnostics if v.failure else {**unedited, **v.noted} for v in vectors]
        return self._recorded(update, {"layers": notes, **joint_diagnostics(edits)})

    def _vectors(self, requests: Sequence[EditRequest]) -> list[Vector]:
        last = self.hyperparameters.layers[-1]
        return self.optimised(requests, self.model.layout.block(last))

    def _layers(
        self,
        requests: Sequence[EditRequest],
        vectors: Sequence[Vector],
        updates: Mapping[int, Update],
    ) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Each layer with keys [f, n] and residuals [d, n], read under the edits' ``updates`` so far."""
        model = self.model
        layout = model.layout
        layers = self.hyperparameters.layers
        last = layout.block(layers[-1])
        prompts = self.prompts([requests[i] for i in updates])
        wanted = [(vectors[i].initial + vectors[i].delta).double() for i in updates]  # z
        for place, layer in enumerate(layers if wanted else ()):
            module = self._module(layer)
            mlp = layout.mlp(layer)
            norm = layout.mlp_norm(layer)
            outputs = [last, mlp] if norm else [last]
            options: dict[str, Any] = {"outputs": outputs, "updates": list(updates.values())}
            seen = read_at_subjects(model, prompts, inputs=[module], **options)
            current = torch.stack([values[0] for values in seen[last]]).double()
            residuals = (torch.stack(wanted) - current).T / (len(layers) - place)
            if norm:
                written = torch.stack([values[0] for values in seen[mlp]], dim=1)
                residuals = before_norm(model.module(norm), written, residuals)
            yield layer, self._averaged(seen[module]), residuals

    def _averaged(self, seen: Sequence[Tensor]) -> Tensor:
        # Keys [f, n] from each edit's keys [templates, f], weighted by template, in fp64.
        return torch.stack([self.contexts.averaged(keys.double()) for keys in seen], dim=1)

    def _module(self, layer: int) -> str:
        return self.model.layout.mlp_out(layer)

    def _recorded(self, update: Update, extra: dict[str, Any]) -> Update:
        noted = diagnostics_of(self.model, update, extra)
        if not all(math.isfinite(norm) for norm in noted["norm"].values()):
            return Update({}, {**noted, "failure": "the update is not finite"})
        return Update(dict(update), noted)


class MemitHyperparameters(VectorHyperparameters):
    """MEMIT: ``mom2_update_weight`` (lambda) weighs the second moment."""

    mom2_update_weight: float = Field(gt=0)


@dataclass
class Memit(SpreadingEditor):
    """MEMIT on one model."""

    hyperparameters: MemitHyperparameters
    name = "memit"

    def directions(self, layer: int, keys: Tensor) -> tuple[Tensor, float]:
        """(lambda C)^-1 K."""
        weight = self.hyperparameters.mom2_update_weight
        return self.second_moments[layer].solve(keys) / weight, 1.0


class AlphaEditHyperparameters(VectorHyperparameters):
    """AlphaEdit: directions with a second moment below ``nullspace_threshold`` are free to change."""

    nullspace_threshold: float = Field(gt=0)  # absolute; what it leaves is reported with every edit
    L2: float = Field(gt=0)  # the ridge


@dataclass
class AlphaEdit(SpreadingEditor):
    """AlphaEdit on one model; the null spaces belong to the second moments."""

    hyperparameters: AlphaEditHyperparameters
    name = "alphaedit"

    def occupied(self, layer: int) -> Tensor:
        """Directions U [f, r] that must not change: P = I - U U^T."""
        return self.second_moments[layer].occupied(self.hyperparameters.nullspace_threshold)

    def _noted(self, layer: int) -> dict[str, Any]:
        size, occupied = self.occupied(layer).shape
        unprotected = self.second_moments[layer].unprotected(
            self.hyperparameters.nullspace_threshold
        )
        warning = {"warning": unprotected} if unprotected else {}
        return {"null_space_dimension": size - occupied, **warning}

    def directions(self, layer: int, keys: Tensor) -> tuple[Tensor, float]:
        """P K."""
        occupied = self.occupied(layer)
        return keys - occupied @ (occupied.T @ keys), self.hyperparameters.L2

    def edit_sequentially(self, requests: Sequence[EditRequest]) -> Iterator[Update]:
        """Each edit also protects the keys of those before, read on the model just after their edit."""
        total, history = Update({}), KeyHistory()
        editor = replace(self, memo=None)  # vectors of the edited model are not shared
        for request in requests:
            with overlay_all(self.model, total):
                step = editor.edit_jointly([request], history)
            total = total.plus(step)
            if not step.failed:  # else nothing was written that needs protection
                with overlay_all(self.model, total):
                    self._remember(history, request)
            yield total

    def _remember(self, history: KeyHistory, request: EditRequest) -> None:
        modules = {layer: self._module(layer) for layer in self.hyperparameters.layers}
        inputs = list(modules.values())
        seen = read_at_subjects(self.model, self.prompts([request]), inputs=inputs)
        for layer, module in modules.items():
            keys = self._averaged(seen[module])
            history[layer] = torch.cat([history.get(layer, keys[:, :0]), keys], dim=1)


@torch.no_grad()
def before_norm(norm: nn.Module, outputs: Tensor, residuals: Tensor) -> Tensor:
    """What to add before ``norm`` so that what leaves it comes nearest to growing by ``residuals``.

    The norm g * m / rms(m) always gives g * u with rms(u) = 1; with Gemma 3's gains of up to 700 a
    residual added before it arrives thousands of times off. The nearest it can come to a wanted t
    minimises |g * u - t| on that sphere: u = g t / (g^2 + mu), with the mu that gives u its length.
    ``outputs``, what enters the norm unedited, and the result are [d, n], the latter in fp64.
    """
    entering = outputs.double()
    gain = norm(torch.ones_like(next(norm.parameters()))).double()[:, None]
    scale = entering.square().mean(0).sqrt()
    aligned = gain * (gain * entering / scale + residuals.double())
    low = torch.zeros_like(aligned[0])
    high = aligned.square().mean(0).sqrt()  # u is too short from here on
    for _ in range(100):  # halvings of the interval
        middle = (low + high) / 2
        short = (aligned / (gain.square() + middle)).square().mean(0) < 1
        low, high = torch.where(short, low, middle), torch.where(short, middle, high)
    found = aligned / (gain.square() + high)
    # Short even at mu = 0: the direction is right, and the norm makes it longer.
    return found / found.square().mean(0).sqrt() * scale - entering
