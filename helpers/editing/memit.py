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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from helpers.editing.contexts import read_at_subjects
from helpers.editing.edit import Edit
from helpers.editing.editor import diagnostics_of, joint_diagnostics
from helpers.editing.held_out import check_held_out, held_out_digest
from helpers.editing.interventions import LowRank
from helpers.editing.key_history import (
    KeyHistory,
    history_bytes,
    history_of,
    memory_of,
    remember,
)
from helpers.editing.nas import usual_norm, with_usual_norm
from helpers.editing.presets import VectorHyperparameters, later_field
from helpers.editing.request import EditRequest
from helpers.editing.running import under_all
from helpers.editing.sequence import SequenceState
from helpers.editing.vector import Vector, VectorEditor
from helpers.editing.weight_edit import WeightEdit, only_weights
from helpers.models.tokens import SubjectPrompt


@dataclass(frozen=True)
class PendingVector:
    """An edit whose vector was found."""

    prompts: Sequence[SubjectPrompt]  # the bare one first
    wanted: Tensor  # z, what its subject is to have at the last edited layer [d], fp64


@dataclass(frozen=True)
class LayerProblem:
    """What a layer is asked to write, a column per edit: keys K [f, n] and residuals R [d, n], fp64."""

    keys: Tensor
    residuals: Tensor


