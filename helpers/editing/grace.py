"""GRACE: a codebook at one module, which replaces its output after prompts that are near a key.

An entry holds a key q (what enters the module at the edit prompt's last token), a value v and a radius. Where
the nearest key is nearer than its radius, the module's output at a prompt's last token becomes v (Hartvigsen
et al. 2023). A further edit with query q and target y, whose nearest entry is at the distance D:

    D > eps + radius             a new entry, with the radius eps
    same target                  the entry's radius becomes D, if it is smaller; its value is trained again
    another target               a new entry, with the radius D / 2; the nearest one's becomes D / 2 - 1e-5

The value is optimised by Adam on the target's mean negative log-likelihood. As in the authors' code it is not
bounded and does not stop early.

Deviations: a value is trained again from its beginning, not from where it stands; targets are equal where
their tokens are (the code compares means); an edit of a prompt that is in the codebook replaces its entry,
where the code leaves two of which neither is ever chosen; distances are computed exactly, not as a matrix
product; an entry is chosen where the distance is less than the radius, so that a radius of zero chooses none.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from helpers.editing.batch import EditBatch
from helpers.editing.gated import GatedEdit, GatedEditor, Trained
from helpers.editing.interventions import Gate
from helpers.editing.presets import LayerHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.rows import EditRow, edit_row
from helpers.editing.running import decides_alone
from helpers.models import LanguageModel
from helpers.models.hooks import output_hooks

SAME_KEY = 1e-6  # of the key's length: two queries that are nearer are the same prompt's
_BELOW_HALF = 1e-5


@dataclass(frozen=True)
class NearestKey(Gate):
    """Puts a value in place of the output where the nearest key is nearer than its radius."""

    keys: Tensor  # [entries, in]
    values: Tensor  # [entries, out]
    radii: Tensor  # [entries]

    def decide(self, queries: Tensor) -> Tensor:
        """The nearest entry of each query [n, in], or -1."""
        distance, entry = distances(queries, self.keys).min(1)
        return torch.where(distance < self.radii[entry], entry, -1)

    def nearness(self, queries: Tensor) -> Tensor:
        """Minus the distance to the nearest key [n]."""
        return -distances(queries, self.keys).amin(1)

    def change(self, entering: Tensor, output: Tensor, entries: Tensor) -> Tensor:
        """The entries' values [n, out]."""
        return self.values[entries]


def distances(queries: Tensor, keys: Tensor) -> Tensor:
    """Euclidean distances [queries, keys], exact near zero."""
    return torch.cdist(queries.float(), keys.float(), compute_mode="donot_use_mm_for_euclid_dist")


@dataclass(frozen=True)
class Codebook(GatedEdit):
    """Keys, values and radii at one module of the model with this ``fingerprint``."""

    module_name: str
    gate: NearestKey
    targets: tuple[tuple[int, ...], ...]  # of the entries, as token ids
    fingerprint: str
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    kind: ClassVar[str] = "codebook"
    gate_class: ClassVar[type[Gate]] = NearestKey

    def __post_init__(self) -> None:
        # A file has lists.
        object.__setattr__(self, "targets", tuple(tuple(ids) for ids in self.targets))


@dataclass(frozen=True)
class Entry:
    """What one request adds to a codebook."""

    key: Tensor  # [in]
    target: tuple[int, ...]


def with_entry(codebook: Codebook, entry: Entry, epsilon: float) -> tuple[Codebook, int]:
    """The codebook with room for a request, and the number of the entry whose value is to be trained."""
    keys, values, radii = codebook.gate.keys, codebook.gate.values, codebook.gate.radii
    targets = list(codebook.targets)
    new_radius = epsilon
    if len(keys):
        distance, nearest_entry = distances(entry.key[None], keys).min(1)
        nearest, distance_to_nearest = int(nearest_entry), float(distance)
        radii = radii.clone()
        same_prompt = distance_to_nearest <= SAME_KEY * float(entry.key.norm())
        if same_prompt or targets[nearest] == entry.target:
            reaches = distance_to_nearest <= epsilon + float(radii[nearest])
            if same_prompt or reaches:
                targets[nearest] = entry.target
                # Just above the distance: an entry is chosen where the distance is less than its radius.
                reached = torch.nextafter(distance, torch.full_like(distance, math.inf))
                radii[nearest] = torch.maximum(radii[nearest], reached[0])
                gate = NearestKey(keys, values, radii)
                return replace(codebook, gate=gate, targets=tuple(targets)), nearest
        elif distance_to_nearest <= epsilon + float(radii[nearest]):
            new_radius = distance_to_nearest / 2
            radii[nearest] = distance_to_nearest / 2 - _BELOW_HALF
    gate = NearestKey(
        keys=torch.cat([keys, entry.key[None]]),
        values=torch.cat([values, values.new_zeros(1, values.shape[1])]),
        radii=torch.cat([radii, radii.new_tensor([new_radius])]),
    )
    return replace(codebook, gate=gate, targets=(*targets, entry.target)), len(keys)


