"""An edit as a value: which matrices change, by what, and how the editor got there.

``overlay`` runs each row of a batch under its own update: a hook on every edited module adds the row's
contribution to the output, so no weight is written. ``write`` and ``apply`` write the weights.
"""

from __future__ import annotations

import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from helpers import UserError
from helpers.kept import read_kept
from helpers.models import LanguageModel
from helpers.models.hooks import OnOutput, output_hooks
from helpers.models.state import in_own_state
from helpers.paths import written_whole

# Of weights that can be added to. Eight bits or fewer are codes of a quantised model, float8's too: what
# they mean depends on scales that are kept elsewhere.
WRITABLE = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
PLAIN = (Tensor, nn.Parameter)  # other classes, such as a quantised tensor's, encode their numbers


class UpdateError(UserError):
    """An update that does not belong to the model or file it is used with."""


class Delta(ABC):
    """What an edit adds to one matrix W [out, in], and perhaps to its module's ``bias`` [out]."""

    bias: Tensor | None = None

    @abstractmethod
    def dense(self) -> Tensor:
        """The delta as a full matrix [out, in]."""

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in) of the matrix it is added to."""
        left, right, *_ = self.tensors().values()
        return left.shape[0], right.shape[0]

    def rows(self, x: Tensor) -> Tensor:
        """Contribution [..., out] to the output for inputs ``x`` [..., in]."""
        return x @ self.dense().T

    def norm(self) -> float:
        """Frobenius norm."""
        return float(self.dense().norm())

    def plus(self, other: Delta) -> Delta:
        """The sum of two deltas of one matrix, in factors as long as these are the smaller."""
        if isinstance(self, LowRank) and isinstance(other, LowRank):
            left = torch.cat([self.left, other.left], dim=1)
            right = torch.cat([self.right, other.right], dim=1)
            if left.numel() + right.numel() < self.shape[0] * self.shape[1]:
                return LowRank(left, right)
        biases = [delta.bias for delta in (self, other) if delta.bias is not None]
        bias = torch.stack(biases).sum(0) if biases else None
        return Dense(self.dense() + other.dense(), bias)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors it consists of, by field name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    @property
    def dtype(self) -> torch.dtype:
        """In which contributions are computed."""
        return next(t.dtype for t in self.tensors().values() if t.is_floating_point())

    def to(self, device: str | torch.device) -> Self:
        """A copy on another device."""
        return type(self)(**{name: tensor.to(device) for name, tensor in self.tensors().items()})


@dataclass(frozen=True)
class LowRank(Delta):
    """left @ right.T with left [out, rank] and right [in, rank]: ROME, MEMIT, AlphaEdit, MEND, KN."""

    left: Tensor
    right: Tensor

    def dense(self) -> Tensor:
        """The product."""
        return self.left @ self.right.T

    def rows(self, x: Tensor) -> Tensor:
        """(x @ right) @ left.T: never forms the matrix."""
        return (x @ self.right) @ self.left.T

    def norm(self) -> float:
        """Frobenius norm from the two Gram matrices."""
        squared = ((self.left.T @ self.left) * (self.right.T @ self.right)).sum()
        return float(squared.clamp(min=0).sqrt())


@dataclass(frozen=True)
class Masked(Delta):
    """A low-rank matrix with entries zeroed by a mask, bit-packed along the input: RECT."""

    left: Tensor
    right: Tensor
    mask: Tensor  # uint8 [out, ceil(in / 8)], most significant bit first

    @classmethod
    def from_mask(cls, base: LowRank, keep: Tensor) -> Masked:
        """Keep the entries of ``base`` where the boolean ``keep`` [out, in] is true."""
        packed = torch.from_numpy(np.packbits(keep.cpu().numpy(), axis=1))
        return cls(base.left, base.right, packed.to(keep.device))

    def dense(self) -> Tensor:
        """The masked product."""
        shifts = torch.arange(7, -1, -1, device=self.mask.device, dtype=torch.uint8)
        bits = (self.mask[:, :, None] >> shifts) & 1
        return (self.left @ self.right.T) * bits.bool().flatten(1)[:, : self.shape[1]]


@dataclass(frozen=True)
class Dense(Delta):
    """A full matrix [out, in] and, where the module's bias is trained too, a bias [out]: FT."""

    matrix: Tensor
    bias: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """The matrix's."""
        return self.matrix.shape[0], self.matrix.shape[1]

    def dense(self) -> Tensor:
        """The matrix itself."""
        return self.matrix

    def rows(self, x: Tensor) -> Tensor:
        """x @ matrix.T, plus the bias."""
        product = x @ self.matrix.T
        return product if self.bias is None else product + self.bias