@dataclass
class SpreadingEditor(VectorEditor):
    """Base of MEMIT and AlphaEdit."""

    grouped = True

    @abstractmethod
    def directions(self, layer: int, keys: Tensor) -> tuple[Tensor, float]:
        """D [f, n] for keys [f, n], in fp64, and the ridge."""

    def solve_each(self, layer: int, keys: Tensor, residuals: Tensor) -> tuple[Tensor, Tensor]:
        """Factors [d, n] and [f, n] of n edits alone, by column, from keys and residuals in fp64."""
        directions, ridge = self.directions(layer, keys)
        return residuals / (ridge + (keys * directions).sum(0)), directions

    def solve_jointly(
        self, layer: int, keys: Tensor, residuals: Tensor, history: KeyHistory | None = None
    ) -> tuple[Tensor, Tensor]:
        """Factors of one update that takes up all keys, and leaves those of ``history`` alone."""
        earlier_keys = (history or {}).get(layer, keys[:, :0])
        all_keys = torch.cat([earlier_keys, keys], dim=1)  # A [f, m + n]
        directions, ridge = self.directions(layer, all_keys)  # D [f, m + n]
        identity = torch.eye(all_keys.shape[1]).to(all_keys)
        inner = ridge * identity + all_keys.T @ directions
        of_this_batch = identity[:, -keys.shape[1] :]  # E [m + n, n]
        return residuals, directions @ torch.linalg.solve(inner, of_this_batch)

    def __post_init__(self) -> None:
        super().__post_init__()
        normed = self.lm.layout.architecture.mlp_norm is not None
        self.versioned_parts += ("spreading", *(["normed"] if normed else []))

    def _notes_of_layer(self, layer: int) -> dict[str, Any]:
        return {}  # what else the diagnostics report of a layer

    def edit(self, requests: Sequence[EditRequest]) -> list[WeightEdit]:
        """One independent edit per request, of rank one in every edited matrix."""
        vectors = self._vectors(requests)
        pending = self._pending(requests, vectors)
        edits = [WeightEdit({}) for _ in pending]
        layer_notes: dict[str, Any] = {}
        for layer in self.hyperparameters.layers if pending else ():
            module_name = self._module(layer)
            problem = self._layer_problem(layer, pending, edits)
            left, right = self.solve_each(layer, problem.keys, problem.residuals)
            for column, edit in enumerate(edits):
                delta = LowRank(left[:, [column]].float(), right[:, [column]].float())
                edits[column] = WeightEdit({**edit, module_name: delta})
            layer_notes[module_name] = self._notes_of_layer(layer)

        remaining_edits = iter(edits)
        return [
            vector.failed_edit()
            if vector.failure
            else self._recorded(
                next(remaining_edits), {"layers": dict(layer_notes), **vector.notes}
            )
            for vector in vectors
        ]

    def edit_jointly(
        self, requests: Sequence[EditRequest], history: KeyHistory | None = None
    ) -> WeightEdit:
        """One edit for all requests, solved for together layer by layer.

        ``history`` are the keys of earlier edits, which the edit leaves alone.
        """
        vectors = self._vectors(requests)
        pending = self._pending(requests, vectors)
        edit = WeightEdit({})
        layer_notes: dict[str, Any] = {}
        for layer in self.hyperparameters.layers if pending else ():
            module_name = self._module(layer)
            problem = self._layer_problem(layer, pending, [edit] * len(pending))
            left, right = self.solve_jointly(layer, problem.keys, problem.residuals, history)
            edit = WeightEdit({**edit, module_name: LowRank(left.float(), right.float())})
            layer_notes[module_name] = self._notes_of_layer(layer)

        unchanged = diagnostics_of(self.lm, {})
        of_each_edit = [
            vector.failed_edit().diagnostics if vector.failure else {**unchanged, **vector.notes}
            for vector in vectors
        ]
        return self._recorded(edit, {"layers": layer_notes, **joint_diagnostics(of_each_edit)})

    def turn_that_remembers(
        self, state: SequenceState, requests: Sequence[EditRequest]
    ) -> SequenceState:
        """The next turn of a sequence, which leaves alone the keys of those before it.

        A turn's keys are read on the model just after it was made.
        """
        total = only_weights(state.edit, f"{self.method} after another edit")
        history = history_of(state.memory)
        editor = replace(self, memo=None)  # vectors of the edited model are not shared
        with under_all(self.lm, total):
            step = editor.edit_jointly(requests, history)
        total = total.plus(step)
        written_requests = _written(requests, step)  # nothing else needs protection
        if written_requests:
            with under_all(self.lm, total):
                self._remember(history, written_requests)
        notes = {"history_bytes": history_bytes(history)}
        total = total.with_diagnostics({**total.diagnostics, **notes})
        return SequenceState(total, memory_of(history))

    def _remember(self, history: KeyHistory, requests: Sequence[EditRequest]) -> None:
        layers = self.hyperparameters.layers
        key_modules = [self._module(layer) for layer in layers]
        read = read_at_subjects(self.lm, self.prompts(requests), inputs=key_modules)
        for layer, key_module in zip(layers, key_modules, strict=True):
            remember(history, layer, self._averaged(read[key_module]))

    def _vectors(self, requests: Sequence[EditRequest]) -> list[Vector]:
        last_layer = self.hyperparameters.layers[-1]
        return self.optimised(requests, self.lm.layout.block(last_layer))

    def _pending(
        self, requests: Sequence[EditRequest], vectors: Sequence[Vector]
    ) -> list[PendingVector]:
        return [
            PendingVector(prompts, (vector.initial + vector.delta).double())
            for prompts, vector in zip(self.prompts(requests), vectors, strict=True)
            if not vector.failure
        ]

    def _layer_problem(
        self, layer: int, pending: Sequence[PendingVector], edits: Sequence[WeightEdit]
    ) -> LayerProblem:
        """The keys, and an equal share of what is still missing, read with the layers below edited."""
        layers = self.hyperparameters.layers
        layers_left = len(layers) - layers.index(layer)
        layout = self.lm.layout
        key_module = self._module(layer)
        last_block = layout.block(layers[-1])
        mlp = layout.mlp(layer)
        norm = layout.mlp_norm(layer)

        read = read_at_subjects(
            self.lm,
            [edit.prompts for edit in pending],
            inputs=[key_module],
            outputs=[last_block, mlp] if norm else [last_block],
            edits=edits,
        )
        wanted = torch.stack([edit.wanted for edit in pending])  # [n, d]
        current = torch.stack([of_prompts[0] for of_prompts in read[last_block]]).double()
        # What the MLP's output is to change by for the stream to change by its share, [d, n].
        residuals = (wanted - current).T / layers_left / self.lm.residual_multiplier
        if norm:
            entering_norm = torch.stack([of_prompts[0] for of_prompts in read[mlp]], dim=1)
            residuals = before_norm(self.lm.module(norm), entering_norm, residuals)
        return LayerProblem(self._averaged(read[key_module]), residuals)

    def _averaged(self, keys_of_edits: Sequence[Tensor]) -> Tensor:
        """Keys [f, n] from each edit's keys [templates, f], weighted by template, in fp64."""
        averaged = [self.contexts.averaged(keys.double()) for keys in keys_of_edits]
        return torch.stack(averaged, dim=1)

    def _module(self, layer: int) -> str:
        return self.lm.layout.mlp_out(layer)

    def _recorded(self, edit: WeightEdit, notes: dict[str, Any]) -> WeightEdit:
        diagnostics = diagnostics_of(self.lm, edit, notes)
        if not all(math.isfinite(norm) for norm in diagnostics["norm"].values()):
            return WeightEdit({}, {**diagnostics, "failure": "the update is not finite"})
        return WeightEdit(dict(edit), diagnostics)


