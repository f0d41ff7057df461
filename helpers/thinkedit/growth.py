"""What a grown graph is, and how far to grow it."""

from __future__ import annotations

from dataclasses import dataclass, field

import networkx as nx

from helpers.scoring.naming import Aliases, mentions, names_of
from helpers.thinkedit.graph import Triplet

Path = tuple[Triplet, ...]
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Settings:
    """How far to grow, and how to ask.

    ``max_attempts`` is the paper's k_max, ``target_chains`` its stop at 100 (Harry Potter);
    ``chain_questions`` bounds the chains asked about per round, ``proposals`` a proposer's facts per
    question. Algorithm 2 takes one chain of thought per question (``thoughts``) and all its statements
    (``statements``); the paper gives no length, ``thought_tokens`` is ours.
    """

    max_attempts: int = 3
    max_steps: int = 5
    target_chains: int = 100
    max_rounds: int = 8
    responses: int = 1
    chain_questions: int = 20
    thoughts: int = 1
    thought_tokens: int = 256
    statements: int | None = None
    proposals: int = 8
    seed: int = 0


@dataclass
class Growth:
    """State of a run: the graph so far, its chains, what was given up, and why it stopped.

    Of triplets, by their keys: ``reasoned`` were read from the model's chains of thought, ``proposed`` said
    by the proposer about the entities asked for, ``offered`` for review, ``kept`` by it.
    """

    fact: Triplet
    graph: nx.DiGraph = field(default_factory=nx.DiGraph)
    chains: list[Path] = field(default_factory=list)
    discarded: list[Path] = field(default_factory=list)
    rounds: int = 0
    stopped: str = ""
    reasoned: set[Key] = field(default_factory=set)
    proposed: set[Key] = field(default_factory=set)
    offered: set[Key] = field(default_factory=set)
    kept: set[Key] = field(default_factory=set)


def asks_for_all(question: str, path: Path, aliases: Aliases) -> bool:
    """Whether a question names the path's subject, and neither its object nor an entity on the way.

    One that gives its object away validates anything; one that names an entity on the way asks for
    the last step only.
    """
    told = [names_of(triplet.object, aliases) for triplet in path]
    asks = mentions(question, names_of(path[0].subject, aliases))
    return asks and not any(mentions(question, names) for names in told)
