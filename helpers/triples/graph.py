"""What construction works on: labelled, typed entities and the triples between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from helpers import UserError
from helpers.triples.endpoint import Source, select_pages
from helpers.triples.store import (
    END,
    INSTANCE_OF,
    LABEL,
    START,
    Binding,
    Edge,
    entity_id,
    entity_iri,
    relation_id,
    relation_iris,
)
from helpers.triples.templates import INVERSE

AT_A_TIME = 200  # entities per query, as URLs and servers bear it
RANK = "http://wikiba.se/ontology#rank"
DEPRECATED = "http://wikiba.se/ontology#DeprecatedRank"


@dataclass(frozen=True)
class Entity:
    """Something with a name: identifier, English label, identifiers or names of its types."""

    id: str
    label: str
    types: frozenset[str]


@dataclass
class Graph:
    """Entities by identifier, edges between them, and identifiers without an English label.

    ``neighbours``: entities linked by any relation. ``answers[s, r]``: object → edge (``re_r``: subject).
    """

    entities: dict[str, Entity]
    edges: tuple[Edge, ...]
    unlabelled: frozenset[str] = frozenset()
    neighbours: dict[str, set[str]] = field(init=False, repr=False)
    answers: dict[tuple[str, str], dict[str, Edge]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Index by link, and by (subject, relation) in both directions."""
        neighbours = defaultdict[str, set[str]](set)
        answers = defaultdict[tuple[str, str], dict[str, Edge]](dict)
        for edge in self.edges:
            neighbours[edge.subject].add(edge.object)
            neighbours[edge.object].add(edge.subject)
            answers[edge.subject, edge.relation][edge.object] = edge
            answers[edge.object, INVERSE + edge.relation][edge.subject] = edge
        self.neighbours = dict(neighbours)
        self.answers = dict(answers)

    def label(self, identifier: str) -> str:
        """English label of an entity."""
        return self.entities[identifier].label

    def find(self, label: str, relation: str) -> str:
        """The entity with this label that is a subject of the relation; a UserError without one."""
        for subject, answered_relation in sorted(self.answers):
            if answered_relation == relation and self.label(subject) == label:
                return subject
        raise UserError(f"no entity {label!r} with facts of {relation}")


def relations_in(source: Source) -> list[str]:
    """The relations of a store; for large remote endpoints name them yourself."""
    bindings = source.select("SELECT DISTINCT ?p WHERE { ?s ?p ?o }")
    relations = (relation_id(binding["p"]) for binding in bindings)
    return sorted(relation for relation in relations if relation)


def read_graph(source: Source, relations: Sequence[str], *, most: int | None = None) -> Graph:
    """Read relations, without ``re_``, with labels, types and dates; ``most`` rows of each."""
    edges: dict[tuple[str, str, str], Edge] = {}
    labels: dict[str, str] = {}
    identifiers: set[str] = set()
    for relation in sorted(set(relations)):
        for binding in islice(select_pages(source, edges_query(relation)), most):
            edge = _edge_of_row(binding, relation)
            for identifier, variable in ((edge.subject, "sLabel"), (edge.object, "oLabel")):
                identifiers.add(identifier)
                if label := " ".join(binding.get(variable, "").split()):
                    labels[identifier] = label
            triple = (edge.subject, relation, edge.object)
            # A triple may hold in several periods.
            edges[triple] = min(edges.get(triple, edge), edge, key=_period)
    labelled_edges = tuple(
        edge for edge in edges.values() if edge.subject in labels and edge.object in labels
    )
    unlabelled = frozenset(identifiers - labels.keys())
    if not labelled_edges:
        raise UserError(
            f"no labelled triples of {', '.join(relations)}: check their names;"
            f" {len(unlabelled)} entities have no English label"
        )
    subjects = {edge.subject for edge in labelled_edges}
    objects = {edge.object for edge in labelled_edges}
    types_of_entity = types_of(source, sorted(subjects | objects))
    entities = {}
    for identifier in sorted(labels):
        entity_types = frozenset(types_of_entity.get(identifier, ()))
        entities[identifier] = Entity(identifier, labels[identifier], entity_types)
    return Graph(entities, labelled_edges, unlabelled)


def _edge_of_row(binding: Binding, relation: str) -> Edge:
    return Edge(
        subject=entity_id(binding["s"]),
        relation=relation,
        object=entity_id(binding["o"]),
        start=_day(binding.get("start")),
        end=_day(binding.get("end")),
    )


def _day(date: str | None) -> str | None:
    """A date without its time, which Wikidata writes: 2023-01-01T00:00:00Z."""
    return None if date is None else date.split("T")[0]


def edges_query(relation: str) -> str:
    """The SPARQL text for one relation.

    Statements are read in addition to the direct triples, which Wikidata has of those of best rank alone:
    former leaders are not among them.
    """
    direct_iri, claim_iri, value_iri = relation_iris(relation)
    return f"""SELECT ?s ?sLabel ?o ?oLabel ?start ?end WHERE {{
  {{ ?s <{direct_iri}> ?o }} UNION {{
    ?s <{claim_iri}> ?claim . ?claim <{value_iri}> ?o .
    FILTER NOT EXISTS {{ ?claim <{RANK}> <{DEPRECATED}> }}
    OPTIONAL {{ ?claim <{START}> ?start }}
    OPTIONAL {{ ?claim <{END}> ?end }}
  }}
  FILTER(ISIRI(?o))
{_label_patterns("s")}
{_label_patterns("o")}
}}
ORDER BY ?s ?o ?start"""


def types_of(source: Source, identifiers: Sequence[str]) -> dict[str, set[str]]:
    """Identifiers of the types of some entities."""
    types_of_entity: dict[str, set[str]] = defaultdict(set)
    for binding in _bindings_of_entities(source, identifiers, f"  ?e <{INSTANCE_OF}> ?type ."):
        types_of_entity[entity_id(binding["e"])].add(entity_id(binding["type"]))
    return types_of_entity


def labels_of(source: Source, identifiers: Sequence[str]) -> dict[str, str]:
    """English labels of the entities that have one."""
    bindings = _bindings_of_entities(source, identifiers, _label_patterns("e"))
    return {
        entity_id(binding["e"]): binding["eLabel"] for binding in bindings if "eLabel" in binding
    }


def _bindings_of_entities(
    source: Source, identifiers: Sequence[str], patterns: str
) -> Iterator[Binding]:
    for start in range(0, len(identifiers), AT_A_TIME):
        batch = identifiers[start : start + AT_A_TIME]
        entity_list = " ".join(f"<{entity_iri(identifier)}>" for identifier in batch)
        yield from source.select(
            f"SELECT * WHERE {{\n  VALUES ?e {{ {entity_list} }}\n{patterns}\n}}"
        )


def _period(edge: Edge) -> tuple[str, bool, str]:
    """The order of an edge's periods: dated ones first, the earliest first."""
    return edge.start or "~", edge.end is None, edge.end or ""


def _label_patterns(variable: str) -> str:
    """Bind ``?<variable>Label``: the English label, else the one for all languages."""
    return f"""  OPTIONAL {{ ?{variable} <{LABEL}> ?{variable}En . FILTER(LANG(?{variable}En) = "en") }}
  OPTIONAL {{ ?{variable} <{LABEL}> ?{variable}Mul . FILTER(LANG(?{variable}Mul) = "mul") }}
  BIND(COALESCE(?{variable}En, ?{variable}Mul) AS ?{variable}Label)"""
