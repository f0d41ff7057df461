"""How the relations of recalled graphs are worded (packaged YAML), and what a triple store proposes in them.

A store proposes candidates; Algorithm 1 decides whether the model knows them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
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
        patterns = []
        for template in (f"{{}} {self.reads}", *self.clozes):
            with_subject = re.escape(template).replace(r"\{\}", "(?P<subject>.+?)")
            sentence = rf"{with_subject} (?:the )?(?P<object>.+?)\.?"
            patterns.append(re.compile(sentence, re.IGNORECASE))
        return tuple(patterns)


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
                if match := pattern.fullmatch(sentence):
                    return match["subject"], wording.reads, match["object"]
        return None


@cache
def read_wordings() -> Wordings:
    """The packaged wordings."""
    content = yaml.safe_load((PACKAGED / "thinkedit" / "wordings.yaml").read_text("utf-8"))
    relations = TypeAdapter(dict[str, Wording]).validate_python(content["relations"])
    names_and_aliases = content["aliases"].items()
    return Wordings(
        relations,
        tuple((question, answer) for question, answer in content["examples"]),
        {comparable(name): tuple(alias_names) for name, alias_names in names_and_aliases},
        {
            comparable(alias): name
            for name, alias_names in names_and_aliases
            for alias in alias_names
        },
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
    properties: set[str] = set()
    for relation in wordings.relations:
        properties |= {step.removeprefix("re_") for step in relation.split("/")}
    graph = read_graph(open_source(source), sorted(properties))
    return neighbours(graph, wordings, source)


def neighbours(graph: Graph, wordings: Wordings, source: str) -> dict[str, list[Proposal]]:
    """All facts of a store in the wordings' relations, by case-folded subject.

    ``re_P36`` follows P36 backwards; ``P17/P30`` follows P17, then P30, where both have a single object.
    """
    name_of_entity = {
        identifier: wordings.name(graph.label(identifier)) for identifier in _label_bearers(graph)
    }
    proposals_by_subject: dict[str, dict[tuple[str, str, str], Proposal]] = defaultdict(dict)
    for relation, wording in wordings.relations.items():
        for subject_id, object_id in sorted(_subject_object_pairs(graph, relation)):
            if not {subject_id, object_id} <= name_of_entity.keys():
                continue
            subject = name_of_entity[subject_id]
            proposal = Proposal(subject, relation, name_of_entity[object_id], source)
            subject_key, _, object_key = proposal.key
            if subject not in wording.unfit and subject_key != object_key:
                proposals_by_subject[subject_key].setdefault(proposal.key, proposal)
    return {
        subject: list(proposals.values()) for subject, proposals in proposals_by_subject.items()
    }


def _label_bearers(graph: Graph) -> set[str]:
    """The entities that keep their label, because a prompt names no other: the country Niger, not the region.

    Of several it is the subject of most facts. A place in the same country (a city and the region around
    it), or in the bearer itself (Singapore), also keeps the label: they are taken for one place.
    """
    fact_counts = Counter[str]()
    countries_of = defaultdict[str, set[str]](set)
    for edge in graph.edges:
        fact_counts[edge.subject] += 1
        if edge.relation == "P17":
            countries_of[edge.subject].add(edge.object)
        if edge.relation in {"P36", "P150"}:
            countries_of[edge.object].add(edge.subject)
    ids_by_label = defaultdict[str, list[str]](list)
    for identifier, entity in graph.entities.items():
        ids_by_label[comparable(entity.label)].append(identifier)
    bearers = set()
    for ids_of_label in ids_by_label.values():
        bearer = max(ids_of_label, key=lambda entity_id: (fact_counts[entity_id], entity_id))
        bearers |= {
            bearer,
            *(
                entity_id
                for entity_id in ids_of_label
                if countries_of[entity_id] & (countries_of[bearer] | {bearer})
            ),
        }
    return bearers


def _subject_object_pairs(graph: Graph, relation: str) -> set[tuple[str, str]]:
    """(subject, object) of a relation, its inverse, or a composition of two."""
    objects: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for (subject, answered_relation), answers in graph.answers.items():
        objects[answered_relation][subject] = list(answers)
    first_relation, _, second_relation = relation.partition("/")
    if not second_relation:
        return {
            (subject, answer)
            for subject, answers in objects[first_relation].items()
            for answer in answers
        }
    middle_of_subject = _single_objects(objects[first_relation])
    object_of_middle = _single_objects(objects[second_relation])
    return {
        (subject, object_of_middle[middle])
        for subject, middle in middle_of_subject.items()
        if middle in object_of_middle
    }


def _single_objects(objects_by_subject: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The object of each subject that has a single one."""
    return {
        subject: objects[0] for subject, objects in objects_by_subject.items() if len(objects) == 1
    }
