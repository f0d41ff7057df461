"""An edit as a value: which matrices change, by what, and how the editor got there."""

from __future__ import annotations

import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from helpers import UserError
from helpers.kept import read_kept
from helpers.models.language_model import LanguageModel
from helpers.paths import written_whole

SMALLEST_IN_HALF = 1e-2  # of a weight's norm; below it rounding takes the change


class UpdateError(UserError):
    """Raised when an update does not belong to the model or file it is used with."""


class Delta(ABC):
    """What an edit adds to one matrix W [out, in], and perhaps to its module's ``bias`` [out]."""

    bias: Tensor | None = None

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(out, in) of the matrix it is added to."""

    @abstractmethod
    def dense(self) -> Tensor:
        """The delta as a full matrix [out, in]."""

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
        """Its floating-point type, in which contributions are computed."""
        return next(t.dtype for t in self.tensors().values() if t.is_floating_point())

    def to(self, device: str | torch.device) -> Self:
        """A copy on another device."""
        return type(self)(**{name: tensor.to(device) for name, tensor in self.tensors().items()})


@dataclass(frozen=True)
class LowRank(Delta):
    """left @ right.T with left [out, rank] and right [in, rank]: ROME, MEMIT, AlphaEdit, MEND, KN."""

    left: Tensor
    right: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in)."""
        return self.left.shape[0], self.right.shape[0]

    @property
    def rank(self) -> int:
        """Number of columns of both factors (an upper bound of the true rank)."""
        return int(self.left.shape[1])

    def dense(self) -> Tensor:
        """left @ right.T."""
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
    """A low-rank matrix with entries zeroed by a mask, bit-packed along the input: RECT.

    ``mask`` is uint8 [out, ceil(in / 8)], most significant bit first.
    """

    left: Tensor
    right: Tensor
    mask: Tensor

    @classmethod
    def from_mask(cls, base: LowRank, keep: Tensor) -> Masked:
        """Keep the entries of ``base`` where the boolean ``keep`` [out, in] is true."""
        padded = torch.nn.functional.pad(keep, (0, -keep.shape[1] % 8))
        weights = 2 ** torch.arange(7, -1, -1, device=keep.device)
        bits = padded.view(keep.shape[0], -1, 8).long() * weights
        return cls(base.left, base.right, bits.sum(-1).to(torch.uint8))

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in)."""
        return self.left.shape[0], self.right.shape[0]

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
        """(out, in)."""
        return int(self.matrix.shape[0]), int(self.matrix.shape[1])

    def dense(self) -> Tensor:
        """The matrix itself."""
        return self.matrix

    def rows(self, x: Tensor) -> Tensor:
        """x @ matrix.T, plus the bias."""
        product = x @ self.matrix.T
        return product if self.bias is None else product + self.bias


_KINDS: dict[str, type[Delta]] = {kind.__name__: kind for kind in (LowRank, Masked, Dense)}


@dataclass(frozen=True)
class Update(Mapping[str, Delta]):
    """Mapping of module name to delta, with what the editor recorded: steps, loss terms, norms, flags.

    A ``failure`` in ``diagnostics`` states why an edit was given up; its update is then empty.
    """

    deltas: Mapping[str, Delta]
    diagnostics: Mapping[str, Any] = field(default_factory=dict)

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

    def norm(self) -> float:
        """Frobenius norm over all edited matrices together."""
        return float(sum(delta.norm() ** 2 for delta in self.values()) ** 0.5)

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
        """Read an update written by ``save``.

        Raises:
            UserError: the file was not written by ``save``, or is damaged.
        """
        return read_kept(Path(path), cls._read)

    @classmethod
    def _read(cls, path: Path) -> Update:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            if "deltas" not in metadata:
                raise UpdateError(f"{path} holds no update: write it with Update.save")
            tensors: dict[str, dict[str, torch.Tensor]] = {}
            for key in file.keys():  # noqa: SIM118 - safe_open is no mapping
                module, _, name = key.rpartition("|")
                tensors.setdefault(module, {})[name] = file.get_tensor(key)
        kinds = json.loads(metadata["deltas"])
        deltas = {module: _KINDS[kind](**tensors[module]) for module, (kind, *_) in kinds.items()}
        return cls(deltas, json.loads(metadata["diagnostics"]))


def write(language_model: LanguageModel, update: Update) -> None:
    """Add an update to the model's weights for good, in fp32, rounded to the weights' type once.

    Half-precision weights cannot hold small changes; scores under an overlay are exact.

    Raises:
        UpdateError: a module is missing or has another shape.
    """
    check_update(language_model, update)
    with torch.no_grad():
        for name, delta in update.items():
            weight = language_model.weight(name)
            changed = weight.float() + delta.dense().to(weight.device)
            if weight.dtype.itemsize == 2:
                relative = delta.norm() / language_model.weight_norm(name)
                if relative < SMALLEST_IN_HALF:
                    warnings.warn(
                        f"{name}: a change of {relative:.1e} of the weight's norm is largely lost in"
                        f" {weight.dtype}; write it into float32 weights, or score under an overlay",
                        stacklevel=2,
                    )
            weight.copy_(changed)
            if delta.bias is not None:
                bias = language_model.module(name).get_parameter("bias")
                bias.add_(delta.bias.to(weight))
    language_model.forget()


@contextmanager
def apply(language_model: LanguageModel, update: Update) -> Iterator[LanguageModel]:
    """Write an update into the weights for the duration of a block, then restore them bit-exactly.

    >>> with apply(language_model, update):
    ...     language_model.model(**batch)
    """
    check_update(language_model, update)
    saved = {
        name: {k: p.detach().clone() for k, p in language_model.module(name).named_parameters()}
        for name in update
    }
    try:
        write(language_model, update)
        yield language_model
    finally:
        with torch.no_grad():
            for name, parameters in saved.items():
                for key, parameter in language_model.module(name).named_parameters():
                    parameter.copy_(parameters[key])
        language_model.forget()


def check_update(language_model: LanguageModel, update: Update) -> None:
    """Raise ``UpdateError`` for a module or shape this model does not have, and for codes as weights."""
    for name, delta in update.items():
        try:
            weight = language_model.weight(name)
        except AttributeError:
            weight = torch.empty(0)
        if not weight.is_floating_point() or weight.dtype.itemsize < 2:
            raise UpdateError(
                f"{name} of {language_model.name} holds codes ({weight.dtype}), to which nothing can be"
                " added; load the model with 16 or 32 bits a weight"
            )
        if tuple(weight.shape) != delta.shape:
            raise UpdateError(
                f"the update changes {name} of shape {delta.shape}, which {language_model.name} does"
                " not have: it was made for another model"
            )
