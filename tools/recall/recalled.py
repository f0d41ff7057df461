"""From recalled facts to edits in KnowGIC's form: the graph, its chains, new objects, and what was lost.

An edit is a recalled fact with more ways around it: chains of two to five recalled facts that lead from
its subject to its object. Everything is drawn by a seed, and the edits come in random order, so that
the first ones are a random sample of all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice, pairwise

import networkx as nx
import numpy as np
import pandas as pd

from helpers.thinkedit.chains import MAX_STEPS
from helpers.thinkedit.edits import Chain, Edit, Fact
from helpers.thinkedit.graph import Triplet, add_triplet

Edge = tuple[str, str]
LINKS = ("proposed", "likely", "asked", "validated", "in the graph", "on a kept chain")


@dataclass(frozen=True)
class Selection:
    """How edits are taken from a graph.

    Attributes:
        edits: how many, at most; relations take turns.
        per_length: chains of each length kept per edit, at most (drawn), so that no edit holds most.
        per_object: edits with the same relation and object, at most.
        most_paths: chains looked at per edit.
        seed: of all draws.
    """

    edits: int = 400
    per_length: int = 4
    per_object: int = 20
    most_paths: int = 5_000
    seed: int = 0


@dataclass(frozen=True)
class Recalled:
    """Edits, and how many links and chains each stage left.

    ``links`` has one row per relation and ``all``, a column per stage of ``LINKS``; ``chains`` one row
    per number of steps: ``found`` around the chosen edits and ``kept``.
    """

    edits: tuple[Edit, ...]
    links: pd.DataFrame
    chains: pd.DataFrame


def recalled_graph(facts: pd.DataFrame) -> nx.DiGraph:
    """The validated facts as a graph; of two facts about the same ordered pair the likelier stays.

    Args:
        facts: table of ``recalling.recalled_facts``.
    """
    graph = nx.DiGraph()
    validated = facts[facts["validated"]].sort_values("probability", ascending=False, kind="stable")
    names = ["subject", "cloze", "object", "question", "relation"]
    for *parts, relation in validated[names].to_numpy(str):
        fact = Fact(*map(str, parts))
        add_triplet(graph, Triplet.of(fact), fact=fact, kind=str(relation))
    return graph


def recalled_edits(facts: pd.DataFrame, selection: Selection | None = None) -> Recalled:
    """Take edits with their chains from a model's recalled facts.

    Args:
        facts: table of ``recalling.recalled_facts``.
        selection: how many, and how they are drawn.

    Raises:
        ValueError: no recalled fact has a way around it.
    """
    selection = selection or Selection()
    rng = np.random.default_rng(selection.seed)
    graph = recalled_graph(facts)
    found: dict[Edge, list[list[str]]] = {}
    for edge in _turns(graph, rng):
        if len(found) < selection.edits and _wanted(graph, edge, found, selection):
            paths = nx.all_simple_paths(graph, *edge, cutoff=MAX_STEPS)
            several = list(islice(paths, selection.most_paths))
            if len(several) > 1:
                found[edge] = several
    if not found:
        raise ValueError("no recalled fact has a second way from its subject to its object")
    order = [list(found)[i] for i in rng.permutation(len(found))]
    kept = {edge: _kept(found[edge], selection.per_length, rng) for edge in order}
    answers = _answers(facts)
    edits = tuple(
        _edit(graph, edge, kept[edge], answers, case_id, rng)
        for case_id, edge in enumerate(order, start=1)
    )
    return Recalled(edits, _links(facts, graph, kept), _lengths(found, kept))


def _turns(graph: nx.DiGraph, rng: np.random.Generator) -> list[Edge]:
    """All edges in random order, relations taking turns."""
    by_relation: dict[str, list[Edge]] = defaultdict(list)
    edges = list(graph.edges)
    for i in rng.permutation(len(edges)):
        by_relation[graph.edges[edges[i]]["kind"]].append(edges[i])
    ranked = [
        (place, relation, edge)
        for relation, own in sorted(by_relation.items())
        for place, edge in enumerate(own)
    ]
    return [edge for _, _, edge in sorted(ranked, key=lambda entry: entry[:2])]


def _wanted(
    graph: nx.DiGraph, edge: Edge, found: Mapping[Edge, object], selection: Selection
) -> bool:
    """Whether the subject is not edited yet, and few edits have this relation and object."""
    kind = graph.edges[edge]["kind"]
    same = sum(goal == edge[1] and graph.edges[s, goal]["kind"] == kind for s, goal in found)
    others = {graph.edges[e]["fact"].object for e in graph.edges if graph.edges[e]["kind"] == kind}
    return (
        same < selection.per_object
        and len(others) > 2
        and all(edge[0] != subject for subject, _ in found)
    )


def _kept(paths: list[list[str]], per_length: int, rng: np.random.Generator) -> list[list[str]]:
    """So many paths of each length, shortest first."""
    by_length: dict[int, list[list[str]]] = defaultdict(list)
    for i in rng.permutation(len(paths)):
        by_length[len(paths[i])].append(paths[i])
    return [path for _, own in sorted(by_length.items()) for path in own[:per_length]]


def _answers(facts: pd.DataFrame) -> dict[str, dict[str, set[str]]]:
    """Relation → case-folded subject → case-folded objects that are proposed, known or not."""
    answers: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for relation, subject, goal in facts[["relation", "subject", "object"]].to_numpy(str):
        answers[relation][subject.casefold()].add(goal.casefold())
    return answers


def _edit(
    graph: nx.DiGraph,
    edge: Edge,
    paths: list[list[str]],
    answers: Mapping[str, Mapping[str, set[str]]],
    case_id: int,
    rng: np.random.Generator,
) -> Edit:
    """The edit to another object of the relation: no answer, and not on the edit's own chains."""
    kind, fact = graph.edges[edge]["kind"], graph.edges[edge]["fact"]
    objects = {graph.edges[e]["fact"].object for e in graph.edges if graph.edges[e]["kind"] == kind}
    passed = {name for path in paths for name in path}
    other = sorted(o for o in objects if o.casefold() not in answers[kind][edge[0]] | passed)
    fallback = sorted(o for o in objects if o.casefold() not in answers[kind][edge[0]])
    new = str(rng.choice(other or fallback))
    chains = tuple(Chain(tuple(graph.edges[e]["fact"] for e in pairwise(path))) for path in paths)
    return Edit(case_id, fact.subject, fact.prompt, fact.object, new, chains)


