"""Writes the packaged facts anew: ``python -m tools.collect``."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from helpers.triples.sources import FACTS, packaged_relations, read_facts
from helpers.triples.store import TripleFact
from tools.collect import geography as geo
from tools.collect.factbook import factbook


def write_facts(facts: Iterable[TripleFact], path: Path) -> None:
    """Write facts as ``read_facts`` reads them, sorted, without repetitions."""
    rows = {
        (
            *(f.relation, f.subject, "|".join(f.subject_types), f.object),
            *("|".join(f.object_types), f.start or "", f.end or "", f.source),
        )
        for f in facts
    }
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_NONE)
        writer.writerow(field.name for field in fields(TripleFact))
        for relation, subject, subject_types, *rest in sorted(rows):
            writer.writerow([subject, subject_types, relation, *rest])


def main() -> None:
    """Collect, write one file per kind of source, and print what was found."""
    countries = geo.Countries()
    parts = {
        "factbook": [factbook],
        "geography": [geo.continents, geo.regions, geo.cities, geo.languages, geo.currencies],
        "public_holidays": [geo.public_holidays],
    }
    known = packaged_relations()
    compiled = read_facts(FACTS / "compiled.tsv")
    leaders = {(f.subject, f.relation) for f in compiled if f.relation in ("P6", "P35")}
    counts: Counter[str] = Counter()
    for name, collectors in parts.items():
        facts = {fact for collect in collectors for fact in collect(countries)}
        # A list of all leaders, under their usual names, is better than the present one alone.
        facts = {fact for fact in facts if (fact.subject, fact.relation) not in leaders}
        write_facts(facts, FACTS / f"{name}.tsv")
        counts.update(fact.relation for fact in facts)
    for relation, count in counts.most_common():
        print(f"{count:6d}  {relation:18s} {known[relation]['label']}")


if __name__ == "__main__":
    main()
