"""Located sets: the units with the highest scores, and what such sets have in common.

Sets come as sorted indices (``Units``) where units are millions, or as booleans (``Sets``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Sets = NDArray[np.bool_]
Units = NDArray[np.int64]

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

    Args:
        scores: one sentence's scores [units].
        shares: fractions of the units; the sets are nested.

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


def located(scores: NDArray[np.floating], shares: Sequence[float] = (DEFAULT_SHARE,)) -> Sets:
    """``located_units`` as sets, boolean [shares, units]."""
    sets = np.zeros((len(shares), scores.size), dtype=bool)
    for row, units in zip(sets, located_units(scores, shares), strict=True):
        row[units] = True
    return sets


def _promising(scores: NDArray[np.floating], count: int) -> Units:
    """Few units with the ``count`` highest scores surely among them, ascending.

    A sample of the scores tells a level that somewhat more than ``count`` units reach.
    """
    stride = scores.size // _SAMPLE
    if stride > 1:
        sample = scores[::stride]
        rank = min(sample.size - 1, int(1.2 * count / stride) + 50)
        level = np.partition(sample, sample.size - 1 - rank)[sample.size - 1 - rank]
        places = np.flatnonzero(scores >= level)
        if places.size >= count:
            return places
    return np.arange(scores.size)


def shared_units(sets: Sequence[Units], units: int) -> NDArray[np.int64]:
    """How many units each pair of located sets has in common, [n, n].

    Args:
        sets: indices of located units, as from ``located_units``.
        units: number of units in all.
    """
    table = np.empty((len(sets), len(sets)), dtype=np.int64)
    for row, own in zip(table, sets, strict=True):
        inside = np.zeros(units, dtype=bool)
        inside[own] = True
        row[:] = [np.count_nonzero(inside[other]) for other in sets]
    return table