@dataclass(frozen=True)
class Update(Mapping[str, Delta]):
    """Deltas by module name, with what the editor recorded: steps, loss terms, norms, flags."""

    deltas: Mapping[str, Delta]
    diagnostics: Mapping[str, Any] = field(default_factory=dict)  # ``failure``: why it was given up

    def __getitem__(self, module: str) -> Delta:
        return self.deltas[module]

    def __iter__(self) -> Iterator[str]:
        return iter(self.deltas)

    def __len__(self) -> int:
        return len(self.deltas)

    @property
    def failed(self) -> bool:
        """Whether the editor gave this edit up."""
        return "failure" in self.diagnostics

    def plus(self, later: Update) -> Update:
        """Both together, what two sequential edits leave; the diagnostics are the later one's."""
        added = {
            name: self[name].plus(delta) if name in self else delta for name, delta in later.items()
        }
        return Update({**self.deltas, **added}, later.diagnostics)

    def to(self, device: str | torch.device) -> Update:
        """A copy on another device."""
        return Update({name: delta.to(device) for name, delta in self.items()}, self.diagnostics)

    def save(self, path: Path | str) -> None:
        """Write deltas and diagnostics to one safetensors file."""
        tensors = {  # cloned, since a file cannot hold tensors that share memory (KN's one vector)
            f"{module}|{name}": tensor.contiguous().clone()
            for module, delta in self.items()
            for name, tensor in delta.tensors().items()
        }
        kinds = {name: [type(delta).__name__] for name, delta in self.items()}
        metadata = {"deltas": json.dumps(kinds), "diagnostics": json.dumps(dict(self.diagnostics))}
        with written_whole(Path(path)) as scratch:
            save_file(tensors, scratch, metadata)

    @classmethod
    def load(cls, path: Path | str) -> Update:
        """Read what ``save`` wrote; a ``UserError`` names a file that it did not, or a damaged one."""
        return read_kept(Path(path), cls._read)

    @classmethod
    def _read(cls, path: Path) -> Update:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            if "deltas" not in metadata:
                raise UpdateError(f"{path} holds no update: write it with Update.save")
            tensors: dict[str, dict[str, Tensor]] = {}
            for key in file.keys():  # noqa: SIM118 - safe_open is no mapping
                module, _, name = key.rpartition("|")
                tensors.setdefault(module, {})[name] = file.get_tensor(key)
        kinds: dict[str, type[Delta]] = {k.__name__: k for k in (LowRank, Masked, Dense)}
        named = json.loads(metadata["deltas"]).items()
        deltas = {module: kinds[kind](**tensors[module]) for module, (kind, *_) in named}
        return cls(deltas, json.loads(metadata["diagnostics"]))


@in_own_state
def write(lm: LanguageModel, update: Update) -> None:
    """Add an update to the model's weights for good, in fp32 or finer, rounded to their type once.

    An ``UpdateError`` where one of them cannot be written (``check_writable``); no weight is changed then.
    """
    check_writable(lm, update)
    with torch.no_grad():
        for name, delta in update.items():
            weight = lm.weight(name)
            if not bool(_changed_weight(weight, delta).isfinite().all()):
                raise UpdateError(
                    f"{name}: the update makes infinite or undefined numbers in {weight.dtype}, so"
                    " nothing was written: make the edit again, or load the model in float32"
                )
        for name, delta in update.items():
            weight = lm.weight(name)
            if weight.dtype.itemsize == 2:
                relative = delta.norm() / lm.weight_norm(name)
                if relative < 1e-2:  # rounding takes the change
                    warnings.warn(
                        f"{name}: a change of {relative:.1e} of the weight's norm is largely lost in"
                        f" {weight.dtype}; write it into float32 weights, or score under an overlay",
                        stacklevel=2,
                    )
            weight.copy_(_changed_weight(weight, delta))
            if delta.bias is not None:
                bias = lm.module(name).get_parameter("bias")
                bias.add_(delta.bias.to(weight))


def _changed_weight(weight: Tensor, delta: Delta) -> Tensor:
    exact = torch.promote_types(weight.dtype, torch.float32)
    changed = weight.to(exact) + delta.dense().to(weight.device, exact)
    return changed.to(weight.dtype)


@contextmanager
def apply(lm: LanguageModel, update: Update) -> Iterator[LanguageModel]:
    """Write an update into the weights for the duration of a block, then restore them bit-exactly."""
    check_writable(lm, update)
    saved = [(p, p.detach().clone()) for name in update for p in lm.module(name).parameters()]
    try:
        write(lm, update)
        yield lm
    finally:
        with torch.no_grad():
            for parameter, value in saved:
                parameter.copy_(value)


