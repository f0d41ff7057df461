"""Graphs grown from a model with a triple store's proposals: sessions, and packaged journals of some.

A packaged journal is replayed; the model is asked nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pandas as pd

from helpers.models.tokens import Prompt
from helpers.paths import PACKAGED
from helpers.scoring.responses import Sampling
from helpers.thinkedit.chains import MAX_STEPS
from helpers.thinkedit.graph import Triplet, check_triplet, triplets
from helpers.thinkedit.grow.journal import Journal, JournalError, Respondent, header
from helpers.thinkedit.grow.people import StoreNeighbours, store_neighbours
from helpers.thinkedit.grow.pipeline import Growth, Key, Session, Settings, asks_for_all
from helpers.thinkedit.grow.wordings import WORDINGS, read_wordings

FOLDER = PACKAGED / "thinkedit"
SOURCE = "packaged"
SETTINGS = Settings(
    max_attempts=2,
    target_chains=8,
    max_rounds=3,
    responses=5,
    chain_questions=1,
    thoughts=3,
    thought_tokens=96,
    statements=5,
    proposals=6,
)
SAMPLING = Sampling(max_new_tokens=32, stop="\n")
_COUNTED = ["facts", "reasoned", "reasoned only", "in the store"]


def session(
    fact: Triplet,
    model: Respondent,
    open_journal: Callable[..., Journal],
    *,
    question: str = "",
    source: str = SOURCE,
    settings: Settings = SETTINGS,
) -> Session:
    """A run in which a triple store proposes facts beside the model's own reasoning.

    Args:
        fact: the fact to edit, where the graph starts.
        model: who answers.
        open_journal: called with the model's fingerprint and the settings, e.g.
            ``partial(Journal.kept_in, folder, "mine")``. A session that was left goes on.
        question: what is asked first about the fact; empty for the wordings' or the model's question.
        source: the triple store, see ``helpers.triples.sources``.
        settings: how far to grow, and how to ask.

    Raises:
        JournalError: the journal is damaged or belongs to another run.
        ValueError: the question does not name the subject, or names the object; a fact with an empty part.
    """
    wordings = read_wordings()
    check_triplet(fact)
    if question and not asks_for_all(question, (fact,), wordings.aliases):
        raise ValueError(
            f"question {question!r} must name {fact.subject!r} and not {fact.object!r}: reword it"
        )
    held = {
        "fact": [fact.subject, fact.relation, fact.object],
        "question": question,
        "source": source,
        "pipeline": asdict(settings),
    }
    return Session(
        fact,
        model,
        open_journal(model=model.fingerprint, settings=held),
        settings=settings,
        aliases=wordings.aliases,
        proposer=_proposer(source),
        wordings=wordings,
        question=question,
    )


def lacking(fact: Triplet, *, question: str = "", source: str = SOURCE) -> list[str]:
    """What a run about a fact has to do without, a sentence each; none for the packaged countries."""
    wordings, lacks = read_wordings(), []
    if not question and not wordings.questions_about(fact.relation, fact.subject):
        lacks.append(
            f"No relation of {WORDINGS.name} reads {fact.relation!r}: the model writes the question itself;"
            " give one of your own where it fails."
        )
    if not _proposer(source).propose((fact.subject, fact.object)):
        lacks.append(
            f"The triple store {source!r} holds nothing about {fact.subject} or {fact.object}: only the"
            " model's own reasoning and the reviewer bring new facts."
        )
    return lacks


@cache
def _proposer(source: str) -> StoreNeighbours:
    return store_neighbours(source, read_wordings())


@dataclass(frozen=True)
class Recorded:
    """Stands for the model of a journal; whoever asks it anything has left the record."""

    path: Path
    fingerprint: str

    def respond(
        self, prompts: Sequence[Prompt], *, n: int, seed: int, **changes: Any
    ) -> list[list[str]]:
        """Refuse.

        Raises:
            JournalError: always.
        """
        raise JournalError(
            f"{self.path} does not answer {prompts[0]!r} (n {n}, seed {seed}): the pipeline has changed"
            " since; grow it again, by python -m tools.grow or at notebook 06's panel"
        )


def grown_journals(model: str) -> list[Path]:
    """The packaged journals of a model, in the order of their names."""
    return sorted(FOLDER.glob(f"grown-{model}-*.jsonl"))


def replayed(paths: Sequence[Path]) -> list[Growth]:
    """The graphs that journals of ``session`` hold; nothing is written.

    Args:
        paths: the journals. Their settings name the fact, the pipeline's settings and the source of
            the proposals.

    Raises:
        JournalError: a journal is damaged, ends before its run does, or another version made it.
    """
    grown = []
    for path in paths:
        made = header(path)
        held = made["settings"]
        run = session(
            Triplet(*held["fact"]),
            Recorded(path, made["model"]),
            partial(Journal, path),
            question=held["question"],
            source=held["source"],
            settings=Settings(**held["pipeline"]),
        )
        if run.pending is not None:
            raise JournalError(
                f"{path} ends before its run: grow it again, by python -m tools.grow or at the panel"
            )
        grown.append(run.growth)
    return grown


def counts(grown: Sequence[Growth]) -> pd.DataFrame:
    """What each graph holds: fact, links (of them reasoned), chains by number of steps, and how it ended."""
    rows = [
        {
            "fact": str(growth.fact),
            "links": growth.graph.number_of_edges(),
            "reasoned": len(links_of(growth) & reasoned_of(growth)),
            "chains": len(growth.chains),
            "by steps": "/".join(
                str(sum(len(chain) == steps for chain in growth.chains))
                for steps in range(1, MAX_STEPS + 1)
            ),
            "discarded": len(growth.discarded),
            "rounds": growth.rounds,
            "stopped by": growth.stopped,
        }
        for growth in grown
    ]
    return pd.DataFrame(rows)


def reasoned(grown: Sequence[Growth]) -> pd.DataFrame:
    """How much of all graphs comes from the model's own reasoning, before and after the review.

    A candidate is *reasoned* if a chain of thought states it, *reasoned only* if, besides, the triple store
    does not hold it. What is neither reasoned nor in the store is the fact to edit or the reviewer's.

    Returns:
        One row per stage, with numbers of facts and the share of them that is reasoned.
    """
    stages: dict[str, Counter[str]] = defaultdict(Counter)
    for growth in grown:
        for stage, keys in {
            "offered for review": growth.offered,
            "kept by the review": growth.kept,
            "links (validated)": links_of(growth),
            "links on chains": {step.key for chain in growth.chains for step in chain},
        }.items():
            own = keys & reasoned_of(growth)
            counted = (len(keys), len(own), len(own - growth.proposed), len(keys & growth.proposed))
            stages[stage].update(dict(zip(_COUNTED, counted, strict=True)))
    table = pd.DataFrame.from_dict(stages, orient="index", columns=_COUNTED)
    return table.assign(share=table["reasoned"] / table["facts"])


def links_of(growth: Growth) -> set[Key]:
    """The keys of a graph's links."""
    return {triplet.key for triplet in triplets(growth.graph)}


def reasoned_of(growth: Growth) -> set[Key]:
    """The keys of the candidates that a chain of thought states."""
    return growth.reasoned & growth.offered
