"""Optimise a vector once for all editors that would find the same: MEMIT, AlphaEdit, RECT upon MEMIT.

The optimised vector does not depend on how an update takes it up. Editors of one model whose
settings agree up to that point therefore share vectors found on the unedited model, which are kept
for as long as the editors live.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from helpers.editing.request import EditRequest
from helpers.editing.vector import Vector


@dataclass
class KeptVectors:
    """Vectors by what they depend on: model and settings, as text, and the request."""

    _kept: dict[tuple[str, EditRequest], Vector] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self._kept)

    def get(
        self,
        settings: str,
        requests: Sequence[EditRequest],
        optimise: Callable[[Sequence[EditRequest]], list[Vector]],
    ) -> list[Vector]:
        """One vector per request; ``optimise`` finds those that are not there yet."""
        missing = [r for r in dict.fromkeys(requests) if (settings, r) not in self._kept]
        for request, vector in zip(missing, optimise(missing) if missing else [], strict=True):
            self._kept[settings, request] = vector
        return [self._kept[settings, request] for request in requests]
