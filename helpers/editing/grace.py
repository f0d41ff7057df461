"""GRACE: a codebook at one module, which replaces its output after prompts that are near a key.

An entry holds a key q (what enters the module at the edit prompt's last token), a value v and a radius. Where
the nearest key is nearer than its radius, the module's output at a prompt's last token becomes v (Hartvigsen
et al. 2023). A further edit with query q and target y, whose nearest entry is at the distance D:

    D > eps + radius             a new entry, with the radius eps
    same target                  the entry's radius becomes D, if it is smaller; its value is trained again
    another target               a new entry, with the radius D / 2; the nearest one's becomes D / 2 - 1e-5

The value is optimised by Adam on the target's mean negative log-likelihood. As in the authors' code it is not
bounded and does not stop early.

Deviations: targets are equal where their tokens are (the code compares means); an edit of a prompt that is in
the codebook replaces its entry, where the code leaves two of which neither is ever chosen; distances are
computed exactly, not as a matrix product; an entry is chosen where the distance is less than the radius, so
that a radius of zero chooses none.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from helpers.editing.batch import EditBatch
from helpers.editing.demonstrations import BACKGROUND, background_prompts, digest
from helpers.editing.edit import Edit, EditChain, EditError, Recognition
from helpers.editing.editor import Editor, made_in_batches
from helpers.editing.interventions import Gate
from helpers.editing.presets import LayerHyperparameters
from helpers.editing.request import EditRequest, with_one_prompt
from helpers.editing.rows import EditRow, edit_row
from helpers.editing.running import (
    decides_alone,
    last_tokens,
    prefixes_of,
    under,
    with_prefix_texts,
)
from helpers.editing.weight_edit import WeightEdit
from helpers.models import LanguageModel
from helpers.models.batching import tokens_at_once
from helpers.models.forest import padded
from helpers.models.forward import hidden_states
from helpers.models.hooks import output_hooks, record
from helpers.models.tokens import ids_of_prompts

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

    def change(self, entering: Tensor, output: Tensor, entries: Tensor) -> Tensor:
        """The entries' values [n, out]."""
        return self.values[entries]


def distances(queries: Tensor, keys: Tensor) -> Tensor:
    """Euclidean distances [queries, keys], exact near zero."""
    return torch.cdist(queries.float(), keys.float(), compute_mode="donot_use_mm_for_euclid_dist")


@dataclass(frozen=True)
class Codebook(Edit):
    """Keys, values and radii at one module of the model with this ``fingerprint``."""

    module_name: str
    gate: NearestKey
    targets: tuple[tuple[int, ...], ...]  # of the entries, as token ids
    fingerprint: str
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    kind: ClassVar[str] = "codebook"

    def interventions(self) -> dict[str, list[NearestKey]]:
        """The gate at its module."""
        return {self.module_name: [self.gate]}

    def recognised(
        self, lm: LanguageModel, prompts: Sequence[str], chain: EditChain | None = None
    ) -> list[Recognition]:
        """The entry that is chosen, and minus the distance to the nearest key."""
        if chain is not None:
            prompts = with_prefix_texts(
                lm, prefixes_of(lm, [chain], [0] * len(prompts), prompts), prompts
            )
        queries = last_inputs(lm, prompts, self.module_name, chain)
        keys = self.gate.keys.to(queries)
        nearest_distances = distances(queries, keys).amin(1)
        entries = self.to(lm.device).gate.decide(queries)
        return [
            Recognition(entry, -distance)
            for entry, distance in zip(entries.tolist(), nearest_distances.tolist(), strict=True)
        ]

    def check(self, lm: LanguageModel) -> None:
        """Raise ``EditError`` for another model, whose prompts have other keys."""
        if not lm.has_fingerprint(self.fingerprint):
            raise EditError(f"this codebook holds keys of another model than {lm.name}: edit again")

    def to(self, device: str | torch.device) -> Codebook:
        """A copy on another device."""
        return replace(self, gate=self.gate.to(device))

    def contents(self) -> tuple[dict[str, Tensor], Any]:
        """The gate's tensors; module, targets and fingerprint."""
        fields = {
            "module_name": self.module_name,
            "targets": [list(ids) for ids in self.targets],
            "fingerprint": self.fingerprint,
        }
        return self.gate.tensors(), fields

    @classmethod
    def from_contents(
        cls, tensors: Mapping[str, Tensor], fields: Any, diagnostics: Mapping[str, Any]
    ) -> Self:
        """The edit whose ``contents`` these are."""
        return cls(
            module_name=fields["module_name"],
            gate=NearestKey(**tensors),
            targets=tuple(tuple(ids) for ids in fields["targets"]),
            fingerprint=fields["fingerprint"],
            diagnostics=diagnostics,
        )


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