def _links(
    facts: pd.DataFrame, graph: nx.DiGraph, kept: Mapping[Edge, list[list[str]]]
) -> pd.DataFrame:
    """How many links of each relation every stage left."""
    stages = {"proposed": facts, "likely": facts[facts["likely"]]}
    stages["asked"] = facts[facts["asked"]]
    counts = {name: table["relation"].value_counts() for name, table in stages.items()}
    counts["validated"] = facts.loc[facts["validated"], "relation"].value_counts()
    kinds = graph.edges.data("kind")
    counts["in the graph"] = pd.Series(Counter(kind for _, _, kind in kinds))
    used = {e for paths in kept.values() for path in paths for e in pairwise(path)}
    counts["on a kept chain"] = pd.Series(Counter(graph.edges[e]["kind"] for e in used))
    table = pd.DataFrame(counts).reindex(columns=list(LINKS)).fillna(0).astype(int)
    table = table.sort_values(["proposed", "validated"], ascending=False, kind="stable")
    table.loc["all"] = table.sum()
    return table.rename_axis(index="relation").reset_index()


def _lengths(
    found: Mapping[Edge, list[list[str]]], kept: Mapping[Edge, list[list[str]]]
) -> pd.DataFrame:
    """Chains around the chosen edits by number of steps."""
    counted = {
        name: Counter(len(path) - 1 for paths in by_edge.values() for path in paths)
        for name, by_edge in (("found", found), ("kept", kept))
    }
    rows = [(n, counted["found"][n], counted["kept"][n]) for n in range(1, MAX_STEPS + 1)]
    return pd.DataFrame(rows, columns=["steps", "found", "kept"])
