"""What fills a triple store: packaged facts, CoDEx-S, a table of your own, YAGO's files.

The packaged facts have types, English labels and, where known, dates. ``python -m tools.collect``
collects them from openly licensed Python packages; ``compiled.tsv`` was compiled by hand.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from helpers import UserError
from helpers.fetch import data_folder, locate, official_files
from helpers.paths import PACKAGED
from helpers.records import read_json, read_text
from helpers.triples.endpoint import Endpoint, Source
from helpers.triples.graph import labels_of, types_of
from helpers.triples.store import DATE, Edge, TripleFact, TripleStore

FACTS = PACKAGED / "facts"
_YAGO_DATES = {"<occursSince>": "start", "<occursOnDate>": "start", "<occursUntil>": "end"}


def open_source(name: str) -> Source:
    """A source by its name (see ``check_source``); a UserError where it is malformed."""
    check_source(name)
    if name == "packaged":
        return TripleStore(packaged_triples())
    if name == "codex-s":
        return codex_store()
    if name == "wikidata":
        return Endpoint()
    if name.startswith(("http://", "https://")):
        return Endpoint(name)
    path = Path(name)
    return yago_store(path) if path.is_dir() else TripleStore(read_facts(path))


def check_source(name: str) -> None:
    """Refuse what names no source; nothing is opened, since sources may be large or far."""
    known = name in ("packaged", "codex-s", "wikidata") or name.startswith(("http://", "https://"))
    if not known and not (name and Path(name).exists()):
        raise UserError(
            f"no source {name!r}: use packaged, codex-s, wikidata, an endpoint's address, a .tsv file"
            " of triples, or a folder of YAGO files"
        )


def packaged_triples() -> tuple[TripleFact, ...]:
    """All packaged facts, each once: a dated source is preferred to one without dates."""
    paths = sorted(path for path in FACTS.glob("*.tsv") if path.stem != "relations")
    merged: dict[tuple[str, str, str], TripleFact] = {}
    for path in paths:
        for fact in read_facts(path):
            triple = (fact.subject, fact.relation, fact.object)
            if triple not in merged or (merged[triple].start is None and fact.start is not None):
                merged[triple] = fact
    return tuple(merged.values())


def packaged_relations() -> dict[str, dict[str, str]]:
    """The relations of the packaged facts: label, subject_type and object_type by identifier."""
    relations = {}
    for _, row in _lines_of(FACTS / "relations.tsv"):
        identifier = row.pop("id")
        relations[identifier] = row
    return relations


def read_facts(path: Path) -> tuple[TripleFact, ...]:
    """Read a tab-separated file of facts: labels, types (split at ``|``), ISO dates or years, source."""
    facts = []
    for line_name, row in _lines_of(path):
        if not {"subject", "relation", "object"} <= set(row) <= {*TripleFact.__annotations__}:
            raise UserError(
                f"{path}: the header must hold subject, relation, object (and may subject_types,"
                f" object_types, start, end, source); found: {', '.join(row)}"
            )
        subject_types = row.get("subject_types", "thing")
        object_types = row.get("object_types", "thing")
        needed = (row["subject"], row["relation"], row["object"], subject_types, object_types)
        if not all(needed):
            raise UserError(f"{line_name}: labels, types and relation must not be empty")
        fact = TripleFact(
            subject=row["subject"],
            subject_types=tuple(subject_types.split("|")),
            relation=row["relation"],
            object=row["object"],
            object_types=tuple(object_types.split("|")),
            start=row.get("start") or None,
            end=row.get("end") or None,
            source=row.get("source", line_name),
        )
        facts.append(fact)
    return tuple(facts)


def codex_store() -> TripleStore:
    """CoDEx-S, all splits, with labels and types from ``$HELPERS_DATA/codex-s``, else from Wikidata."""
    rows: list[dict[str, str]] = []
    for split in ("train", "valid", "test"):
        path = locate(official_files()[f"codex-s-{split}"])
        rows += [row for _, row in _lines_of(path, ("subject", "relation", "object"))]
    identifiers = sorted({row["subject"] for row in rows} | {row["object"] for row in rows})
    labels_file = (data_folder() or Path()) / "codex-s" / "labels.json"
    if labels_file.is_file():
        types_file = labels_file.with_name("entity2types.json")
        labels = read_json(read_text(labels_file), str(labels_file))
        types = read_json(read_text(types_file), str(types_file))
    else:
        labels = labels_of(Endpoint(), identifiers)
        types = types_of(Endpoint(), identifiers)
    store = TripleStore()
    for identifier in identifiers:
        store.add_entity(identifier, labels.get(identifier), types.get(identifier, ()))
    for row in rows:
        store.add_triple(Edge(**row), origin="CoDEx-S")
    return store


def yago_store(folder: Path) -> TripleStore:
    """A store of a folder of YAGO's tab-separated files, read as one: facts, their dates and types.

    Lines are ``id, subject, relation, object``; names such as ``<Mount_Everest>`` are their own labels.
    Dates that name no year (``"19##-##-##"``) are dropped, their facts kept.
    """
    paths = sorted(folder.glob("*.tsv"))
    if not paths:
        raise UserError(f"{folder}: no YAGO files; put yagoFacts.tsv and the like there")
    facts: dict[str, tuple[str, str, str]] = {}
    dates: dict[tuple[str, str], str] = {}
    types: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        for line_name, row in _lines_of(path, ("id", "subject", "relation", "object")):
            subject = row["subject"]
            relation = row["relation"]
            value = row["object"]
            if relation in _YAGO_DATES:  # of the fact whose id is the subject
                date = value.strip('"').split('"')[0].replace("-##", "")
                if DATE.fullmatch(date):
                    dates[subject, _YAGO_DATES[relation]] = date
            elif relation == "rdf:type":
                types[subject].add(_yago_name(value))
            elif relation.startswith("<") and value.startswith("<"):
                facts[row["id"] or line_name] = (subject, relation, value)
    names: set[str] = set()
    for subject, _, value in facts.values():
        names |= {subject, value}
    store = TripleStore()
    for name in sorted(names):
        store.add_entity(name, _yago_name(name), sorted(types.get(name, {"thing"})))
    for fact_id, (subject, relation, value) in facts.items():
        start = dates.get((fact_id, "start"))
        end = dates.get((fact_id, "end"))
        store.add_triple(Edge(subject, relation, value, start, end), origin=fact_id)
    return store


def _yago_name(name: str) -> str:
    """``<Mount_Everest>`` to ``Mount Everest``, ``<wordnet_person_100007846>`` to ``person``."""
    return re.sub(r"^wordnet (.+) \S+$", r"\1", name.strip("<>").replace("_", " "))


def _lines_of(path: Path, columns: Sequence[str] = ()) -> Iterator[tuple[str, dict[str, str]]]:
    """File and number, and the fields of each line of a tab-separated file, by its header unless
    columns are given.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(
                stream, columns or None, "", delimiter="\t", quoting=csv.QUOTE_NONE
            )
            for row in reader:
                line_name = f"{path}, line {reader.line_num}"
                if None in row.values() or (row.pop("", None) and not columns):
                    fields = ", ".join(reader.fieldnames or ())
                    raise UserError(f"{line_name}: expected {fields}, separated by single tabs")
                yield line_name, row
    except UnicodeDecodeError:  # found somewhere ahead of the line that was read
        read_text(path)
        raise
