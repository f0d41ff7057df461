"""Who proposes new facts about an entity (Algorithm 2): a triple store, a person; or the model itself.

A proposal is only a candidate: Algorithm 1 decides whether the model knows it. The model's own
reasoning proposes inside ``helpers.thinkedit.grow.pipeline``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from helpers.scoring.naming import mentions
from helpers.thinkedit.graph import Triplet, check_triplet
from helpers.thinkedit.grow.journal import JournalError, decisions
from helpers.thinkedit.grow.wordings import Wordings
from helpers.triples.labelled_graph import Graph, read_graph
from helpers.triples.sources import open_source

INVERSE = "re_"


@dataclass(frozen=True, order=True)
class Proposal:
    """A candidate fact; ``relation`` is one of the wordings', ``source`` says who proposed it."""

    subject: str
    relation: str
    object: str
    source: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Case-folded identity, whoever proposed it."""
        return self.subject.casefold(), self.relation, self.object.casefold()


class Proposer(Protocol):
    """Proposes facts whose subject is one of the entities."""

    def propose(self, entities: Iterable[str]) -> list[Proposal]:
        """Candidates in a fixed order, each once."""
        ...


@dataclass(frozen=True)
class StoreNeighbours:
    """The neighbours in a triple store: packaged facts, CoDEx, an endpoint (see ``triples.sources``).

    Args:
        graph: what was read from the store.
        wordings: of the relations to propose. ``re_P36`` follows P36 backwards; ``P17/P30`` follows
            P17, then P30, where both have a single object.
        source: the store's name.

    A prompt names an entity by its label, so a label stands for one entity of the store: the country
    Niger, not the region of Nigeria (see ``_bearers``).
    """

    graph: Graph
    wordings: Wordings
    source: str
    _found: dict[str, list[Proposal]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Index all neighbours by case-folded subject."""
        found: dict[str, dict[tuple[str, str, str], Proposal]] = defaultdict(dict)
        labels = {i: self.graph.label(i) for i in _bearers(self.graph)}
        names = {i: self.wordings.name(label) for i, label in labels.items()}
        for relation, wording in self.wordings.relations.items():
            for subject, goal in sorted(_pairs(self.graph, relation)):
                if not {subject, goal} <= names.keys() or names[subject] in wording.unfit:
                    continue
                proposal = Proposal(names[subject], relation, names[goal], self.source)
                if proposal.key[0] != proposal.key[2]:
                    found[proposal.key[0]].setdefault(proposal.key, proposal)
        object.__setattr__(self, "_found", {s: list(p.values()) for s, p in found.items()})

    def propose(self, entities: Iterable[str]) -> list[Proposal]:
        """What the store says about the entities."""
        return [p for entity in entities for p in self._found.get(entity.casefold(), ())]

    def holds(self, triplet: Triplet) -> bool:
        """Whether the store says this, in the wordings' words."""
        said = self.propose([triplet.subject])
        reads = {(self.wordings.relations[p.relation].reads.casefold(), p.key[2]) for p in said}
        return triplet.key[1:] in reads

    def subjects(self, relation: str) -> list[str]:
        """Entities that the store has this relation of."""
        return sorted(
            {p.subject for ps in self._found.values() for p in ps if p.relation == relation}
        )


@dataclass(frozen=True)
class Listed:
    """What a person (or a file) proposes: a list of facts."""

    proposals: Sequence[Proposal]

    def propose(self, entities: Iterable[str]) -> list[Proposal]:
        """Those about the entities."""
        wanted = {entity.casefold() for entity in entities}
        return [p for p in self.proposals if p.key[0] in wanted]


@dataclass(frozen=True)
class Together:
    """Several proposers; of the same fact, the first one's proposal counts."""

    proposers: Sequence[Proposer]

    def propose(self, entities: Iterable[str]) -> list[Proposal]:
        """The candidates of all."""
        asked = list(entities)
        found: dict[tuple[str, str, str], Proposal] = {}
        for proposer in self.proposers:
            for proposal in proposer.propose(asked):
                found.setdefault(proposal.key, proposal)
        return list(found.values())


def store_neighbours(source: str, wordings: Wordings) -> StoreNeighbours:
    """The proposer of a source (see ``triples.sources.open_source``), with the relations worded."""
    parts = {part for relation in wordings.relations for part in relation.split("/")}
    plain = sorted({part.removeprefix(INVERSE) for part in parts})
    return StoreNeighbours(read_graph(open_source(source), plain), wordings, source)


def proposed_triplets(
    proposer: Proposer, wordings: Wordings, entities: Iterable[str], *, near: Container[str]
) -> list[Triplet]:
    """Proposals in words, one per subject and relation.

    Args:
        proposer: who proposes.
        wordings: of the relations.
        entities: what to propose about.
        near: case-folded entities; of several objects one of these is taken, since it can close a chain.
    """
    found: dict[tuple[str, str], Triplet] = {}
    for proposal in proposer.propose(entities):
        reads = wordings.relations[proposal.relation].reads
        triplet = Triplet(proposal.subject, reads, proposal.object)
        own, other = triplet.key[:2], triplet.key[2]
        if own not in found or (other in near and found[own].key[2] not in near):
            found[own] = triplet
    return list(found.values())


