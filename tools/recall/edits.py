"""From recalled facts to edits in KnowGIC's form: the graph, its chains, new objects, and what was lost.

An edit is a recalled fact with more ways around it: chains of two to five recalled facts from its subject
to its object. The edits come in random order, so that the first ones are a random sample of all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import islice, pairwise, zip_longest
from typing import NamedTuple

import networkx as nx
import numpy as np
import pandas as pd

from helpers.records import comparable
from helpers.thinkedit.graph import MAX_STEPS, Triplet, add_triplet
from helpers.thinkedit.knowgic import Chain, ChainFact, EditedGraph

Edge = tuple[str, str]
Paths = dict[Edge, list[list[str]]]
STAGES = ("likely", "asked", "validated")
MOST_EDITS = 400  # relations take turns
PER_OBJECT = 20  # edits with the same relation and object
PER_LENGTH = 4  # chains of each length kept per edit
MOST_PATHS = 5_000  # chains looked at per edit


class Recalled(NamedTuple):
    """Edits, and how many links (by relation) and chains (by steps) each stage left."""

    edits: tuple[EditedGraph, ...]
    links: pd.DataFrame
    chains: pd.DataFrame


def recalled_edits(facts: pd.DataFrame) -> Recalled:
    """Take edits with their chains from a model's recalled facts (``facts.recalled_facts``)."""
    rng = np.random.default_rng(0)
    graph = _graph(facts)
    found: Paths = {}
    for edge in _turns(graph, rng):
        if len(found) < MOST_EDITS and _wanted(graph, edge, found):
            paths = nx.all_simple_paths(graph, *edge, cutoff=MAX_STEPS)
            several = list(islice(paths, MOST_PATHS))
            if len(several) > 1:
                found[edge] = several
    if not found:
        raise ValueError("no recalled fact has a second way from its subject to its object")
    order = [list(found)[i] for i in rng.permutation(len(found))]
    kept = {edge: _kept(found[edge], rng) for edge in order}
    answers: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for relation, subject, goal in facts[["relation", "subject", "object"]].to_numpy(str):
        answers[relation][comparable(subject)].add(comparable(goal))  # proposed, known or not
    edits = tuple(
        _edit(graph, edge, kept[edge], answers, case_id, rng)
        for case_id, edge in enumerate(order, start=1)
    )
    return Recalled(edits, _links(facts, graph, kept), _lengths(found, kept))


def _graph(facts: pd.DataFrame) -> nx.DiGraph:
    """The validated facts; of two about the same ordered pair the more probable stays."""
    graph = nx.DiGraph()
    validated = facts[facts["validated"]].sort_values("probability", ascending=False, kind="stable")
    names = ["subject", "cloze", "object", "question", "relation"]
    for *parts, relation in validated[names].to_numpy(str):
        fact = ChainFact(*map(str, parts))
        add_triplet(graph, Triplet.of(fact), fact=fact, kind=str(relation))
    return graph


def _turns(graph: nx.DiGraph, rng: np.random.Generator) -> list[Edge]:
    """All edges in random order, relations taking turns."""
    by_relation: dict[str, list[Edge]] = defaultdict(list)
    edges = list(graph.edges)
    for i in rng.permutation(len(edges)):
        by_relation[graph.edges[edges[i]]["kind"]].append(edges[i])
    turns = zip_longest(*(own for _, own in sorted(by_relation.items())))
    return [edge for turn in turns for edge in turn if edge]


def _wanted(graph: nx.DiGraph, edge: Edge, found: Paths) -> bool:
    """Whether the subject is not edited yet, and few edits have this relation and object."""
    kind = graph.edges[edge]["kind"]
    same = sum(goal == edge[1] and graph.edges[s, goal]["kind"] == kind for s, goal in found)
    new = all(edge[0] != subject for subject, _ in found)
    return same < PER_OBJECT and len(_objects(graph, kind)) > 2 and new


def _objects(graph: nx.DiGraph, kind: str) -> set[str]:
    return {data["fact"].object for *_, data in graph.edges.data() if data["kind"] == kind}


def _kept(paths: list[list[str]], rng: np.random.Generator) -> list[list[str]]:
    """At most ``PER_LENGTH`` paths of each length, shortest first, so that no edit holds most."""
    by_length: dict[int, list[list[str]]] = defaultdict(list)
    for i in rng.permutation(len(paths)):
        by_length[len(paths[i])].append(paths[i])
    return [path for _, own in sorted(by_length.items()) for path in own[:PER_LENGTH]]


def _edit(
    graph: nx.DiGraph,
    edge: Edge,
    paths: list[list[str]],
    answers: Mapping[str, Mapping[str, set[str]]],
    case_id: int,
    rng: np.random.Generator,
) -> EditedGraph:
    """The edit to another object of the relation: no answer, and not on the edit's own chains."""
    kind, fact = graph.edges[edge]["kind"], graph.edges[edge]["fact"]
    passed = {name for path in paths for name in path}
    wrong = sorted(o for o in _objects(graph, kind) if comparable(o) not in answers[kind][edge[0]])
    new = str(rng.choice([o for o in wrong if comparable(o) not in passed] or wrong))
    chains = tuple(Chain(tuple(graph.edges[e]["fact"] for e in pairwise(path))) for path in paths)
    return EditedGraph(case_id, fact.subject, fact.prompt, fact.object, new, chains)


def _links(facts: pd.DataFrame, graph: nx.DiGraph, kept: Paths) -> pd.DataFrame:
    """How many links of each relation every stage left."""
    counts = {"proposed": facts["relation"].value_counts()}
    counts |= {name: facts.loc[facts[name], "relation"].value_counts() for name in STAGES}
    kind = nx.get_edge_attributes(graph, "kind")
    counts["in the graph"] = pd.Series(Counter(kind.values()))
    used = {edge for paths in kept.values() for path in paths for edge in pairwise(path)}
    counts["on a kept chain"] = pd.Series(Counter(kind[edge] for edge in used))
    table = pd.DataFrame(counts).fillna(0).astype(int)
    table = table.sort_values(["proposed", "validated"], ascending=False, kind="stable")
    table.loc["all"] = table.sum()
    return table.rename_axis(index="relation").reset_index()


def _lengths(found: Paths, kept: Paths) -> pd.DataFrame:
    """Chains around the chosen edits by number of steps."""
    table = pd.DataFrame({"steps": range(1, MAX_STEPS + 1)})
    for name, by_edge in (("found", found), ("kept", kept)):
        counts = Counter(len(path) - 1 for paths in by_edge.values() for path in paths)
        table[name] = [counts[n] for n in table["steps"]]
    return table
