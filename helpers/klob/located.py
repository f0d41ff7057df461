"""Located sets: indices of the units with the highest scores, and what such sets have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Units = NDArray[np.int64]
Numbers = NDArray[np.float64]

SHARES = (0.001, 0.005, 0.01, 0.05)
DEFAULT_SHARE = 0.01
_SAMPLE = 1 << 16  # scores looked at to guess the level of the highest


def located_count(units: int, share: float) -> int:
    """Size of a located set: ``share`` of all units, rounded, at least one.

    Raises:
        ValueError: no units, or a share outside (0, 1].
    """
    if units < 1 or not 0 < share <= 1:
        raise ValueError(f"share must lie in (0, 1] and units be positive, got {share} of {units}")
    return max(1, round(units * share))


def located_units(
    scores: NDArray[np.floating], shares: Sequence[float] = (DEFAULT_SHARE,)
) -> list[Units]:
    """Indices of one sentence's located units at each share, ascending; ties go to lower indices.

    Raises:
        ValueError: a score is not a number.
    """
    if np.isnan(scores.min()):
        raise ValueError(f"{int(np.isnan(scores).sum())} of {scores.size} scores are not numbers")
    counts = [located_count(scores.size, share) for share in shares]
    places = _promising(scores, max(counts))
    values = scores[places]
    sets = []
    for count in counts:
        lowest = np.partition(values, values.size - count)[values.size - count]
        inside = values > lowest
        level = np.flatnonzero(values == lowest)
        inside[level[: count - np.count_nonzero(inside)]] = True
        sets.append(places[inside])
    return sets


def _promising(scores: NDArray[np.floating], count: int) -> Units:
    """Few units, ascending, that surely hold the ``count`` highest scores: a sample tells their level."""
    stride = scores.size // _SAMPLE
    if stride > 1:
        sample = scores[::stride]
        rank = min(sample.size - 1, int(1.2 * count / stride) + 50)
        level = np.partition(sample, sample.size - 1 - rank)[sample.size - 1 - rank]
        places = np.flatnonzero(scores >= level)
        if places.size >= count:
            return places
    return np.arange(scores.size)


def similarity_matrix(sets: Sequence[Units], *, size: float | None = None) -> Numbers:
    """Similarity |x_i ∩ x_j| / |x| of each pair of located sets, [n, n] (KLoB, Appendix A).

    Args:
        sets: located units, as many in each.
        size: denominator where ``sets`` are restricted to a sample of the units: the expected size
            of a set in it. The similarities are then unbiased estimates.

    Raises:
        ValueError: sets of different sizes without a given ``size``.
    """
    sizes = {len(units) for units in sets}
    if size is None and len(sizes) != 1:
        raise ValueError(f"located sets differ in size: {min(sizes)} to {max(sizes)} units")
    inside = np.zeros(1 + max(int(units.max(initial=0)) for units in sets), dtype=bool)
    shared = np.empty((len(sets), len(sets)))
    for row, own in zip(shared, sets, strict=True):
        inside[own] = True
        row[:] = [np.count_nonzero(inside[other]) for other in sets]
        inside[own] = False
    return shared / (size or sizes.pop())
