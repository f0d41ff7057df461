"""What fills a triple store: packaged facts, CoDEx-S, a table of the user's, dated facts."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

from helpers.fetch import data_folder, locate, official_files
from helpers.triples.endpoint import Endpoint
from helpers.triples.labelled_graph import AT_A_TIME, label_patterns, types_of
from helpers.triples.packaged_facts import Fact, packaged_triples
from helpers.triples.triple_store import SparqlSource, TripleError, TripleStore
from helpers.triples.vocabulary import entity_id, entity_iri
from helpers.triples.yago import yago_store

CODEX_S = tuple(official_files()[f"codex-s-{split}"] for split in ("train", "valid", "test"))
DYKNOW = official_files()["v-dyknow"]
TABLE_COLUMNS = ("subject", "relation", "object")
_ADDRESS = ("http://", "https://")
_OPTIONAL = ("subject_types", "object_types", "start", "end")


def open_source(name: str) -> SparqlSource:
    """A source by name.

    Args:
        name: ``packaged``, ``codex-s``, ``dyknow``, ``wikidata``, the address of another endpoint
            (``https://…``), a tab-separated file of triples, or a folder with YAGO's ``.tsv`` files.

    Raises:
        TripleError: none of these.
    """
    known = {"packaged": packaged_store, "codex-s": codex_store, "dyknow": dyknow_store}
    if name in known:
        return known[name]()
    if name == "wikidata" or name.startswith(_ADDRESS):
        return Endpoint() if name == "wikidata" else Endpoint(name)
    path = Path(name)
    try:
        if path.is_dir():
            return yago_store(*sorted(path.glob("*.tsv")))
        if path.is_file():
            return table_store(path)
    except UnicodeDecodeError as error:
        raise TripleError(f"{path} is not written in UTF-8: {error}; convert it") from error
    raise TripleError(
        f"no source {name!r}: use {', '.join(known)}, wikidata, an endpoint's address, a .tsv file"
        " of triples, or a folder of YAGO files"
    )


def check_source(name: str) -> None:
    """Refuse what names no source; nothing is opened, since sources may be large or far.

    Raises:
        TripleError: see ``open_source``.
    """
    known = ("packaged", "codex-s", "dyknow", "wikidata")
    if name not in known and not name.startswith(_ADDRESS) and not (name and Path(name).exists()):
        open_source(name)


def packaged_store() -> TripleStore:
    """A store of the packaged facts."""
    store = TripleStore()
    store.add_facts(packaged_triples())
    return store


def codex_store(*, names: SparqlSource | None = None) -> TripleStore:
    """A store of CoDEx-S, all three splits.

    Triples come from ``$HELPERS_DATA/codex-s`` or the official address; English labels and types
    from ``labels.json`` and ``entity2types.json`` there, else from ``names``.

    Args:
        names: where labels and types are asked for without the local files; default: Wikidata.

    Raises:
        UserError: triples neither here nor downloadable.
        TripleError: a line that is no triple.
        EndpointError: no local labels, and the endpoint does not answer.
    """
    triples = [triple for resource in CODEX_S for triple in _lines(locate(resource))]
    identifiers = sorted({i for triple in triples for i in (triple[0], triple[2])})
    folder = data_folder()
    labels_path = folder / "codex-s" / "labels.json" if folder else None
    if labels_path and labels_path.is_file():
        labels = json.loads(labels_path.read_text(encoding="utf-8"))
        types = json.loads((labels_path.parent / "entity2types.json").read_text(encoding="utf-8"))
    else:
        labels, types = _names_of(names or Endpoint(), identifiers)
    store = TripleStore()
    store.add_entities((i, labels.get(i), types.get(i, ())) for i in identifiers)
    store.add_triples(((*triple, None, None) for triple in triples), where="CoDEx-S")
    return store


def table_store(path: Path) -> TripleStore:
    """A store of a tab-separated file with a header.

    Columns subject, relation, object hold labels; subject_types and object_types (split at ``|``;
    default ``thing``), start and end (ISO dates or years) may follow.

    Raises:
        TripleError: a missing column or file, or a malformed line.
    """
    if not path.is_file():
        raise TripleError(f"{path}: no such file of triples")
    store = TripleStore()
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        columns = tuple(reader.fieldnames or ())
        if set(TABLE_COLUMNS) - set(columns) or set(columns) - {*TABLE_COLUMNS, *_OPTIONAL}:
            raise TripleError(
                f"{path}: the header must hold {', '.join(TABLE_COLUMNS)} and may hold"
                f" {', '.join(_OPTIONAL)}; found: {', '.join(columns) or 'nothing'}"
            )
        store.add_facts(_table_facts(reader, path))
    return store


def dyknow_store() -> TripleStore:
    """A store of V-DyKnow's dated answers: leaders, players, chief executives.

    Raises:
        UserError: the file is neither here nor downloadable.
        TripleError: an answer that is not ``name |S: date |E: date``.
    """
    path = locate(DYKNOW)
    store = TripleStore()
    store.add_facts(_dyknow_facts(json.loads(path.read_text(encoding="utf-8")), path))
    return store


def _lines(path: Path) -> Iterator[tuple[str, str, str]]:
    """Subject, relation, object per line."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        fields = line.split("\t")
        if len(fields) != 3 or not all(fields):
            raise TripleError(f"{path}, line {number}: {line!r} is no triple separated by tabs")
        yield fields[0], fields[1], fields[2]


def _names_of(
    source: SparqlSource, identifiers: list[str]
) -> tuple[dict[str, str], dict[str, set[str]]]:
    """English labels and types of Wikidata items."""
    labels: dict[str, str] = {}
    for begin in range(0, len(identifiers), AT_A_TIME):
        values = " ".join(f"<{entity_iri(i)}>" for i in identifiers[begin : begin + AT_A_TIME])
        query = f"""SELECT ?e ?eLabel WHERE {{
  VALUES ?e {{ {values} }}
{label_patterns("e")}
}}"""
        found = source.select(query)
        labels |= {entity_id(row["e"]): row["eLabel"] for row in found if "eLabel" in row}
    return labels, types_of(source, identifiers)


def _table_facts(reader: csv.DictReader, path: Path) -> Iterator[Fact]:
    for number, row in enumerate(reader, start=2):
        values = [row[column] for column in TABLE_COLUMNS]
        if None in row or None in row.values() or not all(values):
            raise TripleError(
                f"{path}, line {number}: fields do not fit the header, or one is empty"
            )
        yield Fact(
            row["subject"],
            tuple((row.get("subject_types") or "thing").split("|")),
            row["relation"],
            row["object"],
            tuple((row.get("object_types") or "thing").split("|")),
            row.get("start") or None,
            row.get("end") or None,
            f"{path}, line {number}",
        )


def _dyknow_facts(content: dict, path: Path) -> Iterator[Fact]:
    kinds = {"countries": "country", "athletes": "person", "organizations": "organization"}
    relations = {"Sports Team": "P54", "chief executive officer": "P169", "chairperson": "P488",
                 "general secretary": "P3975"}  # fmt: skip
    for part, kind in kinds.items():
        for subject, questions in content[part].items():
            for question, item in questions.items():
                if question == "images":
                    continue
                head_of_government = question.startswith(("Prime Minister", "Premier", "Federal"))
                relation = relations.get(question, "P6" if head_of_government else "P35")
                answer_type = "sports team" if relation == "P54" else "person"
                for answer in item["answers"]:
                    name, start, end = _dyknow_answer(answer, path, subject)
                    yield Fact(
                        subject, (kind,), relation, name, (answer_type,), start, end, "v-dyknow"
                    )


def _dyknow_answer(answer: str, path: Path, subject: str) -> tuple[str, str | None, str | None]:
    """``name |S: +2003-00-00T… |E: …`` in its parts; zeros stand for an unknown month or day."""
    name, start_mark, rest = answer.partition(" |S: ")
    start, end_mark, end = rest.partition("|E: ")
    if not (name and start_mark and end_mark):
        raise TripleError(f"{path}, {subject}: {answer!r} is not 'name |S: date |E: date'")
    return name.strip(), _wikidata_date(start), _wikidata_date(end)


def _wikidata_date(text: str) -> str | None:
    return text.strip().lstrip("+").split("T")[0].replace("-00", "") or None
