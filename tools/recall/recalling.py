"""Find the facts that a model recalls: propose, validate, propose about what was reached, …

The rounds of Algorithms 1 and 2 for a whole frontier at a time: first the whole probabilities, in
batches, then answers to the facts that are probable enough and could be on a chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np
import pandas as pd

from helpers.thinkedit.grow.people import Proposal, Proposer
from tools.recall.validation import Validation

COLUMNS = (
    "subject", "relation", "object", "source", "round", "cloze", "probability", "likely",
    "asked", "question", "validated",
)  # fmt: skip


@dataclass(frozen=True)
class RecallSettings:
    """How to look.

    Attributes:
        least: whole probability from which a fact can be known; facts below it are not asked about.
        rounds: how often to go on from what was reached.
        per_subject: proposals of one relation about one subject, at most (drawn by ``seed``).
        tried: proposals of a relation on which its cloze is chosen.
        seed: of the draws.
    """

    least: float = 0.05
    rounds: int = 2
    per_subject: int = 12
    tried: int = 60
    seed: int = 0


def recalled_facts(
    validation: Validation,
    proposer: Proposer,
    subjects: Sequence[str],
    settings: RecallSettings | None = None,
) -> pd.DataFrame:
    """All proposals reached from some subjects, and what became of them.

    Args:
        validation: the model, asked.
        proposer: who proposes.
        subjects: where to begin.
        settings: how to look.

    Returns:
        One row per proposal: ``COLUMNS``. ``likely`` ones are at least as probable as the settings
        say; ``asked`` are those that could be on a chain beside their own; ``question`` is the one
        that validated it, or empty.
    """
    settings = settings or RecallSettings()
    clozes: dict[str, str] = {}
    tables: list[pd.DataFrame] = []
    known: set[str] = set()
    frontier = {name.casefold(): name for name in subjects}
    for number in range(1, settings.rounds + 1):
        proposals = _drawn(proposer.propose(list(frontier.values())), settings)
        known |= set(frontier)
        if not proposals:
            break
        _choose_clozes(validation, proposals, clozes, settings)
        table = _scored(validation, proposals, clozes, settings.least)
        tables.append(table.assign(round=number))
        reached = table.loc[table["likely"], "object"]
        frontier = {name.casefold(): name for name in reached if name.casefold() not in known}
    table = pd.concat(tables, ignore_index=True)
    table["asked"] = table["likely"] & _around(table)
    asked = table.loc[table["asked"], ["subject", "relation", "object"]].to_numpy(str)
    table["question"] = ""
    found = validation.questions_that_validate([Proposal(*map(str, link)) for link in asked])
    table.loc[table["asked"], "question"] = found
    return table.assign(validated=table["question"] != "")[list(COLUMNS)]


def _around(table: pd.DataFrame) -> pd.Series:
    """Whether each fact is one of several ways, of up to three steps, between two linked entities.

    Others can be on no chain but their own, and are not asked about.
    """
    ends = [
        (str(s).casefold(), str(o).casefold())
        for s, o in table[["subject", "object"]].to_numpy(str)
    ]
    graph = nx.DiGraph(
        end
        for end, likely in zip(ends, table["likely"], strict=True)
        if likely and end[0] != end[1]
    )
    useful = set()
    for edge in graph.edges:
        ways = list(nx.all_simple_edge_paths(graph, *edge, cutoff=3))
        if len(ways) > 1:
            useful |= {step for way in ways for step in way}
    return pd.Series([end in useful for end in ends], index=table.index)


def _drawn(proposals: Sequence[Proposal], settings: RecallSettings) -> list[Proposal]:
    """At most so many of each subject and relation, in a random order fixed by the seed."""
    order = np.random.default_rng(settings.seed).permutation(len(proposals))
    counts: dict[tuple[str, str], int] = {}
    kept = []
    for proposal in (proposals[i] for i in order):
        key = proposal.key[:2]
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= settings.per_subject:
            kept.append(proposal)
    return kept


def _choose_clozes(
    validation: Validation,
    proposals: Sequence[Proposal],
    clozes: dict[str, str],
    settings: RecallSettings,
) -> None:
    """For each new relation the cloze after which the model completes most of some facts as known."""
    for relation in sorted({p.relation for p in proposals} - set(clozes)):
        tried = [p for p in proposals if p.relation == relation][: settings.tried]
        shares = {}
        for cloze in validation.wordings.relations[relation].clozes:
            found = validation.probabilities(tried, [cloze] * len(tried))
            shares[cloze] = float((found >= settings.least).mean())
        clozes[relation] = max(shares, key=lambda cloze: shares[cloze])


def _scored(
    validation: Validation, proposals: Sequence[Proposal], clozes: dict[str, str], least: float
) -> pd.DataFrame:
    texts = [clozes[p.relation] for p in proposals]
    found = validation.probabilities(proposals, texts)
    rows = [
        (p.subject, p.relation, p.object, p.source, cloze, value)
        for p, cloze, value in zip(proposals, texts, found, strict=True)
    ]
    names = ["subject", "relation", "object", "source", "cloze", "probability"]
    table = pd.DataFrame(rows, columns=names)
    return table.assign(likely=table["probability"] >= least)
