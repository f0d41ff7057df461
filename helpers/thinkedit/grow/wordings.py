"""How the relations of recalled graphs are worded (packaged YAML), and what a triple store proposes in them.

A store proposes candidates; Algorithm 1 decides whether the model knows them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cache, cached_property

import yaml
from pydantic import TypeAdapter

from helpers.paths import PACKAGED
from helpers.records import comparable
from helpers.triples.graph import Graph, read_graph
from helpers.triples.sources import open_source


@dataclass(frozen=True)
class Wording:
    """One relation: ``reads`` connects subject and object; ``questions``, in the order they are tried, and
    ``clozes`` have one ``{}`` each. The wording does not fit the subjects ``unfit``.
    """

    reads: str
    questions: tuple[str, ...]
    clozes: tuple[str, ...]
    unfit: tuple[str, ...] = ()

    @cached_property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        """Patterns of the relation's sentences: ``reads`` or a cloze, then an object."""
        escaped = (re.escape(text) for text in (f"{{}} {self.reads}", *self.clozes))
        texts = (text.replace(r"\{\}", "(?P<subject>.+?)") for text in escaped)
        return tuple(re.compile(rf"{t} (?:the )?(?P<object>.+?)\.?", re.IGNORECASE) for t in texts)


@dataclass(frozen=True)
class Wordings:
    """All relations, solved (question, answer) examples, and aliases by case-folded entity."""

    relations: dict[str, Wording] = field(default_factory=dict)
    examples: tuple[tuple[str, str], ...] = ()
    aliases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    canonical: dict[str, str] = field(default_factory=dict)  # case-folded alias → preferred name

    def name(self, label: str) -> str:
        """The name an entity has in recalled graphs."""
        return self.canonical.get(comparable(label), label)

    def read(self, sentence: str) -> tuple[str, str, str] | None:
        """The fact that a sentence words as one of the relations does: subject, ``reads``, object."""
        for wording in self.relations.values():
            for pattern in wording.patterns:
                if found := pattern.fullmatch(sentence):
                    return found["subject"], wording.reads, found["object"]
        return None


@cache
def read_wordings() -> Wordings:
    """The packaged wordings."""
    content = yaml.safe_load((PACKAGED / "thinkedit" / "wordings.yaml").read_text("utf-8"))
    relations = TypeAdapter(dict[str, Wording]).validate_python(content["relations"])
    aliases = content["aliases"].items()
    return Wordings(
        relations,
        tuple((question, answer) for question, answer in content["examples"]),
        {comparable(name): tuple(others) for name, others in aliases},
        {comparable(other): name for name, others in aliases for other in others},
    )


@dataclass(frozen=True, order=True)
class Proposal:
    """A candidate fact; ``relation`` is one of the wordings', ``source`` names its store."""

    subject: str
    relation: str
    object: str
    source: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Case-folded identity, whoever proposed it."""
        return comparable(self.subject), self.relation, comparable(self.object)


@cache
def store_neighbours(source: str) -> dict[str, list[Proposal]]:
    """``neighbours`` in a source, in the packaged wordings."""
    wordings = read_wordings()
    parts = {part for relation in wordings.relations for part in relation.split("/")}
    properties = sorted({part.removeprefix("re_") for part in parts})
    return neighbours(read_graph(open_source(source), properties), wordings, source)


def neighbours(graph: Graph, wordings: Wordings, source: str) -> dict[str, list[Proposal]]:
    """All facts of a store in the wordings' relations, by case-folded subject.

    ``re_P36`` follows P36 backwards; ``P17/P30`` follows P17, then P30, where both have a single object.
    """
    names = {i: wordings.name(graph.label(i)) for i in _bearers(graph)}
    by_subject: dict[str, dict[tuple[str, str, str], Proposal]] = defaultdict(dict)
    for relation, wording in wordings.relations.items():
        for subject, goal in sorted(_pairs(graph, relation)):
            if {subject, goal} <= names.keys() and names[subject] not in wording.unfit:
                proposal = Proposal(names[subject], relation, names[goal], source)
                if proposal.key[0] != proposal.key[2]:
                    by_subject[proposal.key[0]].setdefault(proposal.key, proposal)
    return {subject: list(proposals.values()) for subject, proposals in by_subject.items()}


def _bearers(graph: Graph) -> set[str]:
    """The entities that keep their label, because a prompt names no other: the country Niger, not the region.

    Of several it is the subject of most facts. A place in the same country (a city and the region around
    it), or in the bearer itself (Singapore), also keeps the label: they are taken for one place.
    """
    facts = Counter[str]()
    countries = defaultdict[str, set[str]](set)
    for edge in graph.edges:
        facts[edge.subject] += 1
        if edge.relation == "P17":
            countries[edge.subject].add(edge.object)
        if edge.relation in {"P36", "P150"}:
            countries[edge.object].add(edge.subject)
    alike = defaultdict[str, list[str]](list)
    for identifier, entity in graph.entities.items():
        alike[comparable(entity.label)].append(identifier)
    kept = set()
    for ids in alike.values():
        bearer = max(ids, key=lambda i: (facts[i], i))
        kept |= {bearer, *(i for i in ids if countries[i] & (countries[bearer] | {bearer}))}
    return kept


def _pairs(graph: Graph, relation: str) -> set[tuple[str, str]]:
    """(subject, object) of a relation, its inverse, or a composition of two."""
    objects: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for (subject, name), goals in graph.answers.items():
        objects[name][subject] = list(goals)
    first, _, second = relation.partition("/")
    if not second:
        return {(s, o) for s, goals in objects[first].items() for o in goals}
    one, two = ({s: o[0] for s, o in objects[r].items() if len(o) == 1} for r in (first, second))
    return {(subject, two[middle]) for subject, middle in one.items() if middle in two}
