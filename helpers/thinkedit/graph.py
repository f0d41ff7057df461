"""Knowledge graphs of facts, and what they imply (Definitions 1 and 2).

A graph is a ``networkx.DiGraph``: nodes are case-folded entity names with their first spelling as
``label``; an edge carries its ``relation``. An ordered pair has at most one (the paper's own restriction).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import networkx as nx

from helpers.records import comparable
from helpers.thinkedit.knowgic import Chain, ChainFact, EditedGraph

MAX_STEPS = 5  # the paper's bound


@dataclass(frozen=True, order=True)
class Triplet:
    """A fact (subject, relation, object), e.g. ("Harry Potter", "studied at", "Hogwarts")."""

    subject: str
    relation: str
    object: str

    def __str__(self) -> str:
        return f"({self.subject}, {self.relation}, {self.object})"

    @property
    def key(self) -> tuple[str, str, str]:
        """Case-folded identity."""
        return comparable(self.subject), comparable(self.relation), comparable(self.object)

    @property
    def prompt(self) -> str:
        """Cloze with a slot for the subject: the relation is worded to read on after it."""
        return ("{}" if self.relation.startswith("'") else "{} ") + self.relation

    @classmethod
    def of(cls, fact: ChainFact) -> Triplet:
        """The triplet of a published fact; its relation is the cloze without the slot."""
        return cls(fact.subject, fact.prompt.replace("{}", "").strip(), fact.object)


def check_triplet(triplet: Triplet) -> None:
    """Raise ``ValueError`` for a triplet with an empty part, or of an entity with itself."""
    if not all(key_part.strip() for key_part in triplet.key):
        raise ValueError(f"triplet {triplet} has an empty part")
    if triplet.key[0] == triplet.key[2]:
        raise ValueError(f"triplet {triplet} links an entity to itself; remove it")


def knowledge_graph(triplets: Iterable[Triplet]) -> nx.DiGraph:
    """Graph of triplets; a second relation for the same ordered pair is omitted (first come)."""
    graph = nx.DiGraph()
    for triplet in triplets:
        add_triplet(graph, triplet)
    return graph


def graph_of_facts(facts: Iterable[ChainFact]) -> nx.DiGraph:
    """Graph of published facts."""
    return knowledge_graph(map(Triplet.of, facts))


def add_triplet(graph: nx.DiGraph, triplet: Triplet, **attributes: Any) -> bool:
    """Add one edge in place; false when this ordered pair already has a relation, which stays."""
    check_triplet(triplet)
    subject_node, _, object_node = triplet.key
    if graph.has_edge(subject_node, object_node):
        return False
    for node, label in ((subject_node, triplet.subject), (object_node, triplet.object)):
        if node not in graph:
            graph.add_node(node, label=label)
    graph.add_edge(subject_node, object_node, relation=triplet.relation, **attributes)
    return True


def triplets(graph: nx.DiGraph) -> Iterator[Triplet]:
    """The graph's edges as triplets, in order of insertion."""
    labels = graph.nodes.data("label")
    for subject_node, object_node, relation in graph.edges.data("relation"):
        yield Triplet(labels[subject_node], relation, labels[object_node])


def deductive_closure(graph: nx.DiGraph, *, steps: int) -> set[tuple[str, ...]]:
    """Ω(G): subject, relations passed and object of each simple path of at most ``steps`` (Definition 1)."""
    labels = graph.nodes.data("label")
    closure = set()
    for subject_node in graph:
        other_nodes = [node for node in graph if node != subject_node]
        for edge_path in nx.all_simple_edge_paths(graph, subject_node, other_nodes, cutoff=steps):
            relations = tuple(graph.edges[edge]["relation"] for edge in edge_path)
            closure.add((labels[subject_node], *relations, labels[edge_path[-1][1]]))
    return closure


def edited_triplet(edit: EditedGraph) -> Triplet:
    """The fact that an edit is about, worded as in its graph (the edit's own prompt often differs)."""
    if edit.direct_fact is not None:
        return Triplet.of(edit.direct_fact)
    return Triplet(edit.subject, edit.prompt.replace("{}", "").strip(), edit.original)


def is_deep_edited(graph_after: nx.DiGraph, fact: Triplet, *, steps: int) -> bool:
    """Whether no path of at most ``steps`` facts still implies ``fact`` (Definition 2)."""
    return not any(
        # A single edge implies it only with the same relation.
        len(chain) > 1 or chain[0].key[1] == fact.key[1]
        for chain in simple_chains(graph_after, fact.subject, fact.object, max_steps=steps)
    )


def deep_if_only_replaced(edit: EditedGraph) -> dict[int, bool]:
    """For each number of steps, whether an edit would be deep that replaces the direct fact and no other."""
    old_fact = edited_triplet(edit)
    new_fact = Triplet(edit.subject, old_fact.relation, edit.new)
    facts_after = [
        new_fact if fact == old_fact else fact for fact in triplets(graph_of_facts(edit.facts))
    ]
    graph_after = knowledge_graph(facts_after)
    return {
        step_limit: is_deep_edited(graph_after, old_fact, steps=step_limit)
        for step_limit in range(1, MAX_STEPS + 1)
    }


def simple_chains(
    graph: nx.DiGraph, start: str, goal: str, *, max_steps: int = MAX_STEPS
) -> list[tuple[Triplet, ...]]:
    """All simple paths of at most ``max_steps`` facts, shortest first; none when an end is absent."""
    start_node = comparable(start)
    goal_node = comparable(goal)
    if start_node not in graph or goal_node not in graph:
        return []
    paths = nx.all_simple_paths(graph, start_node, goal_node, cutoff=max_steps)
    labels = graph.nodes.data("label")
    return [
        tuple(
            Triplet(labels[tail], graph.edges[tail, head]["relation"], labels[head])
            for tail, head in pairwise(path)
        )
        for path in sorted(paths, key=lambda path: (len(path), path))
    ]


def as_edit(graph: nx.DiGraph, fact: Triplet, *, new: str, case_id: int = 0) -> EditedGraph:
    """An edit in KnowGIC's form, from a graph grown around ``fact`` with validated questions."""

    def fact_with_question(triplet: Triplet) -> ChainFact:
        question = graph.edges[triplet.key[0], triplet.key[2]].get("question")
        if not question:
            raise ValueError(f"{triplet} has no validated question; validate it first")
        return ChainFact(triplet.subject, triplet.prompt, triplet.object, question)

    triplet_chains = simple_chains(graph, fact.subject, fact.object)
    if not triplet_chains:
        raise ValueError(f"no chain of at most {MAX_STEPS} steps implies {fact}")
    chains = tuple(
        Chain(tuple(map(fact_with_question, triplet_chain))) for triplet_chain in triplet_chains
    )
    return EditedGraph(case_id, fact.subject, fact.prompt, fact.object, new, chains)