@torch.inference_mode()
def last_inputs(
    lm: LanguageModel, prompts: Sequence[str], module_name: str, edit: Edit | None = None
) -> Tensor:
    """What enters a module at each prompt's last token [prompts, in], each prompt run alone, fp32.

    Under ``edit``, if one is given, whose text the prompts already begin with.
    """
    if not prompts:
        return torch.empty(0, lm.weight(module_name).shape[1], device=lm.device)
    edits = [] if edit is None else [edit]
    inputs = {}
    for prompt, ids in ids_of_prompts(lm, prompts).items():
        alone = padded(lm, [ids])
        under_edit = under(lm, edits, [len(edits) - 1], last_tokens(alone.real))
        with under_edit, record(lm, inputs=[module_name]) as recorded:
            hidden_states(lm, alone.ids, alone.positions, alone.visible)
        inputs[prompt] = recorded[module_name][0, -1].float()
    return torch.stack([inputs[prompt] for prompt in prompts])


class GraceHyperparameters(LayerHyperparameters):
    """GRACE at the MLP's output matrix of one layer; ``epsilon`` is in units of what enters it."""

    layers: tuple[int]
    epsilon: float = Field(default=1.0, ge=0)
    num_steps: int = Field(default=100, ge=0)
    lr: float = Field(default=1.0, gt=0)
    value: Literal["cold", "warm"] = "cold"  # begins at random, or with the module's output