def _bearers(graph: Graph) -> set[str]:
    """The entities that keep their label: of several the one that is the subject of most facts.

    A place that lies in the same country as the bearer (a city and the region around it), or in the
    bearer itself (Singapore), keeps the label, too: they are taken for one place.
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
    bearers = {label: max(ids, key=lambda i: (facts[i], i)) for label, ids in alike.items()}
    return {
        i
        for label, ids in alike.items()
        for i in ids
        if i == bearers[label] or countries[i] & (countries[bearers[label]] | {bearers[label]})
    }


def _pairs(graph: Graph, relation: str) -> set[tuple[str, str]]:
    """(subject, object) of a relation, its inverse, or a composition of two."""
    first, _, second = relation.partition("/")
    if second:
        one, two = _single(_pairs(graph, first)), _single(_pairs(graph, second))
        return {(subject, two[middle]) for subject, middle in one.items() if middle in two}
    plain = first.removeprefix(INVERSE)
    edges = {(e.subject, e.object) for e in graph.edges if e.relation == plain}
    return {(o, s) for s, o in edges} if first.startswith(INVERSE) else edges


def _single(pairs: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Objects of the subjects that have exactly one."""
    objects: dict[str, set[str]] = defaultdict(set)
    for subject, goal in pairs:
        objects[subject].add(goal)
    return {subject: next(iter(found)) for subject, found in objects.items() if len(found) == 1}


Occasion = Literal["refine", "prune"]


@dataclass(frozen=True)
class Review:
    """Something to decide: ``path`` is the triplet or chain behind the question."""

    occasion: Occasion
    question: str
    path: tuple[Triplet, ...]
    responses: tuple[str, ...]
    candidates: tuple[Triplet, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """JSON values, as the journal keeps them."""
        return asdict(self)


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

    def as_json(self) -> dict[str, Any]:
        """JSON values, as the journal keeps them."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Decision:
        """Read ``as_json`` back."""
        paths = {
            name: tuple(Triplet(**triplet) for triplet in value[name])
            for name in ("path", "triplets")
        }
        return cls(
            bool(value["discard"]), str(value["question"]), **paths, alias=value.get("alias", "")
        )

    def check(self, review: Review) -> None:
        """Raise ``ValueError`` where the decision does not answer the review, or holds no facts."""
        for triplet in (*self.path, *self.triplets):
            check_triplet(triplet)
        if review.occasion == "prune" and (self.discard or self.path or self.alias):
            raise ValueError("a pruning decision lists the triplets to keep, nothing else")
        if self.alias:
            if not any(mentions(response, (self.alias,)) for response in review.responses):
                raise ValueError(
                    f"no response to refine holds {self.alias!r}: a synonym must occur"
                )
        elif review.occasion == "refine" and not self.discard:
            if not self.question.strip() or not self.path:
                raise ValueError("a refinement needs a question and a triplet or chain")
            ends = zip(self.path, self.path[1:], strict=False)
            if any(a.key[2] != b.key[0] for a, b in ends):
                raise ValueError("the refined chain does not hang together")


class Reviewer(Protocol):
    """Takes decisions without waiting for anybody."""

    def decide(self, review: Review) -> Decision:
        """Decide one review."""
        ...


class AutomaticReviewer:
    """Accepts what validates: keeps every extracted triplet, discards what does not validate."""

    def decide(self, review: Review) -> Decision:
        """Keep all candidates, or discard."""
        if review.occasion == "prune":
            return Decision(triplets=review.candidates)
        return Decision(discard=True)


class RecordedReviewer:
    """Repeats the decisions of an earlier journal, whichever model answers now.

    A decision is found by its occasion, question, path and candidates; responses may differ. Where a
    review came up several times, its decisions are repeated in their order, the last one from then on.

    Args:
        path: journal of the run in which the decisions were taken.
        otherwise: who decides reviews that the journal does not hold; None refuses them.
    """

    def __init__(self, path: Path, *, otherwise: Reviewer | None = None) -> None:
        self._path = path
        self._otherwise = otherwise
        self._decisions: dict[Review, list[Decision]] = {}
        for entry in decisions(path):
            review = _without_responses(_review_from_json(entry["review"]))
            self._decisions.setdefault(review, []).append(Decision.from_json(entry["decision"]))

    def decide(self, review: Review) -> Decision:
        """Look the decision up.

        Raises:
            JournalError: the journal holds none and there is nobody else to ask.
        """
        recorded = self._decisions.get(_without_responses(review))
        if recorded:
            return recorded.pop(0) if len(recorded) > 1 else recorded[0]
        if self._otherwise is None:
            raise JournalError(
                f"{self._path} holds no decision for {review.occasion} {review.question!r};"
                " review it interactively, or name a reviewer for such cases (otherwise=)"
            )
        return self._otherwise.decide(review)


def _without_responses(review: Review) -> Review:
    return replace(review, responses=())


def _review_from_json(value: Mapping[str, Any]) -> Review:
    paths = {
        name: tuple(Triplet(**triplet) for triplet in value[name])
        for name in ("path", "candidates")
    }
    return Review(
        occasion=value["occasion"],
        question=value["question"],
        responses=tuple(value["responses"]),
        **paths,
    )
