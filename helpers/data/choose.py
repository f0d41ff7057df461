"""Picking one record by its number, with a sentence where there is none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar


class Numbered(Protocol):
    """A record or an edit."""

    @property
    def case_id(self) -> int:
        """Its number."""


Item = TypeVar("Item", bound=Numbered)


def by_case_id(items: Iterable[Item], case_id: int) -> Item:
    """The item with this number.

    Raises:
        ValueError: there is none; the message names those there are.
    """
    numbered = {item.case_id: item for item in items}
    if case_id not in numbered:
        first = ", ".join(map(str, sorted(numbered)[:5]))
        more = f", … {max(numbered)}" if len(numbered) > 5 else ""
        raise ValueError(f"no case_id {case_id}; there are {first}{more}")
    return numbered[case_id]
