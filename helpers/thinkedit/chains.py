"""From a knowledge graph to implication chains and question sequences (Algorithm 3)."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx

from helpers.thinkedit.edits import Chain, Edit, Fact
from helpers.thinkedit.graph import Triplet

MAX_STEPS = 5  # the paper's bound: longer chains say little about the two ends


def simple_chains(
    graph: nx.DiGraph, start: str, goal: str, *, max_steps: int = MAX_STEPS
) -> list[tuple[Triplet, ...]]:
    """All simple paths from ``start`` to ``goal`` of at most ``max_steps`` facts.

    Returns:
        Chains of triplets, shortest first, then by the entities passed: the same graph always gives
        the same list. Empty when an end is not in the graph; cycles are never passed.
    """
    first, last = start.casefold(), goal.casefold()
    if first not in graph or last not in graph:
        return []
    paths = nx.all_simple_paths(graph, first, last, cutoff=max_steps)
    label = graph.nodes.data("label")
    return [
        tuple(Triplet(label[a], graph.edges[a, b]["relation"], label[b]) for a, b in pairwise(path))
        for path in sorted(paths, key=lambda path: (len(path), path))
    ]


def question_sequence(graph: nx.DiGraph, chain: tuple[Triplet, ...]) -> Chain:
    """The chain's facts with the validated question of each step.

    Raises:
        ValueError: the chain is empty, or a step has no validated question in the graph.
    """
    if not chain:
        raise ValueError("an empty chain has no questions")
    facts = []
    for triplet in chain:
        subject, _, goal = triplet.key
        question = graph.edges[subject, goal].get("question")
        if not question:
            raise ValueError(f"{triplet} has no validated question; validate it first")
        facts.append(Fact(triplet.subject, triplet.prompt, triplet.object, question))
    return Chain(tuple(facts))


def as_edit(
    graph: nx.DiGraph, fact: Triplet, *, new: str, case_id: int = 0, max_steps: int = MAX_STEPS
) -> Edit:
    """An edit in KnowGIC's form, from a graph grown around ``fact``.

    Args:
        graph: graph whose edges carry validated questions.
        fact: the fact to edit.
        new: the object to put in place of the original one.
        case_id: number of the record.
        max_steps: longest chain.

    Raises:
        ValueError: no chain leads from the subject to the object.
    """
    chains = simple_chains(graph, fact.subject, fact.object, max_steps=max_steps)
    if not chains:
        raise ValueError(f"no chain of at most {max_steps} steps implies {fact}")
    sequences = tuple(question_sequence(graph, chain) for chain in chains)
    return Edit(case_id, fact.subject, fact.prompt, fact.object, new, sequences)
