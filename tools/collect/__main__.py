"""Writes the packaged facts anew: ``python -m tools.collect``."""

from collections import Counter

from helpers.triples.packaged_facts import FACTS, packaged_relations, read_facts, write_facts
from tools.collect.countries import Countries
from tools.collect.factbook import factbook
from tools.collect.geography import (
    cities,
    continents,
    currencies,
    languages,
    regions,
)
from tools.collect.public_holidays import public_holidays


def main() -> None:
    """Collect, write one file per kind of source, and print what was found."""
    countries = Countries()
    parts = {
        "factbook": [factbook],
        "geography": [continents, regions, cities, languages, currencies],
        "public_holidays": [public_holidays],
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
        print(f"{count:6d}  {relation:18s} {known[relation].label}")


if __name__ == "__main__":
    main()
