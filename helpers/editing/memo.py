"""What several editors of one run need, found once: second moments, optimised vectors, updates."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

Item = TypeVar("Item", bound=Hashable)
Value = TypeVar("Value")


@dataclass
class Memory:
    """Values by the item they belong to and by ``how``, all else that they depend on."""

    _kept: dict[tuple[str, Hashable], Any] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self._kept)

    def get(
        self, how: str, items: Sequence[Item], make: Callable[[list[Item]], Iterable[Value]]
    ) -> list[Value]:
        """One value per item; ``make`` finds those that are not there yet."""
        missing = [item for item in dict.fromkeys(items) if (how, item) not in self._kept]
        for item, value in zip(missing, make(missing) if missing else (), strict=True):
            self._kept[how, item] = value
        return [self._kept[how, item] for item in items]