class GraceHyperparameters(LayerHyperparameters):
    """GRACE at the MLP's output matrix of one layer; ``epsilon`` is in units of what enters it."""

    layers: tuple[int]
    epsilon: float = Field(default=1.0, ge=0)
    num_steps: int = Field(default=100, ge=0)
    lr: float = Field(default=1.0, gt=0)
    value: Literal["cold", "warm"] = "cold"  # begins at random, or with the module's output


@dataclass
class Grace(GatedEditor[Codebook]):
    """GRACE on one model; a sequence is one codebook, in which older radii can shrink."""

    lm: LanguageModel
    hyperparameters: GraceHyperparameters
    seed: int = 0  # of values that begin at random
    progress: bool = False
    name = "grace"
    edit_class = Codebook

    def settings(self) -> dict[str, Any]:
        """Also the seed of the values."""
        return super().settings() | {"seed": self.seed}

    def rows(self, requests: Sequence[EditRequest]) -> list[EditRow]:
        """The target after the prompt, whose last token is edited."""
        return [edit_row(self.lm, request, edited_at_end=True) for request in requests]

    def empty(self) -> Codebook:
        """A codebook without entries."""
        size_in, size_out = self.lm.layout.intermediate_size, self.lm.layout.hidden_size
        device = self.lm.device
        gate = NearestKey(
            keys=torch.empty(0, size_in, device=device),
            values=torch.empty(0, size_out, device=device),
            radii=torch.empty(0, device=device),
        )
        return Codebook(self.module_name, gate, (), self.lm.fingerprint)

    def extended(
        self, edit: Codebook, request: EditRequest, row: EditRow, trained: Trained
    ) -> Codebook:
        """The codebook with an entry: its key is the vector that its own prompt asks the gate with."""
        assert isinstance(trained, _TrainedValue)
        key = trained.key
        if decides_alone(self.lm):
            (key,) = self.queries([request.text])
        target = tuple(prediction.token for prediction in row.target)
        codebook, number = with_entry(edit, Entry(key, target), self.hyperparameters.epsilon)
        values = codebook.gate.values.clone()
        values[number] = trained.tensor
        return replace(codebook, gate=replace(codebook.gate, values=values))

    def train(
        self, edit: Codebook, requests: Sequence[EditRequest], rows: Sequence[EditRow]
    ) -> list[Trained]:
        """A value for each request."""
        settings = self.hyperparameters
        batch = EditBatch(self.lm, rows, self.layer)
        put_values = _PutValues(batch, self.module_name)
        with torch.no_grad():
            batch.read(put_values.hidden())  # as it is without an edit
        if settings.value == "cold":
            put_values.begin(torch.stack([self._random(row) for row in rows]))
        adam = torch.optim.Adam([put_values.value], lr=settings.lr)
        trained_values: list[Trained] = [
            _TrainedValue(tensor=value, key=key)
            for value, key in zip(put_values.value.detach(), put_values.keys, strict=True)
        ]
        for _ in range(settings.num_steps):
            loss = batch.read(put_values.hidden()).nll  # [rows]
            for trained, nll in zip(trained_values, loss.tolist(), strict=True):
                trained.note({"nll": nll})
                trained.steps += 1
            adam.zero_grad()
            loss.nan_to_num().sum().backward()
            adam.step()
        for trained, vector in zip(trained_values, put_values.value.detach(), strict=True):
            trained.tensor = vector.clone()
        return trained_values

    def _random(self, row: EditRow) -> Tensor:
        """Uniform numbers in [0, 1), from the request alone: the batch has no influence."""
        numbers = np.random.default_rng([self.seed, zlib.crc32(row.record.encode())])
        return torch.from_numpy(numbers.random(self.lm.layout.hidden_size)).to(self.lm.device)


@dataclass(kw_only=True)
class _TrainedValue(Trained):
    """A value [out], and its request's key."""

    key: Tensor  # [in]


class _PutValues:
    """The values of a batch [rows, out], in place of a module's output at the prompts' last tokens."""

    def __init__(self, batch: EditBatch, module_name: str) -> None:
        self.batch = batch
        self.module_name = module_name
        self.keys: Tensor = torch.empty(0)  # [rows, in], read in the first pass
        self.value: Tensor = torch.empty(0)  # the output itself, until ``begin``

    def begin(self, values: Tensor) -> None:
        """Start from other values [rows, out] than the module's output."""
        self.value = values.to(self.value).requires_grad_(True)

    def hidden(self) -> Tensor:
        """Final hidden states [rows, active, hidden] with the values in force."""
        with output_hooks(self.batch.lm, {self.module_name: self._put}):
            return self.batch.hidden()

    def _put(self, entering: Tensor, output: Tensor) -> Tensor | None:
        positions = self.batch.bare_positions
        flat = output.flatten(0, 1)  # [rows * active, out]
        if not len(self.keys):
            self.keys = entering.flatten(0, 1)[positions].detach().float()
            self.value = flat[positions].detach().float().requires_grad_(True)
            return None
        return flat.index_put((positions,), self.value.to(output.dtype)).view_as(output)
