"""What is kept of a subtask's scores: never the scores themselves.

Per sentence two numbers (spread and mean magnitude) and the located sets as bits; per unit the sum
of scores and how often it was located. Memory does not grow with sentences times units: above
``KEPT_UNITS`` only the bits of a fixed random sample of the units are kept. The sample estimates
similarities for the permutation null only. The published similarities come from whole sets in a
second pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from helpers.kept import kept_whole
from helpers.klob.unit_sets import Sets, Units, located, located_count, located_units

KEPT_UNITS = 1 << 20
ROW_UNITS = 1 << 10  # scores of coarser views than this are kept as they are (layers)
_BLOCK = 1 << 16


@dataclass
class Summary:
    """Streamed summary of the scores of one locator at one granularity on one subtask.

    Attributes:
        units: number of units.
        shares: located shares k; empty where only the spread matters (KLoB-u).
        deviations: standard deviation over units, per sentence.
        magnitudes: mean |score| over units, per sentence.
        rows: the scores themselves where units are few, per sentence.
        bits: located sets of the kept units, packed [shares, bytes], per sentence.
        sums: sum of scores per unit [units].
        counts: sentences that locate each unit [shares, units].
    """

    units: int
    shares: tuple[float, ...]
    deviations: list[float] = field(default_factory=list)
    magnitudes: list[float] = field(default_factory=list)
    rows: list[NDArray[np.float32]] = field(default_factory=list)
    bits: list[NDArray[np.uint8]] = field(default_factory=list)
    sums: NDArray[np.float64] = field(init=False)
    counts: NDArray[np.int32] = field(init=False)

    def __post_init__(self) -> None:
        self.sums = np.zeros(self.units if self.shares else 0)
        self.counts = np.zeros((len(self.shares), self.units), dtype=np.int32)

    def __len__(self) -> int:
        return len(self.deviations)

    @property
    def complete(self) -> bool:
        """Whether the kept bits are whole located sets."""
        return self.units <= KEPT_UNITS

    @cached_property
    def kept(self) -> NDArray[np.int64] | slice:
        """Units whose bits are kept."""
        if self.complete:
            return slice(None)
        generator = np.random.default_rng(0)
        return np.sort(generator.choice(self.units, KEPT_UNITS, replace=False))

    def add(self, scores: NDArray[np.float32], *, keep: bool = True) -> None:
        """Take in one sentence's scores [units].

        Bits that are a sample anyway, for the null, are left out unless ``keep``.
        """
        deviation, magnitude = _spread(scores)
        self.deviations.append(deviation)
        self.magnitudes.append(magnitude)
        if self.units <= ROW_UNITS:
            self.rows.append(scores)
        if self.shares:
            self.sums += scores
            bits = []
            for counts, units in zip(self.counts, located_units(scores, self.shares), strict=True):
                counts[units] += 1
                if not (self.complete or keep):
                    continue
                inside = np.zeros(self.units, dtype=bool)
                inside[units] = True
                bits.append(np.packbits(inside[self.kept]))
            if bits:
                self.bits.append(np.stack(bits))

    def merge(self, other: Summary) -> None:
        """Append another summary's sentences."""
        for name in ("deviations", "magnitudes", "rows", "bits"):
            getattr(self, name).extend(getattr(other, name))
        self.sums += other.sums
        self.counts += other.counts

    def located_mean(self) -> Sets:
        """x_all at each share: the top units of the mean scores [shares, units]."""
        return located(self.sums / len(self), self.shares)

    def sets(self, share: int, sentences: Sequence[int] | None = None) -> Sets:
        """Kept bits of located sets at one share (by index), [sentences, kept units]."""
        chosen = range(len(self.bits)) if sentences is None else sentences
        packed = np.stack([self.bits[i][share] for i in chosen])
        return np.unpackbits(packed, axis=1, count=min(self.units, KEPT_UNITS)).astype(bool)

    def located(self, sentence: int) -> list[Units]:
        """One sentence's located units at each share, where all bits are kept."""
        rows = np.unpackbits(self.bits[sentence], axis=1, count=self.units)
        return [np.flatnonzero(row) for row in rows]

    def set_size(self, share: int) -> float:
        """Size of a located set among the kept units: exact, or expected in the sample."""
        whole = located_count(self.units, self.shares[share])
        return whole * min(1.0, KEPT_UNITS / self.units)

    def save(self, path: Path) -> None:
        """Keep as npz, whole or not at all."""
        with kept_whole(path) as scratch, scratch.open("wb") as stream:
            np.savez(
                stream,
                shares=np.array(self.shares),
                units=self.units,
                deviations=self.deviations,
                magnitudes=self.magnitudes,
                rows=np.array(self.rows, dtype=np.float32),
                bits=np.array(self.bits, dtype=np.uint8),
                sums=self.sums,
                counts=self.counts,
            )

    @classmethod
    def read(cls, path: Path) -> Summary:
        """Read what ``save`` wrote (see ``helpers.kept.sound``)."""
        with np.load(path) as stored:
            summary = cls(
                int(stored["units"]),
                tuple(stored["shares"].tolist()),
                stored["deviations"].tolist(),
                stored["magnitudes"].tolist(),
                list(stored["rows"]),
                list(stored["bits"]),
            )
            summary.sums, summary.counts = stored["sums"], stored["counts"]
        return summary


def _spread(scores: NDArray[np.float32]) -> tuple[float, float]:
    """Standard deviation and mean magnitude in fp64, block by block."""
    blocks = [scores[start : start + _BLOCK] for start in range(0, scores.size, _BLOCK)]
    total = magnitude = squares = 0.0
    for block in blocks:
        wide = block.astype(np.float64)
        total += float(wide.sum())
        magnitude += float(np.abs(wide, out=wide).sum())
    for block in blocks:
        centred = block.astype(np.float64) - total / scores.size
        squares += float(centred @ centred)
    return (squares / scores.size) ** 0.5, magnitude / scores.size
