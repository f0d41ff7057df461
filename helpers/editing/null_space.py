"""The null space of a second moment: directions in which hardly any key lies."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class NullSpace:
    """The orthogonal complement of ``occupied`` [f, r], orthonormal columns in fp64."""

    occupied: Tensor

    @classmethod
    def of(cls, second_moment: Tensor, threshold: float) -> NullSpace:
        """Directions in which the second moment [f, f] is below an absolute threshold.

        Raises:
            ValueError: no direction is below it.
        """
        values, vectors = torch.linalg.eigh(second_moment.double())
        occupied = vectors[:, values >= threshold]
        if occupied.shape[0] == occupied.shape[1]:
            raise ValueError(
                f"no direction has a second moment below {threshold} (the smallest is"
                f" {float(values[0]):.3g}): raise nullspace_threshold for this model"
            )
        return cls(occupied)

    @property
    def dimension(self) -> int:
        """Number of free directions."""
        return self.occupied.shape[0] - self.occupied.shape[1]

    def project(self, keys: Tensor) -> Tensor:
        """P keys for keys [f, n]."""
        return keys - self.occupied @ (self.occupied.T @ keys)