@contextmanager
def overlay(
    lm: LanguageModel, updates: Sequence[Update], owners: Tensor | Sequence[int]
) -> Iterator[None]:
    """Run forward passes inside the block with row i under ``updates[owners[i]]``; -1: unedited."""
    owners = torch.as_tensor(owners)
    used = {int(i): updates[int(i)] for i in owners.unique() if i >= 0}
    for update in used.values():
        check_update(lm, update)
    hooks = {}
    for name in sorted({name for update in used.values() for name in update}):
        deltas = {i: update[name] for i, update in used.items() if name in update}
        hooks[name] = _adding_by_row(deltas, owners.tolist(), lm.device)
    with output_hooks(lm, hooks):
        yield


@contextmanager
def overlay_all(lm: LanguageModel, update: Update) -> Iterator[None]:
    """The same with every row under ``update``; an ``overlay`` inside the block comes on top of it."""
    check_update(lm, update)

    def adding(delta: Delta) -> OnOutput:
        return lambda x, output: output + delta.rows(x.to(delta.dtype)).to(output.dtype)

    moved = update.to(lm.device)
    with output_hooks(lm, {name: adding(delta) for name, delta in moved.items()}):
        yield


def _adding_by_row(
    deltas: Mapping[int, Delta], owners: Sequence[int], device: torch.device
) -> OnOutput:
    """Each row's contribution in its delta's precision; rank-one deltas share one batched product."""

    def rows_of(chosen: Collection[int]) -> Tensor:
        rows = [row for row, owner in enumerate(owners) if owner in chosen]
        return torch.tensor(rows, dtype=torch.long, device=device)

    rank_one = {
        owner: delta
        for owner, delta in deltas.items()
        if isinstance(delta, LowRank) and delta.left.shape[1] == 1
    }
    other_deltas = [
        (rows_of({owner}), delta.to(device))
        for owner, delta in deltas.items()
        if owner not in rank_one
    ]
    rank_one_rows = rows_of(rank_one)
    if rank_one:
        delta_of_row = [rank_one[owner] for owner in owners if owner in rank_one]
        left = torch.stack([delta.left[:, 0] for delta in delta_of_row]).to(device)  # [rows, out]
        right = torch.stack([delta.right[:, 0] for delta in delta_of_row]).to(device)  # [rows, in]

    def on_output(x: Tensor, output: Tensor) -> Tensor:
        if x.shape[0] != len(owners):
            raise ValueError(f"overlay has {len(owners)} owners, the batch has {x.shape[0]} rows")
        output = output.clone()
        if rank_one:
            strength = torch.einsum("btf,bf->bt", x[rank_one_rows].to(right.dtype), right)
            added = strength[:, :, None] * left[:, None, :]  # [rows, tokens, out]
            output[rank_one_rows] += added.to(output.dtype)
        for rows, delta in other_deltas:
            output[rows] += delta.rows(x[rows].to(delta.dtype)).to(output.dtype)
        return output

    return on_output


def check_writable(lm: LanguageModel, update: Update) -> None:
    """Raise ``UpdateError`` for weights that an update cannot be added to, besides ``check_update``'s.

    They are parameters of ``PLAIN`` tensors that hold floating-point numbers (``WRITABLE``) in memory. An
    ``overlay`` adds to a module's outputs and needs none of this.
    """
    modules = dict(lm.network.named_modules())
    for name, delta in update.items():
        if name not in modules:
            continue  # check_update reports it
        stored = dict(modules[name].named_parameters(recurse=False))
        faults = {"weight": _why_not_writable(stored.get("weight"))}
        if delta.bias is not None and "bias" in stored:
            faults["bias"] = _why_not_writable(stored["bias"])
        for parameter, fault in faults.items():
            if fault:
                raise UpdateError(
                    f"{name}.{parameter} {fault}, so nothing was written: load the model in floating"
                    " point, or score under an overlay"
                )
    check_update(lm, update)


def _why_not_writable(stored: Tensor | None) -> str:
    if stored is None:
        return "is no parameter of its module"
    if stored.dtype not in WRITABLE:
        return f"holds {str(stored.dtype).removeprefix('torch.')}, the codes of a quantised model"
    if type(stored) not in PLAIN:
        return f"is a {type(stored).__name__}, whose numbers encode others"
    return "is not in memory (device meta)" if stored.is_meta else ""


def check_update(lm: LanguageModel, update: Update) -> None:
    """Raise ``UpdateError`` for a module, bias or shape that this model does not have."""
    for name, delta in update.items():
        try:
            fits = lm.weight(name).shape == delta.shape
            if delta.bias is not None:
                fits &= lm.module(name).get_parameter("bias").shape == delta.bias.shape
        except AttributeError:
            fits = False
        if not fits:
            raise UpdateError(
                f"the update changes {name} of shape {delta.shape}, which {lm.name} does"
                " not have: it was made for another model"
            )
