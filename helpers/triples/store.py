"""An embedded triple store (Oxigraph), asked in SPARQL like any remote endpoint.

Entities and relations have Wikidata's IRIs, so that one SPARQL text serves every source. Plain facts are
``?s wdt:P47 ?o``; dated ones also have a statement node with ``pq:P580`` (start) and ``pq:P582`` (end).
What Wikidata does not name gets an IRI below ``urn:helpers:``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote

import pyoxigraph as ox

from helpers import UserError

ENTITY = "http://www.wikidata.org/entity/"
DIRECT = "http://www.wikidata.org/prop/direct/"
CLAIM = "http://www.wikidata.org/prop/"
STATEMENT = "http://www.wikidata.org/prop/statement/"
LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
INSTANCE_OF = f"{DIRECT}P31"
START = "http://www.wikidata.org/prop/qualifier/P580"
END = "http://www.wikidata.org/prop/qualifier/P582"
OWN = "urn:helpers:"
DATE = re.compile(r"\d{4}(-\d{2}){0,2}")
Binding = dict[str, str]


@dataclass(frozen=True)
class TripleFact:
    """One triple with what is needed to write about it; subject and object are English labels."""

    subject: str
    subject_types: tuple[str, ...]  # their names, the most specific first, such as ("city",)
    relation: str  # Wikidata property ("P47"), or a name in angle brackets ("<exports>")
    object: str
    object_types: tuple[str, ...]
    start: str | None = None  # ISO date (or year) from which the fact holds, if known
    end: str | None = None  # ISO date (or year) from which it no longer holds, if known
    source: str = ""  # where the fact comes from


@dataclass(frozen=True)
class Edge:
    """One triple by identifiers; ``start`` and ``end`` are ISO dates or years, if known."""

    subject: str
    relation: str
    object: str
    start: str | None = None
    end: str | None = None


class TripleStore:
    """An in-memory store of facts; label and first type identify an entity."""

    def __init__(self, facts: Iterable[TripleFact] = ()) -> None:
        self._store = ox.Store()
        self._statements = 0
        for fact in facts:
            subject = f"{fact.subject_types[0]}/{fact.subject}"
            object_ = f"{fact.object_types[0]}/{fact.object}"
            self.add_entity(subject, fact.subject, fact.subject_types)
            self.add_entity(object_, fact.object, fact.object_types)
            edge = Edge(subject, fact.relation, object_, fact.start, fact.end)
            self.add_triple(edge, origin=fact.source)

    def select(self, query: str) -> list[Binding]:
        """Answer a SELECT query; unbound variables are omitted from its rows."""
        solutions = self._store.query(query)
        assert isinstance(solutions, ox.QuerySolutions)
        variables = [term.value for term in solutions.variables]
        bindings = []
        for solution in solutions:
            binding: Binding = {}
            for variable in variables:
                term = solution[variable]
                if term is not None:
                    binding[variable] = term.value
            bindings.append(binding)
        return bindings

    def add_entity(self, identifier: str, label: str | None, types: Iterable[str]) -> None:
        """Add an entity's English label, if it has one, and identifiers or names of its types."""
        if label:
            self._add(entity_iri(identifier), LABEL, ox.Literal(label, language="en"))
        for type_name in types:
            self._add(entity_iri(identifier), INSTANCE_OF, ox.NamedNode(entity_iri(type_name)))

    def add_triple(self, edge: Edge, *, origin: str) -> None:
        """Add one fact; ``origin`` is where it is from, for errors."""
        direct_iri, claim_iri, value_iri = relation_iris(edge.relation, origin=origin)
        subject_iri = entity_iri(edge.subject)
        object_node = ox.NamedNode(entity_iri(edge.object))
        self._add(subject_iri, direct_iri, object_node)
        if edge.start or edge.end:
            self._statements += 1
            statement_iri = f"{OWN}statement:{self._statements}"
            self._add(subject_iri, claim_iri, ox.NamedNode(statement_iri))
            self._add(statement_iri, value_iri, object_node)
            for qualifier, date in ((START, edge.start), (END, edge.end)):
                if date and not DATE.fullmatch(date):
                    raise UserError(f"{origin}: date {date!r} is not YYYY, YYYY-MM or YYYY-MM-DD")
                if date:
                    self._add(statement_iri, qualifier, ox.Literal(date))

    def _add(self, subject: str, predicate: str, value: ox.NamedNode | ox.Literal) -> None:
        self._store.add(ox.Quad(ox.NamedNode(subject), ox.NamedNode(predicate), value))


@lru_cache(maxsize=1 << 16)  # an entity occurs in several facts
def entity_iri(identifier: str) -> str:
    """IRI of an entity: ``"Q183"``, or any text of ours, such as ``"city/Paris"``."""
    if re.fullmatch(r"Q\d+", identifier):
        return ENTITY + identifier
    return f"{OWN}entity:{quote(identifier, safe='/')}"


def entity_id(iri: str) -> str:
    """Inverse of ``entity_iri``."""
    if iri.startswith(ENTITY):
        return iri.removeprefix(ENTITY)
    return unquote(iri.removeprefix(f"{OWN}entity:"))


def relation_iris(relation: str, *, origin: str = "relations") -> tuple[str, str, str]:
    """IRIs of a relation's direct property, claim and statement value.

    ``origin`` is where the relation's name is from, for errors.
    """
    if re.fullmatch(r"P\d+", relation):
        return DIRECT + relation, CLAIM + relation, STATEMENT + relation
    if not re.fullmatch(r"<[\w-]+>", relation):
        raise UserError(f"{origin}: relation {relation!r}: write P47 or <name>")
    relation_name = relation.strip("<>")
    return (
        f"{OWN}direct:{relation_name}",
        f"{OWN}claim:{relation_name}",
        f"{OWN}statement:{relation_name}",
    )


def relation_id(iri: str) -> str | None:
    """The relation whose direct property an IRI is; None for other IRIs and for types."""
    if iri.startswith(DIRECT) and iri != INSTANCE_OF:
        return iri.removeprefix(DIRECT)
    own_prefix = f"{OWN}direct:"
    return f"<{iri.removeprefix(own_prefix)}>" if iri.startswith(own_prefix) else None
