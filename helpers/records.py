"""Files of records: how they are read, what is wrong with some of them, what is left."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import yaml

from helpers import UserError

SLOT = " _"  # the end of a sentence whose answer is asked for
Record = TypeVar("Record")
Other = TypeVar("Other")


def read_json(text: str, where: str) -> Any:
    """The value of a JSON text; ``where`` names the file, and the line where it has many.

    Raises:
        UserError: it is no JSON.
    """
    try:
        return json.loads(text)
    except ValueError as problem:
        raise UserError(
            f"{where}: not JSON ({problem}); mend it, or fetch it again if it was cut off"
        ) from problem


class _Loader(yaml.SafeLoader):
    """Plain values only, and every key of a mapping once, besides what it merges from another."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} stands twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return node


def load_yaml(text: str) -> Any:
    """The value of a YAML text.

    Raises:
        yaml.YAMLError: not YAML, a key that stands twice, or a value that is no plain one.
    """
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def compared(name: str) -> str:
    """A name as people compare it with others: without case, Unicode form and outer blanks."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).strip()


@dataclass(frozen=True)
class Usable(Generic[Record]):
    """The records of a file that can be used.

    Attributes:
        records: by their place in the file.
        wrong: what is wrong with each of the others, by its place.
    """

    records: Mapping[int, Record]
    wrong: Mapping[int, str] = field(default_factory=dict)

    def through(self, read: Callable[[int, Record], Other]) -> Usable[Other]:
        """What ``read`` makes of each record and its place; those it raises a ValueError for are wrong."""
        made, wrong = {}, dict(self.wrong)
        for place, record in self.records.items():
            try:
                made[place] = read(place, record)
            except ValueError as error:
                wrong[place] = str(error)
        return Usable(made, wrong)

    def only(self, places: Iterable[int]) -> Usable[Record]:
        """Those of these places, in their order."""
        chosen = list(places)
        records = {place: self.records[place] for place in chosen if place in self.records}
        return Usable(records, {p: self.wrong[p] for p in chosen if p in self.wrong})

    def checked(self, *, skip_bad: bool = False) -> Usable[Record]:
        """Itself, if nothing is wrong, or if what is wrong may be left out and something remains.

        Raises:
            UserError: with what is wrong.
        """
        if not self.wrong or (skip_bad and self.records):
            return self
        wrong = [self.wrong[place] for place in sorted(self.wrong)]
        more = f"; and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        remedy = (
            "no record is left"
            if skip_bad
            else "nothing was edited yet; mend them, or leave them out with skip_bad_records: true"
            " (notebooks 03 to 06)"
        )
        raise UserError(f"{'; '.join(wrong[:5])}{more}: {remedy}")


def skipped_words(count: int) -> str:
    """What a caption says of records that were left out; nothing where none was."""
    return f" ({count} skipped)" if count else ""


class Numbered(Protocol):
    """A record or an edit."""

    @property
    def case_id(self) -> int:
        """Its number."""


Item = TypeVar("Item", bound=Numbered)


def by_case_id(items: Iterable[Item], case_id: int) -> Item:
    """The item with this number.

    Raises:
        UserError: there is none; the message names those there are.
    """
    numbered = {item.case_id: item for item in items}
    if case_id not in numbered:
        first = ", ".join(map(str, sorted(numbered)[:5]))
        more = f", … {max(numbered)}" if len(numbered) > 5 else ""
        raise UserError(f"no case_id {case_id}; there are {first}{more}")
    return numbered[case_id]


def without_slot(cloze: str) -> str:
    """The prompt a causal model reads: the sentence without its trailing slot.

    Raises:
        UserError: the sentence does not end in the slot.
    """
    if not cloze.endswith(SLOT) or not cloze.removesuffix(SLOT).strip():
        raise UserError(
            f"sentence {cloze!r} has no answer slot: it must be text that ends in {SLOT!r}"
        )
    return cloze.removesuffix(SLOT).rstrip()
