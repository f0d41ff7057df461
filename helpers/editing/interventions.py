"""What an edit does inside one module: add to its output (a delta), or replace it for some prompts (a gate).

Both see tokens only: vectors that enter the module and vectors that leave it. Rows of a batch, owners,
positions and caches are ``running``'s.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor


class Intervention:
    """A change of what one module computes."""

    def tensors(self) -> dict[str, Tensor]:
        """The tensors it consists of, by field name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def other_fields(self) -> dict[str, Any]:
        """What else it consists of, by field name."""
        return {name: value for name, value in vars(self).items() if not isinstance(value, Tensor)}

    def to(self, device: str | torch.device) -> Self:
        """A copy on another device."""
        fields = dict(vars(self))
        for name, tensor in self.tensors().items():
            fields[name] = tensor.to(device)
        return type(self)(**fields)


class Gate(Intervention, ABC):
    """A change of a module's output after those prompts that it recognises.

    It is decided once for each prompt, from what enters the module at the prompt's last token (``reads``),
    or from the mean over the prompt's tokens. So scoring, teacher forcing and generation see one decision,
    and a prompt's neighbours in a batch have no influence.
    """

    reads: ClassVar[Literal["last", "mean"]] = "last"
    # "after": all tokens from the prompt's last one on; "all": those before it as well
    reach: ClassVar[Literal["last", "after", "all"]] = "last"

    @classmethod
    def sees_whole_prompts(cls) -> bool:
        """Whether it reads or changes tokens before a prompt's last one, which no other prompt may share."""
        return cls.reads == "mean" or cls.reach == "all"

    @classmethod
    def query(cls, entering: Tensor) -> Tensor:
        """The vector [in], fp32, that recognises a prompt, from what enters at its tokens [tokens, in]."""
        return entering.float().mean(0) if cls.reads == "mean" else entering[-1].float()

    @abstractmethod
    def decide(self, queries: Tensor) -> Tensor:
        """The entry that recognises each query [n, in], numbered from 0; -1: none does."""

    def nearness(self, queries: Tensor) -> Tensor:
        """How near each query [n, in] is to the nearest entry, higher where it is nearer; in its own unit."""
        return (self.decide(queries) >= 0).float()

    @abstractmethod
    def change(self, entering: Tensor, output: Tensor, entries: Tensor) -> Tensor:
        """The output [n, out] of tokens whose prompts have the ``entries`` [n], none of them -1."""


class Delta(Intervention, ABC):
    """What an edit adds to one matrix W [out, in], and perhaps to its module's ``bias`` [out]."""

    bias: Tensor | None = None

    @abstractmethod
    def dense(self) -> Tensor:
        """The delta as a full matrix [out, in]."""

    @abstractmethod
    def scaled(self, factor: float) -> Self:
        """The delta times a number, its bias as well."""

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in) of the matrix it is added to."""
        left, right, *_ = self.tensors().values()
        return left.shape[0], right.shape[0]

    def contribution(self, inputs: Tensor) -> Tensor:
        """Contribution [..., out] to the output for ``inputs`` [..., in]."""
        return inputs @ self.dense().T

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

    @property
    def dtype(self) -> torch.dtype:
        """In which contributions are computed."""
        return next(t.dtype for t in self.tensors().values() if t.is_floating_point())


@dataclass(frozen=True)
class LowRank(Delta):
    """left @ right.T with left [out, rank] and right [in, rank]: ROME, MEMIT, AlphaEdit, MEND, KN."""

    left: Tensor
    right: Tensor

    def __post_init__(self) -> None:
        # As a file has them: on some processors the last bits of a product depend on how factors lie.
        object.__setattr__(self, "left", self.left.contiguous())
        object.__setattr__(self, "right", self.right.contiguous())

    def dense(self) -> Tensor:
        """The product."""
        return self.left @ self.right.T

    def scaled(self, factor: float) -> LowRank:
        """The left factor times the number."""
        return LowRank(factor * self.left, self.right)

    def contribution(self, inputs: Tensor) -> Tensor:
        """(inputs @ right) @ left.T: never forms the matrix."""
        return (inputs @ self.right) @ self.left.T

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

    def scaled(self, factor: float) -> Masked:
        """The left factor times the number; the mask stays."""
        return Masked(factor * self.left, self.right, self.mask)


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

    def scaled(self, factor: float) -> Dense:
        """Matrix and bias times the number."""
        bias = None if self.bias is None else factor * self.bias
        return Dense(factor * self.matrix, bias)

    def contribution(self, inputs: Tensor) -> Tensor:
        """inputs @ matrix.T, plus the bias."""
        product = inputs @ self.matrix.T
        return product if self.bias is None else product + self.bias
