"""Who proposes facts (Algorithm 2), and who decides where the paper asks human experts.

A triple store proposes candidates; Algorithm 1 decides whether the model knows them. The pipeline yields
a ``Review`` and continues with a ``Decision``. Two occasions: *refine* (the object did not occur in the
responses; give another question or path, or discard) and *prune* (which candidates are facts, and which
are missing). A person decides at ``grow.panel``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from helpers.scoring.naming import mentions
from helpers.thinkedit.graph import Triplet, check_triplet
from helpers.thinkedit.grow.wordings import Wordings
from helpers.triples.graph import Graph, read_graph
from helpers.triples.sources import open_source


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
        return self.subject.casefold(), self.relation, self.object.casefold()


Proposer = Callable[[Iterable[str]], list[Proposal]]  # facts about the entities


def store_neighbours(source: str, wordings: Wordings) -> dict[str, list[Proposal]]:
    """The proposals of a source by case-folded subject; see ``neighbours``."""
    parts = {part for relation in wordings.relations for part in relation.split("/")}
    plain = sorted({part.removeprefix("re_") for part in parts})
    return neighbours(read_graph(open_source(source), plain), wordings, source)


def neighbours(graph: Graph, wordings: Wordings, source: str) -> dict[str, list[Proposal]]:
    """All facts of a store in the wordings' relations, by case-folded subject.

    ``re_P36`` follows P36 backwards; ``P17/P30`` follows P17, then P30, where both have a single object.
    A prompt names an entity by its label, so a label denotes one entity of the store: the country
    Niger, not the region of Nigeria (see ``_bearers``).
    """
    names = {i: wordings.name(graph.label(i)) for i in _bearers(graph)}
    found: dict[str, dict[tuple[str, str, str], Proposal]] = defaultdict(dict)
    for relation, wording in wordings.relations.items():
        for subject, goal in sorted(_pairs(graph, relation)):
            if {subject, goal} <= names.keys() and names[subject] not in wording.unfit:
                proposal = Proposal(names[subject], relation, names[goal], source)
                if proposal.key[0] != proposal.key[2]:
                    found[proposal.key[0]].setdefault(proposal.key, proposal)
    return {subject: list(proposals.values()) for subject, proposals in found.items()}


def about(store: dict[str, list[Proposal]]) -> Proposer:
    """The proposer of a store's neighbours."""
    return lambda entities: [p for entity in entities for p in store.get(entity.casefold(), ())]


def proposed_triplets(
    proposer: Proposer, wordings: Wordings, entities: Iterable[str], *, near: Container[str]
) -> list[Triplet]:
    """Proposals in words, one per subject and relation; of several objects one that is ``near``.

    A case-folded entity of the graph is near: it can close a chain.
    """
    found: dict[tuple[str, str], Triplet] = {}
    for proposal in proposer(entities):
        reads = wordings.relations[proposal.relation].reads
        triplet = Triplet(proposal.subject, reads, proposal.object)
        own, other = triplet.key[:2], triplet.key[2]
        if own not in found or (other in near and found[own].key[2] not in near):
            found[own] = triplet
    return list(found.values())


def _bearers(graph: Graph) -> set[str]:
    """The entities that keep their label: of several the one that is the subject of most facts.

    A place that lies in the same country as the bearer (a city and the region around it), or in the
    bearer itself (Singapore), also keeps the label: they are taken for one place.
    """
    facts, countries = Counter[str](), defaultdict[str, set[str]](set)
    for edge in graph.edges:
        facts[edge.subject] += 1
        if edge.relation == "P17":
            countries[edge.subject].add(edge.object)
        if edge.relation in {"P36", "P150"}:
            countries[edge.object].add(edge.subject)
    alike = defaultdict[str, list[str]](list)
    for identifier, entity in graph.entities.items():
        alike[entity.label.casefold()].append(identifier)
    kept = set()
    for ids in alike.values():
        bearer = max(ids, key=lambda i: (facts[i], i))
        kept |= {bearer, *(i for i in ids if countries[i] & (countries[bearer] | {bearer}))}
    return kept


def _pairs(graph: Graph, relation: str) -> set[tuple[str, str]]:
    """(subject, object) of a relation, its inverse, or a composition of two."""

    def answers(name: str) -> dict[str, list[str]]:
        return {s: list(objects) for (s, r), objects in graph.answers.items() if r == name}

    first, _, second = relation.partition("/")
    if not second:
        return {(s, o) for s, objects in answers(first).items() for o in objects}
    one, two = ({s: o[0] for s, o in answers(r).items() if len(o) == 1} for r in (first, second))
    return {(subject, two[middle]) for subject, middle in one.items() if middle in two}


@dataclass(frozen=True)
class Review:
    """Something to decide: ``path`` is the triplet or chain behind the question."""

    occasion: Literal["refine", "prune"]
    question: str
    path: tuple[Triplet, ...]
    responses: tuple[str, ...]
    candidates: tuple[Triplet, ...] = ()


@dataclass(frozen=True)
class Decision:
    """What was decided.

    ``discard`` gives up the question (refine only), ``alias`` accepts a word of the responses as another
    name of the object (refine only). Otherwise ``question`` and ``path`` are asked again (refine), or
    ``triplets`` are kept (prune).
    """

    discard: bool = False
    question: str = ""
    path: tuple[Triplet, ...] = ()
    triplets: tuple[Triplet, ...] = ()
    alias: str = ""

    def check(self, review: Review) -> None:
        """Raise ``ValueError`` where the decision does not answer the review, or holds no facts."""
        for triplet in (*self.path, *self.triplets):
            check_triplet(triplet)
        if review.occasion == "prune":
            if self.discard or self.path or self.alias:
                raise ValueError("a pruning decision lists the triplets to keep, nothing else")
        elif self.alias:
            if not any(mentions(response, (self.alias,)) for response in review.responses):
                raise ValueError(
                    f"no response to refine holds {self.alias!r}: a synonym must occur"
                )
        elif not self.discard:
            if not self.question.strip() or not self.path:
                raise ValueError("a refinement needs a question and a triplet or chain")
            if any(a.key[2] != b.key[0] for a, b in pairwise(self.path)):
                raise ValueError("the refined chain does not hang together")


Reviewer = Callable[[Review], Decision]


def keep_all(review: Review) -> Decision:
    """Accept what validates: keep every candidate, discard what does not validate."""
    if review.occasion == "prune":
        return Decision(triplets=review.candidates)
    return Decision(discard=True)
