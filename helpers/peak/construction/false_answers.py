"""Hard and random false answers around an appended answer (PEAK, Appendix A.1)."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from helpers.triples.graph import Graph

HUB = 400  # an entity with more links says little about what two of its neighbours share


@dataclass
class Linked:
    """Which entities are linked with which, remembered from one question to the next.

    Hard false answers have a direct link with o* (in either direction, by any relation) and share a
    type with it; random ones have none. Some entities have too few direct links of their own type:
    a film is linked with people, not with films. There ``steps=2`` also counts entities that share a
    neighbour with o*; random ones then are linked in neither way.
    """

    graph: Graph
    _of_type: dict[str, set[str]] = field(init=False, repr=False)
    _near: dict[str, frozenset[str]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Index entities by type."""
        self._of_type = defaultdict(set)
        for entity in self.graph.entities.values():
            for kind in entity.types:
                self._of_type[kind].add(entity.id)

    def direct(self, identifier: str) -> frozenset[str]:
        """Entities with a link to or from this one."""
        return frozenset(self.graph.neighbours.get(identifier, ()))

    def within_two(self, identifier: str) -> frozenset[str]:
        """Entities linked directly, or sharing a neighbour that is no hub."""
        if identifier not in self._near:
            near = set(self.graph.neighbours.get(identifier, ()))
            for neighbour in tuple(near):
                beyond = self.graph.neighbours[neighbour]
                if len(beyond) <= HUB:
                    near |= beyond
            self._near[identifier] = frozenset(near - {identifier})
        return self._near[identifier]

    def same_type(self, identifier: str) -> set[str]:
        """Other entities that share a type with this one."""
        kinds = self.graph.entities[identifier].types
        found = set().union(*(self._of_type[kind] for kind in kinds)) if kinds else set()
        return found - {identifier}


def sample_false_answers(
    linked: Linked,
    target: str,
    *,
    excluded: Iterable[str],
    hard: tuple[int, int],
    random_count: int,
    random_type: str,
    steps: int,
    rng: random.Random,
) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Labels of hard and of random false answers, or None when there are too few.

    Args:
        target: identifier of o*.
        excluded: labels that must not occur: all known answers, o* itself, the subject.
        hard: fewest and most hard false answers.
        random_count: number of random ones.
        random_type: ``"same"`` type as o* (the paper) or ``"any"`` (as the official file has it).
        steps: 1 for direct links only (the paper), 2 to fall back on shared neighbours.

    Raises:
        ValueError: an unknown ``random_type`` or ``steps``.
    """
    if random_type not in ("same", "any") or steps not in (1, 2):
        raise ValueError(
            f"random_type {random_type!r} must be 'same' or 'any', steps {steps} 1 or 2"
        )
    taken = {label.casefold() for label in excluded}
    peers = linked.same_type(target)
    for near in [linked.direct, linked.within_two][:steps]:
        links = near(target)
        hard_labels = _sample(linked.graph, sorted(links & peers), taken, hard[1], rng)
        if len(hard_labels) < hard[0]:
            continue
        pool = peers if random_type == "same" else set(linked.graph.entities) - {target}
        also_taken = taken | {label.casefold() for label in hard_labels}
        random_labels = _sample(linked.graph, sorted(pool - links), also_taken, random_count, rng)
        if len(random_labels) == random_count:
            return hard_labels, random_labels
    return None


def _sample(
    graph: Graph, identifiers: Sequence[str], taken: set[str], number: int, rng: random.Random
) -> tuple[str, ...]:
    """Up to ``number`` labels in random order, none twice up to case, none taken."""
    labels: list[str] = []
    used = set(taken)
    enough = min(len(identifiers), number + len(taken))  # so many, even if all taken are drawn
    for identifier in rng.sample(identifiers, enough):
        label = graph.label(identifier)
        if label.casefold() not in used:
            used.add(label.casefold())
            labels.append(label)
            if len(labels) == number:
                break
    return tuple(labels)
