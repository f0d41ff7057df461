"""The packaged facts: real triples with types, English labels and, where known, dates.

They are plain tab-separated files, one fact a line, collected from openly licensed Python packages
by ``python -m tools.collect``; ``compiled.tsv`` was compiled by hand. Facts need no
download, so everything can be tried without the network.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from helpers import UserError
from helpers.paths import PACKAGED

FACTS = PACKAGED / "facts"
COLUMNS = (
    "subject",
    "subject_types",
    "relation",
    "object",
    "object_types",
    "start",
    "end",
    "source",
)


class FactError(UserError):
    """A malformed file of facts; the message names file, line and remedy."""


@dataclass(frozen=True)
class Fact:
    """One triple with what is needed to write about it.

    Attributes:
        subject: English label.
        subject_types: names of its types, the most specific first, such as ``("city",)``.
        relation: Wikidata property (``"P47"``), or a name in angle brackets (``"<exports>"``).
        object: English label.
        object_types: names of its types.
        start: ISO date (or year) from which the fact holds, if known.
        end: ISO date (or year) from which it no longer holds, if known.
        source: where the fact comes from.
    """

    subject: str
    subject_types: tuple[str, ...]
    relation: str
    object: str
    object_types: tuple[str, ...]
    start: str | None = None
    end: str | None = None
    source: str = ""


@dataclass(frozen=True)
class Relation:
    """A relation of the packaged facts, with the types it connects."""

    id: str
    label: str
    subject_type: str
    object_type: str


def packaged_triples() -> tuple[Fact, ...]:
    """All packaged facts, each once: a dated source is preferred to one without dates."""
    paths = sorted(path for path in FACTS.glob("*.tsv") if path.stem != "relations")
    merged: dict[tuple[str, str, str], Fact] = {}
    for fact in (fact for path in paths for fact in read_facts(path)):
        key = (fact.subject, fact.relation, fact.object)
        if key not in merged or (merged[key].start is None and fact.start is not None):
            merged[key] = fact
    return tuple(merged.values())


def packaged_relations() -> dict[str, Relation]:
    """The relations of the packaged facts by identifier."""
    rows = _rows(FACTS / "relations.tsv", ("id", "label", "subject_type", "object_type"))
    return {row[0]: Relation(*row) for row in rows}


def read_facts(path: Path) -> tuple[Fact, ...]:
    """Read a tab-separated file of facts with the columns of ``COLUMNS``; types are split at ``|``.

    Raises:
        FactError: another header, a line of another length, or an empty label, relation or type.
    """
    facts = []
    for number, row in enumerate(_rows(path, COLUMNS), start=2):
        subject, subject_types, relation, object_, object_types, start, end, source = row
        if not (subject and subject_types and relation and object_ and object_types):
            raise FactError(f"{path}, line {number}: labels, types and relation must not be empty")
        facts.append(
            Fact(
                subject,
                tuple(subject_types.split("|")),
                relation,
                object_,
                tuple(object_types.split("|")),
                start or None,
                end or None,
                source,
            )
        )
    return tuple(facts)


def write_facts(facts: Iterable[Fact], path: Path) -> None:
    """Write facts as ``read_facts`` reads them, sorted, without repetitions."""
    lines = {
        (
            fact.relation,
            fact.subject,
            "|".join(fact.subject_types),
            fact.object,
            "|".join(fact.object_types),
            fact.start or "",
            fact.end or "",
            fact.source,
        )
        for fact in facts
    }
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_NONE)
        writer.writerow(COLUMNS)
        for relation, subject, subject_types, *rest in sorted(lines):
            writer.writerow([subject, subject_types, relation, *rest])


def _rows(path: Path, columns: tuple[str, ...]) -> list[list[str]]:
    """Rows below the expected header."""
    if not path.is_file():
        raise FactError(f"{path}: no such file of facts")
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
    if not rows or tuple(rows[0]) != columns:
        raise FactError(f"{path}: the first line must hold the columns {', '.join(columns)}")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(columns):
            raise FactError(
                f"{path}, line {number}: {len(row)} fields instead of {len(columns)};"
                " separate fields by single tabs"
            )
    return rows[1:]
