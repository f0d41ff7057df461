"""An embedded triple store (Oxigraph), asked in SPARQL like any remote endpoint."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Protocol

import pyoxigraph as ox

from helpers import UserError
from helpers.triples.packaged_facts import Fact
from helpers.triples.vocabulary import (
    END,
    INSTANCE_OF,
    LABEL,
    START,
    entity_iri,
    relation_iris,
)

DATE = re.compile(r"\d{4}(-\d{2}){0,2}")
Binding = dict[str, str]


class TripleError(UserError):
    """A triple that cannot be stored, or a query that cannot be answered."""


class SparqlSource(Protocol):
    """Anything that answers SPARQL SELECT queries: the embedded store or a remote endpoint."""

    def select(self, query: str) -> list[Binding]:
        """Rows as mappings from variable to value; unbound variables are left out."""
        ...


class TripleStore:
    """An in-memory Oxigraph store with Wikidata's vocabulary (see ``vocabulary``).

    >>> store = TripleStore()
    >>> store.add_facts(packaged_triples())
    >>> store.select("SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }")
    """

    def __init__(self) -> None:
        self._store = ox.Store()
        self._statements = 0

    def __len__(self) -> int:
        """Number of RDF triples: facts, labels, types and dates."""
        return len(self._store)

    def select(self, query: str) -> list[Binding]:
        """Answer a SELECT query.

        Raises:
            TripleError: not a valid SELECT query.
        """
        try:
            solutions = self._store.query(query)
        except (SyntaxError, ValueError) as error:
            raise TripleError(f"not a valid SPARQL query: {error}\n{query}") from error
        if not isinstance(solutions, ox.QuerySolutions):
            raise TripleError(f"only SELECT queries are answered, not\n{query}")
        names = [variable.value for variable in solutions.variables]
        return [
            {name: term.value for name in names if (term := row[name]) is not None}
            for row in solutions
        ]

    def add_facts(self, facts: Iterable[Fact]) -> None:
        """Add facts with labels and types; an entity is told by its label and first type.

        Raises:
            TripleError: an empty field, an unknown form of relation, or a malformed date.
        """

        def quads() -> Iterator[ox.Quad]:
            for fact in facts:
                try:
                    yield from self._fact_quads(fact)
                except ValueError as error:
                    where = fact.source or f"{fact.subject}, {fact.relation}, {fact.object}"
                    raise TripleError(f"{where}: {error}") from error

        self._store.bulk_extend(quads())

    def add_entities(
        self, entities: Iterable[tuple[str, str | None, Iterable[str]]], *, where: str = "entities"
    ) -> None:
        """Add (identifier, English label or None, identifiers or names of types)."""

        def quads() -> Iterator[ox.Quad]:
            for identifier, label, types in entities:
                if not identifier:
                    raise TripleError(f"{where}: an entity without identifier")
                yield from _entity_quads(identifier, label, types)

        self._store.bulk_extend(quads())

    def add_triples(
        self,
        triples: Iterable[tuple[str, str, str, str | None, str | None]],
        *,
        where: str = "triples",
    ) -> None:
        """Add (subject, relation, object, start, end) by identifiers; dates may be None.

        Raises:
            TripleError: an empty field, an unknown form of relation, or a malformed date.
        """

        def quads() -> Iterator[ox.Quad]:
            for number, triple in enumerate(triples, start=1):
                try:
                    yield from self._triple_quads(*triple)
                except (TypeError, ValueError) as error:
                    raise TripleError(f"{where}, triple {number} {triple}: {error}") from error

        self._store.bulk_extend(quads())

    def _fact_quads(self, fact: Fact) -> Iterator[ox.Quad]:
        identifiers = []
        for label, types in (
            (fact.subject, fact.subject_types),
            (fact.object, fact.object_types),
        ):
            identifiers.append(f"{types[0]}/{label}")
            yield from _entity_quads(identifiers[-1], label, types)
        subject, object_ = identifiers
        yield from self._triple_quads(subject, fact.relation, object_, fact.start, fact.end)

    def _triple_quads(
        self, subject: str, relation: str, object_: str, start: str | None, end: str | None
    ) -> Iterator[ox.Quad]:
        if not (subject and relation and object_):
            raise ValueError("subject, relation and object must not be empty")
        direct, claim, value = (ox.NamedNode(iri) for iri in relation_iris(relation))
        source, target = ox.NamedNode(entity_iri(subject)), ox.NamedNode(entity_iri(object_))
        yield ox.Quad(source, direct, target)
        if start or end:
            self._statements += 1
            node = ox.NamedNode(f"urn:helpers:statement:{self._statements}")
            yield ox.Quad(source, claim, node)
            yield ox.Quad(node, value, target)
            for iri, date in ((START, start), (END, end)):
                if date:
                    if not DATE.fullmatch(date):
                        raise ValueError(
                            f"date {date!r} is not written YYYY, YYYY-MM or YYYY-MM-DD"
                        )
                    yield ox.Quad(node, ox.NamedNode(iri), ox.Literal(date))


def _entity_quads(identifier: str, label: str | None, types: Iterable[str]) -> Iterator[ox.Quad]:
    node = ox.NamedNode(entity_iri(identifier))
    if label:
        yield ox.Quad(node, ox.NamedNode(LABEL), ox.Literal(label, language="en"))
    for kind in types:
        yield ox.Quad(node, ox.NamedNode(INSTANCE_OF), ox.NamedNode(entity_iri(kind)))
