"""What all benchmarks' records have in common: a number, and an error that says what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Protocol, TypeVar


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
    except json.JSONDecodeError as problem:
        raise error(
            f"{where}: not JSON ({problem}); mend it, or fetch it again if it was cut off"
        ) from problem


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
