"""YAGO's tab-separated files: facts, the dates of facts, types of entities."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from helpers.triples.triple_store import DATE, TripleError, TripleStore


def yago_store(*paths: Path) -> TripleStore:
    """A store of YAGO's tab-separated files: facts, their dates (``<occursSince>``), types.

    Lines are ``id, subject, relation, object``; names such as ``<Mount_Everest>`` are their own
    labels. Several files are read as one, so a fact's date may stand in another file. Dates that
    name no year (``"19##-##-##"``) are dropped, their facts kept.

    Raises:
        TripleError: a line without four fields, or no file.
    """
    if not paths:
        raise TripleError("no YAGO files: put yagoFacts.tsv and the like into the folder")
    facts: dict[str, tuple[str, str, str]] = {}
    dates: dict[tuple[str, str], str] = {}
    types: dict[str, set[str]] = {}
    for path in paths:
        for number, (identifier, subject, relation, value) in enumerate(_lines(path)):
            if relation in ("<occursSince>", "<occursUntil>", "<occursOnDate>"):
                if date := _date(value):
                    dates[subject, "end" if relation == "<occursUntil>" else "start"] = date
            elif relation == "rdf:type":
                types.setdefault(subject, set()).add(_name(value))
            elif relation.startswith("<") and value.startswith("<"):
                facts[identifier or f"{path}:{number}"] = (subject, relation, value)
    store = TripleStore()
    entities = sorted({name for fact in facts.values() for name in (fact[0], fact[2])})
    store.add_entities((name, _name(name), sorted(types.get(name, {"thing"}))) for name in entities)
    store.add_triples(
        (s, r, o, dates.get((i, "start")), dates.get((i, "end"))) for i, (s, r, o) in facts.items()
    )
    return store


def _lines(path: Path) -> Iterator[tuple[str, str, str, str]]:
    if not path.is_file():
        raise TripleError(f"{path}: no such YAGO file")
    with path.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            fields = line.rstrip("\n").split("\t")
            if len(fields) < 4 or not all(fields[1:4]):
                raise TripleError(f"{path}, line {number}: expected id, subject, relation, object")
            yield fields[0], fields[1], fields[2], fields[3]


def _name(name: str) -> str:
    """``<Mount_Everest>`` to ``Mount Everest``, ``<wordnet_person_100007846>`` to ``person``."""
    words = name.strip("<>").replace("_", " ").split(" ")
    if words[0] == "wordnet" and len(words) > 2:
        words = words[1:-1]
    return " ".join(words)


def _date(literal: str) -> str | None:
    """``"2021-##-##"^^xsd:date`` to ``2021``; None for ``19##`` and years before Christ."""
    text = literal.split('"')[1] if '"' in literal else literal
    date = text.replace("-##", "")
    return date if DATE.fullmatch(date) else None