class MemitHyperparameters(VectorHyperparameters):
    """MEMIT: ``mom2_update_weight`` (lambda) weighs the second moment.

    With ``accumulate`` an edit of a sequence leaves alone the keys of those before it (``key_history``).
    """

    mom2_update_weight: float = Field(gt=0)
    accumulate: bool = later_field(False)


@dataclass
class Memit(SpreadingEditor):
    """MEMIT on one model."""

    hyperparameters: MemitHyperparameters
    name = "memit"

    def directions(self, layer: int, keys: Tensor) -> tuple[Tensor, float]:
        """(lambda C)^-1 K."""
        weight = self.hyperparameters.mom2_update_weight
        return self.second_moments[layer].solve(keys) / weight, 1.0

    def after_turn(self, state: SequenceState, requests: Sequence[EditRequest]) -> SequenceState:
        """With ``accumulate`` Delta W_t = R_t K_t^T (lambda C + sum over i <= t of K_i K_i^T)^-1."""
        if self.hyperparameters.accumulate:
            return self.turn_that_remembers(state, requests)
        return super().after_turn(state, requests)


class AlphaEditHyperparameters(VectorHyperparameters):
    """AlphaEdit: directions with a second moment below ``nullspace_threshold`` are free to change.

    With ``norm_feedback`` every vector gets the norm that is usual for ``held_out`` requests (``nas``).
    """

    nullspace_threshold: float = Field(gt=0)  # absolute; what it leaves is reported with every edit
    L2: float = Field(gt=0)  # the ridge
    norm_feedback: bool = later_field(False)
    held_out: int = later_field(200, gt=0)
    skip_long: bool = later_field(False)

    @property
    def measured_requests(self) -> int:
        """None without norm feedback."""
        return self.held_out if self.norm_feedback else 0


@dataclass
class AlphaEdit(SpreadingEditor):
    """AlphaEdit on one model; the null spaces belong to the second moments."""

    hyperparameters: AlphaEditHyperparameters
    name = "alphaedit"

    def settings(self) -> dict[str, Any]:
        """Also the requests that norm feedback is measured on."""
        measured = self.hyperparameters.measured_requests
        return super().settings() | ({"held_out": held_out_digest()} if measured else {})

    def occupied(self, layer: int) -> Tensor:
        """Directions U [f, r] that must not change: P = I - U U^T."""
        return self.second_moments[layer].occupied(self.hyperparameters.nullspace_threshold)

    def _notes_of_layer(self, layer: int) -> dict[str, Any]:
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

    def after_turn(self, state: SequenceState, requests: Sequence[EditRequest]) -> SequenceState:
        """Each turn also protects the keys of those before."""
        self._usual_norm()
        return self.turn_that_remembers(state, requests)

    def edit_after(self, earlier: Edit, requests: Sequence[EditRequest]) -> Edit:
        """What requests add to an edited model; the usual norm is the unedited model's."""
        self._usual_norm()
        return super().edit_after(earlier, requests)

    def _usual_norm(self) -> float | None:
        """Of held-out requests, first asked for on the unedited model; None without norm feedback."""
        count = self.hyperparameters.measured_requests
        return usual_norm(self, count) if count else None

    def _vectors(self, requests: Sequence[EditRequest]) -> list[Vector]:
        norm = self._usual_norm() if requests else None
        vectors = super()._vectors(requests)
        if norm is None:
            return vectors
        check_held_out(requests, self.hyperparameters.held_out)
        skip_long = self.hyperparameters.skip_long
        return with_usual_norm(self, requests, vectors, norm, skip_long=skip_long)


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
    nearest = aligned / (gain.square() + high)
    # Short even at mu = 0: the direction is right, and the norm makes it longer.
    return nearest / nearest.square().mean(0).sqrt() * scale - entering


def _written(requests: Sequence[EditRequest], step: WeightEdit) -> list[EditRequest]:
    """Those of a joint edit's requests that it writes."""
    if step.failed:
        return []
    return [
        request
        for request, notes in zip(requests, step.diagnostics["edits"], strict=True)
        if "failure" not in notes
    ]
