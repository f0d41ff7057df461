"""What an edit adds to one matrix W [out, in], each in its own structure.

Every delta knows ``shape``, ``norm()`` (Frobenius), ``dense()`` [out, in], ``rows(x)`` (its
contribution [..., out] to the module's output for inputs [..., in]), ``factors()``, ``plus``, ``to``
and ``tensors``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

import torch
from torch import Tensor


class Delta:
    """Common part of all deltas; subclasses are frozen dataclasses."""

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in) of the matrix it is added to."""
        raise TypeError(f"{type(self).__name__} does not say its shape")

    def dense(self) -> Tensor:
        """The delta as a full matrix [out, in]."""
        raise TypeError(f"{type(self).__name__} has no dense form")

    def rows(self, x: Tensor) -> Tensor:
        """Contribution [..., out] to the output for inputs ``x`` [..., in]."""
        return x @ self.dense().T

    def norm(self) -> float:
        """Frobenius norm."""
        return float(self.dense().norm())

    def bias_term(self) -> Tensor | None:
        """What is added to the module's bias [out], if anything."""
        return None

    def factors(self) -> tuple[Tensor, Tensor] | None:
        """left [out, rank] and right [in, rank] with left @ right.T = dense(), where it has them."""
        return None

    def plus(self, other: Delta) -> Delta:
        """The sum of two deltas of one matrix.

        Factors are put side by side as long as they are smaller than the matrix; all else is dense.
        """
        mine, others = self.factors(), other.factors()
        if mine and others:
            left, right = (torch.cat(pair, dim=1) for pair in zip(mine, others, strict=True))
            if left.numel() + right.numel() < self.shape[0] * self.shape[1]:
                return LowRank(left, right)
        terms = [bias for d in (self, other) if (bias := d.bias_term()) is not None]
        bias = torch.stack(terms).sum(0) if terms else None
        return Dense(self.dense() + other.dense(), bias)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors it consists of, by field name."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in named.items() if isinstance(value, Tensor)}

    def settings(self) -> dict[str, Any]:
        """Its other fields, JSON-serialisable."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {name: v for name, v in named.items() if v is not None and not isinstance(v, Tensor)}

    def to(
        self, device: str | torch.device | None = None, dtype: torch.dtype | None = None
    ) -> Self:
        """A copy on another device or in another floating-point type."""
        moved = {
            name: tensor.to(device, dtype if tensor.is_floating_point() else None)
            for name, tensor in self.tensors().items()
        }
        return type(self)(**moved, **self.settings())


@dataclass(frozen=True)
class LowRank(Delta):
    """left @ right.T with left [out, rank] and right [in, rank]: ROME, MEMIT, AlphaEdit, MEND."""

    left: Tensor
    right: Tensor

    def __post_init__(self) -> None:
        if self.left.ndim != 2 or self.right.ndim != 2 or self.left.shape[1] != self.right.shape[1]:
            raise ValueError(
                f"factors {tuple(self.left.shape)} and {tuple(self.right.shape)} differ in rank"
            )

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

    def factors(self) -> tuple[Tensor, Tensor]:
        """The factors themselves."""
        return self.left, self.right

    def norm(self) -> float:
        """Frobenius norm from the two Gram matrices."""
        squared = ((self.left.T @ self.left) * (self.right.T @ self.right)).sum()
        return float(squared.clamp(min=0).sqrt())


@dataclass(frozen=True)
class ColumnSparse(Delta):
    """One vector [out] added to chosen columns of W: knowledge neurons."""

    vector: Tensor
    columns: Tensor
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in)."""
        return self.vector.shape[0], self.width

    def dense(self) -> Tensor:
        """Zero but in the chosen columns."""
        matrix = self.vector.new_zeros(self.shape)
        matrix[:, self.columns] = self.vector[:, None]
        return matrix

    def factors(self) -> tuple[Tensor, Tensor]:
        """Rank one: the vector times the indicator of the columns."""
        chosen = self.vector.new_zeros(self.width, 1)
        chosen[self.columns] = 1
        return self.vector[:, None], chosen

    def rows(self, x: Tensor) -> Tensor:
        """Sum of the chosen inputs times the vector."""
        return x[..., self.columns].sum(-1, keepdim=True) * self.vector


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

    def keep(self) -> Tensor:
        """The mask as booleans [out, in]."""
        shifts = torch.arange(7, -1, -1, device=self.mask.device, dtype=torch.uint8)
        bits = (self.mask[:, :, None] >> shifts) & 1
        return bits.bool().flatten(1)[:, : self.shape[1]]

    def dense(self) -> Tensor:
        """The masked product."""
        return (self.left @ self.right.T) * self.keep()


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

    def bias_term(self) -> Tensor | None:
        """The bias, if trained."""
        return self.bias


DELTAS: dict[str, type[Delta]] = {
    kind.__name__: kind for kind in (LowRank, ColumnSparse, Masked, Dense)
}
