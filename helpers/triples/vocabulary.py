"""IRIs of entities and relations, as in Wikidata, so that one SPARQL text serves every source.

Plain facts are ``?s wdt:P47 ?o``; dated ones also have a statement node with ``pq:P580`` (start) and
``pq:P582`` (end); types are ``wdt:P31``; labels are ``rdfs:label`` in English or ``mul``. What Wikidata does
not name gets an IRI below ``urn:helpers:``.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

ENTITY = "http://www.wikidata.org/entity/"
DIRECT = "http://www.wikidata.org/prop/direct/"
CLAIM = "http://www.wikidata.org/prop/"
STATEMENT = "http://www.wikidata.org/prop/statement/"
QUALIFIER = "http://www.wikidata.org/prop/qualifier/"
LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
INSTANCE_OF = f"{DIRECT}P31"
START = f"{QUALIFIER}P580"
END = f"{QUALIFIER}P582"
RANK = "http://wikiba.se/ontology#rank"
DEPRECATED = "http://wikiba.se/ontology#DeprecatedRank"
OWN = "urn:helpers:"
_WIKIDATA_PROPERTY = re.compile(r"P\d+")
_WIKIDATA_ITEM = re.compile(r"Q\d+")


def entity_iri(identifier: str) -> str:
    """IRI of an entity: ``"Q183"``, or any text of ours, such as ``"city/Paris"``."""
    if _WIKIDATA_ITEM.fullmatch(identifier):
        return ENTITY + identifier
    return f"{OWN}entity:{quote(identifier, safe='/')}"


def entity_id(iri: str) -> str:
    """Inverse of ``entity_iri``."""
    if iri.startswith(ENTITY):
        return iri.removeprefix(ENTITY)
    return unquote(iri.removeprefix(f"{OWN}entity:"))


def relation_iris(relation: str) -> tuple[str, str, str]:
    """IRIs of a relation's direct property, claim and statement value.

    Raises:
        ValueError: neither a Wikidata property nor a name in angle brackets.
    """
    if _WIKIDATA_PROPERTY.fullmatch(relation):
        return DIRECT + relation, CLAIM + relation, STATEMENT + relation
    if not re.fullmatch(r"<[\w-]+>", relation):
        raise ValueError(f"relation {relation!r}: write P47 or <name>")
    name = relation.strip("<>")
    return tuple(f"{OWN}{place}:{name}" for place in ("direct", "claim", "statement"))  # type: ignore[return-value]


def relation_id(iri: str) -> str | None:
    """The relation whose direct property an IRI is; None for other IRIs and for types."""
    if iri.startswith(DIRECT) and iri != INSTANCE_OF:
        return iri.removeprefix(DIRECT)
    own = f"{OWN}direct:"
    return f"<{iri.removeprefix(own)}>" if iri.startswith(own) else None
