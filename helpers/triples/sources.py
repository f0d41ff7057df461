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
    for fact in (fact for path in paths for fact in read_facts(path)):
        key = (fact.subject, fact.relation, fact.object)
        if key not in merged or (merged[key].start is None and fact.start is not None):
            merged[key] = fact
    return tuple(merged.values())


def packaged_relations() -> dict[str, dict[str, str]]:
    """The relations of the packaged facts: label, subject_type and object_type by identifier."""
    return {row.pop("id"): row for _, row in _lines_of(FACTS / "relations.tsv")}


def read_facts(path: Path) -> tuple[TripleFact, ...]:
    """Read a tab-separated file of facts: labels, types (split at ``|``), ISO dates or years, source."""
    facts = []
    for place, row in _lines_of(path):
        if not {"subject", "relation", "object"} <= set(row) <= {*TripleFact.__annotations__}:
            raise UserError(
                f"{path}: the header must hold subject, relation, object (and may subject_types,"
                f" object_types, start, end, source); found: {', '.join(row)}"
            )
        kinds = row.get("subject_types", "thing"), row.get("object_types", "thing")
        if not all((row["subject"], row["relation"], row["object"], *kinds)):
            raise UserError(f"{place}: labels, types and relation must not be empty")
        subject_types, object_types = (tuple(kind.split("|")) for kind in kinds)
        named = row["subject"], subject_types, row["relation"], row["object"], object_types
        dates = row.get("start") or None, row.get("end") or None
        facts.append(TripleFact(*named, *dates, row.get("source", place)))
    return tuple(facts)


def codex_store() -> TripleStore:
    """CoDEx-S, all splits, with labels and types from ``$HELPERS_DATA/codex-s``, else from Wikidata."""
    files = [official_files()[f"codex-s-{split}"] for split in ("train", "valid", "test")]
    columns = ("subject", "relation", "object")
    rows = [row for file in files for _, row in _lines_of(locate(file), columns)]
    identifiers = sorted({row[end] for row in rows for end in ("subject", "object")})
    names = (data_folder() or Path()) / "codex-s" / "labels.json"
    if names.is_file():
        kinds = names.with_name("entity2types.json")
        labels, types = (read_json(read_text(path), str(path)) for path in (names, kinds))
    else:
        labels, types = labels_of(Endpoint(), identifiers), types_of(Endpoint(), identifiers)
    store = TripleStore()
    for identifier in identifiers:
        store.add_entity(identifier, labels.get(identifier), types.get(identifier, ()))
    for row in rows:
        store.add_triple(Edge(**row), where="CoDEx-S")
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
    columns = ("id", "subject", "relation", "object")
    for place, row in (found for path in paths for found in _lines_of(path, columns)):
        subject, relation, value = row["subject"], row["relation"], row["object"]
        if relation in _YAGO_DATES:
            date = value.strip('"').split('"')[0].replace("-##", "")
            if DATE.fullmatch(date):
                dates[subject, _YAGO_DATES[relation]] = date
        elif relation == "rdf:type":
            types[subject].add(_yago_name(value))
        elif relation.startswith("<") and value.startswith("<"):
            facts[row["id"] or place] = (subject, relation, value)
    store = TripleStore()
    for name in sorted({name for subject, _, goal in facts.values() for name in (subject, goal)}):
        store.add_entity(name, _yago_name(name), sorted(types.get(name, {"thing"})))
    for fact, triple in facts.items():
        edge = Edge(*triple, dates.get((fact, "start")), dates.get((fact, "end")))
        store.add_triple(edge, where=fact)
    return store


def _yago_name(name: str) -> str:
    """``<Mount_Everest>`` to ``Mount Everest``, ``<wordnet_person_100007846>`` to ``person``."""
    return re.sub(r"^wordnet (.+) \S+$", r"\1", name.strip("<>").replace("_", " "))


def _lines_of(path: Path, columns: Sequence[str] = ()) -> Iterator[tuple[str, dict[str, str]]]:
    """Place and fields of each line of a tab-separated file, by its header unless columns are given."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(
                stream, columns or None, "", delimiter="\t", quoting=csv.QUOTE_NONE
            )
            for row in reader:
                place = f"{path}, line {reader.line_num}"
                if None in row.values() or (row.pop("", None) and not columns):
                    fields = ", ".join(reader.fieldnames or ())
                    raise UserError(f"{place}: expected {fields}, separated by single tabs")
                yield place, row
    except UnicodeDecodeError:  # found somewhere ahead of the line that was read
        read_text(path)
        raise
