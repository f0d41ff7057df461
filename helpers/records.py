"""What all benchmarks' records have in common: a number, and an error that says what is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar


class RecordError(ValueError):
    """A benchmark file or record that cannot be used; names the file, the record and a remedy."""


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