@dataclass
class Grace(Editor):
    """GRACE on one model; a sequence is one codebook."""

    lm: LanguageModel
    hyperparameters: GraceHyperparameters
    seed: int = 0  # of values that begin at random
    progress: bool = False
    name = "grace"
    app = None

    def __post_init__(self) -> None:
        (self.layer,) = self.hyperparameters.layers
        self.lm.layout.block(self.layer)
        self.module_name = self.lm.layout.mlp_out(self.layer)

    def settings(self) -> dict[str, Any]:
        """Also the seed of the values, and the prompts that no edit is about."""
        return super().settings() | {"seed": self.seed, "background": [digest(), BACKGROUND]}

    @cached_property
    def _background(self) -> Tensor:
        """What enters the module after prompts that no edit is about [prompts, in]."""
        return last_inputs(self.lm, background_prompts(), self.module_name)

    def _reported(self, codebook: Codebook) -> Codebook:
        """The codebook with the share of background prompts that it changes the answers to."""
        entries = codebook.gate.decide(self._background)
        neutral = float((entries >= 0).float().mean())
        return codebook.with_diagnostics({**codebook.diagnostics, "neutral": neutral})

    def edit(self, requests: Sequence[EditRequest]) -> list[Edit]:
        """A codebook of one entry for each request."""
        requests = with_one_prompt(requests)
        rows = self._rows(requests)
        values = made_in_batches(
            [int(row.active().sum()) for row in rows],
            tokens_at_once(self.lm, 2048, gradients=True),
            lambda row_indices: self._values([rows[i] for i in row_indices]),
            activity="optimising" if self.progress else "",
        )
        empty = self._empty()
        edits: list[Edit] = []
        for request, row, value in zip(requests, rows, values, strict=True):
            if value.failure:
                edits.append(WeightEdit({}, value.diagnostics))
                continue
            codebook, _ = with_entry(empty, self._entry(request, row, value), self.epsilon)
            edits.append(self._reported(_with_value(codebook, 0, value)))
        return edits

    @property
    def epsilon(self) -> float:
        """The radius of an entry that is near no other."""
        return self.hyperparameters.epsilon

    def edit_on(self, earlier: Edit, requests: Sequence[EditRequest]) -> Edit:
        """The codebook with the requests, one after the other: older radii can shrink."""
        if isinstance(earlier, Codebook):
            earlier.check(self.lm)
            if earlier.module_name != self.module_name:
                raise EditError(
                    f"GRACE at {self.module_name} cannot continue a codebook at {earlier.module_name}"
                )
            codebook = earlier
        elif isinstance(earlier, WeightEdit) and not earlier:
            codebook = self._empty()
        else:
            raise EditError(f"GRACE continues a codebook, not a {earlier.kind} edit")
        total: Edit = earlier
        requests = with_one_prompt(requests)
        for request, row in zip(requests, self._rows(requests), strict=True):
            (value,) = self._values([row])
            if value.failure:
                total = total.with_diagnostics(value.diagnostics)
                continue
            entry = self._entry(request, row, value)
            codebook, number = with_entry(codebook, entry, self.epsilon)
            codebook = self._reported(_with_value(codebook, number, value))
            total = codebook
        return total

    def _rows(self, requests: Sequence[EditRequest]) -> list[EditRow]:
        return [edit_row(self.lm, request, edited_at_end=True) for request in requests]

    def _empty(self) -> Codebook:
        size_in, size_out = self.lm.layout.intermediate_size, self.lm.layout.hidden_size
        device = self.lm.device
        gate = NearestKey(
            keys=torch.empty(0, size_in, device=device),
            values=torch.empty(0, size_out, device=device),
            radii=torch.empty(0, device=device),
        )
        return Codebook(self.module_name, gate, (), self.lm.fingerprint)

    def _entry(self, request: EditRequest, row: EditRow, value: _Value) -> Entry:
        """What the request adds: its key is the vector that its own prompt asks the gate with."""
        key = value.key
        if decides_alone(self.lm):
            (key,) = last_inputs(self.lm, [request.text], self.module_name)
        return Entry(key, tuple(prediction.token for prediction in row.target))

    def _values(self, rows: Sequence[EditRow]) -> list[_Value]:
        """A value for each row, optimised together; each by itself, whatever the others are."""
        settings = self.hyperparameters
        batch = EditBatch(self.lm, rows, self.layer)
        put_values = _PutValues(batch, self.module_name)
        with torch.no_grad():
            batch.read(put_values.hidden())  # as it is without an edit
        if settings.value == "cold":
            put_values.begin(torch.stack([self._random(row) for row in rows]))
        adam = torch.optim.Adam([put_values.value], lr=settings.lr)
        values_of_rows = [_Value(key) for key in put_values.keys]
        for _ in range(settings.num_steps):
            loss = batch.read(put_values.hidden()).nll  # [rows]
            for value, nll in zip(values_of_rows, loss.tolist(), strict=True):
                value.note({"nll": nll})
            adam.zero_grad()
            loss.nan_to_num().sum().backward()
            adam.step()
        for value, vector in zip(values_of_rows, put_values.value.detach(), strict=True):
            value.vector = vector.clone()
        return values_of_rows

    def _random(self, row: EditRow) -> Tensor:
        """Uniform numbers in [0, 1), from the request alone: the batch has no influence."""
        numbers = np.random.default_rng([self.seed, zlib.crc32(row.record.encode())])
        return torch.from_numpy(numbers.random(self.lm.layout.hidden_size)).to(self.lm.device)


@dataclass
class _Value:
    """What the optimisation found for one request."""

    key: Tensor  # [in]
    vector: Tensor | None = None  # [out]
    losses: list[dict[str, float]] = field(default_factory=list)
    failure: str = ""

    def note(self, losses: dict[str, float]) -> None:
        """Note the terms of an evaluation; a number that is not finite ends the edit."""
        self.losses.append(losses)
        if not self.failure and not all(map(math.isfinite, losses.values())):
            self.failure = f"non-finite loss at step {len(self.losses) - 1}: {losses}"

    @property
    def diagnostics(self) -> dict[str, Any]:
        """What is recorded with the edit."""
        failure = {"failure": self.failure} if self.failure else {}
        return {"steps": len(self.losses), "losses": self.losses, **failure}


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


def _with_value(codebook: Codebook, number: int, value: _Value) -> Codebook:
    """The codebook with a trained value, and the diagnostics of the request that it was trained for."""
    assert value.vector is not None
    values = codebook.gate.values.clone()
    values[number] = value.vector
    gate = replace(codebook.gate, values=values)
    return replace(codebook, gate=gate, diagnostics=value.diagnostics)
