"""Graphs grown from a model with a triple store's proposals: sessions, and packaged journals of some.

A packaged journal is replayed; the model is asked nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path

import pandas as pd

from helpers.paths import PACKAGED
from helpers.scoring.responses import Sampling
from helpers.thinkedit.chains import MAX_STEPS
from helpers.thinkedit.graph import Triplet
from helpers.thinkedit.growth import Growth, Settings
from helpers.thinkedit.journal import Journal, JournalError, Respondent, header
from helpers.thinkedit.pipeline import Session
from helpers.thinkedit.proposers import StoreNeighbours, store_neighbours
from helpers.thinkedit.wordings import read_wordings

FOLDER = PACKAGED / "thinkedit"
SOURCE = "packaged"
SETTINGS = Settings(
    max_attempts=2,
    target_chains=8,
    max_rounds=4,
    responses=5,
    chain_questions=1,
    statements=1,
    proposals=6,
)
SAMPLING = Sampling(max_new_tokens=32, stop="\n")


def session(
    fact: Triplet,
    model: Respondent,
    open_journal: Callable[..., Journal],
    *,
    source: str = SOURCE,
    settings: Settings = SETTINGS,
) -> Session:
    """A run in which a triple store proposes facts beside the model's own reasoning.

    Args:
        fact: the fact to edit, where the graph starts.
        model: who answers.
        open_journal: called with the model's fingerprint and the settings, e.g.
            ``partial(Journal.kept_in, folder, "mine")``. A session that was left goes on.
        source: the triple store, see ``helpers.triples.sources``.
        settings: how far to grow, and how to ask.

    Raises:
        JournalError: the journal is damaged or belongs to another run.
    """
    wordings = read_wordings()
    held = {
        "fact": [fact.subject, fact.relation, fact.object],
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
    )


@cache
def _proposer(source: str) -> StoreNeighbours:
    return store_neighbours(source, read_wordings())


@dataclass(frozen=True)
class Recorded:
    """Stands for the model of a journal; whoever asks it anything has left the record."""

    path: Path
    fingerprint: str

    def respond(self, prompts: Sequence[str], *, n: int, seed: int) -> list[list[str]]:
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
    """What each graph holds: its fact, links, chains by number of steps, what was given up, and the end."""
    rows = [
        {
            "fact": str(growth.fact),
            "links": growth.graph.number_of_edges(),
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
