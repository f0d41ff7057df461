"""What all benchmarks' records have in common: a number, what is wrong with some, what is left."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

Record = TypeVar("Record")
Other = TypeVar("Other")


class RecordError(ValueError):
    """A benchmark file or record that cannot be used; names the file, the record and a remedy."""


def read_json(text: str, where: str, *, error: type[RecordError] = RecordError) -> Any:
    """The value of a JSON text whose texts a tokenizer can read.

    Args:
        text: the JSON.
        where: file, and line where it has many, for the message.
        error: what to raise.

    Raises:
        RecordError: it is cut off, nested too deeply, or holds half a character.
    """
    try:
        return json.loads(text)
    except RecursionError as problem:
        raise error(f"{where}: nested too deeply to hold records; mend it") from problem
    except ValueError as problem:  # also a number of thousands of digits
        raise error(
            f"{where}: not JSON ({problem}); mend it, or fetch it again if it was cut off"
        ) from problem


def compared(name: str) -> str:
    """A name as people compare it with others: without case, Unicode form and outer blanks."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).strip()


def check_record(
    case_id: int, record: object, where: str, *, error: type[RecordError] = RecordError
) -> None:
    """Refuse what cannot be kept or tokenised: a number beyond 64 bits, half a character.

    Raises:
        RecordError: naming the record.
    """
    if not -(2**63) <= case_id < 2**63:
        raise error(f"{where}: case_id must fit into 64 bits; mend or remove this record")
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError as problem:
        raise error(
            f"{where}: half a character, which no tokenizer reads ({problem.reason}); mend or remove"
            " this record"
        ) from problem


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
        """Those of these places."""
        chosen = list(places)
        records = {place: self.records[place] for place in chosen if place in self.records}
        return Usable(
            records, {place: self.wrong[place] for place in chosen if place in self.wrong}
        )

    def checked(
        self, *, skip_bad: bool = False, error: type[RecordError] = RecordError
    ) -> Usable[Record]:
        """Itself, if nothing is wrong, or if what is wrong may be left out and something remains.

        Raises:
            RecordError: with what is wrong.
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
        raise error(f"{'; '.join(wrong[:5])}{more}: {remedy}")


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
        ValueError: there is none; the message names those there are.
    """
    numbered = {item.case_id: item for item in items}
    if case_id not in numbered:
        first = ", ".join(map(str, sorted(numbered)[:5]))
        more = f", … {max(numbered)}" if len(numbered) > 5 else ""
        raise ValueError(f"no case_id {case_id}; there are {first}{more}")
    return numbered[case_id]
