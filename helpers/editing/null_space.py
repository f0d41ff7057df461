"""The null space of a second moment: directions in which hardly any key lies."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from helpers.kept import kept

LARGE = 4096  # rows of a matrix whose decomposition is announced, and kept on the disk
_TRIAL = 512  # rows of the matrix that an estimate is made with


@dataclass(frozen=True)
class Directions:
    """Eigenvalues [f], ascending, and eigenvectors [f, f] of a second moment, in fp64."""

    values: Tensor
    vectors: Tensor

    @classmethod
    def of(cls, second_moment: Tensor, source: Path | None = None) -> Directions:
        """Decompose a second moment [f, f]; a large one's are kept beside ``source``, its file,
        whose name tells its content."""
        if source is None or len(second_moment) < LARGE:
            return cls(*_decomposed(second_moment))

        def make(path: Path) -> None:
            values, vectors = _decomposed(second_moment)
            tensors = {"values": values.cpu(), "vectors": vectors.cpu().contiguous()}
            save_file(tensors, path)

        def read(path: Path) -> Directions:
            with safe_open(path, "pt", device=str(second_moment.device)) as file:
                return cls(file.get_tensor("values"), file.get_tensor("vectors"))

        return kept(source.with_name(f"{source.stem}-directions.safetensors"), read, make)

    def middle(self) -> float:
        """The median second moment of the directions in which there is any."""
        there = self.values[self.values > self.values[-1] * len(self.values) * 2**-52]
        return float(there.median())


def _decomposed(second_moment: Tensor) -> tuple[Tensor, Tensor]:
    rows = len(second_moment)
    if rows >= LARGE:
        trial = second_moment[:_TRIAL, :_TRIAL].double()
        seconds = _seconds(lambda: torch.linalg.eigh(trial)[0].cpu()) * (rows / _TRIAL) ** 3
        print(f"decomposing {rows:,} x {rows:,} in fp64, once: at most about {seconds:.0f} s")
    values, vectors = torch.linalg.eigh(second_moment.double())
    return values, vectors


def _seconds(call: Callable[[], object]) -> float:
    """Of a second run: the first loads the library."""
    call()
    began = time.monotonic()
    call()
    return time.monotonic() - began


@dataclass(frozen=True)
class NullSpace:
    """The orthogonal complement of ``occupied`` [f, r], orthonormal columns in fp64."""

    occupied: Tensor

    @classmethod
    def of(cls, second_moment: Tensor | Directions, threshold: float) -> NullSpace:
        """Directions in which the second moment [f, f] is below an absolute threshold.

        Raises:
            ValueError: no direction is below it.
        """
        if isinstance(second_moment, Tensor):
            second_moment = Directions.of(second_moment)
        found = second_moment
        occupied = found.vectors[:, found.values >= threshold]
        if occupied.shape[0] == occupied.shape[1]:
            raise ValueError(
                f"no direction has a second moment below {threshold} (the smallest is"
                f" {float(found.values[0]):.3g}): raise nullspace_threshold for this model"
            )
        return cls(occupied)

    @property
    def dimension(self) -> int:
        """Number of free directions."""
        return self.occupied.shape[0] - self.occupied.shape[1]

    def project(self, keys: Tensor) -> Tensor:
        """P keys for keys [f, n]."""
        return keys - self.occupied @ (self.occupied.T @ keys)
