"""Graphs that were grown from a model once, packaged as journals: replayed, the model is asked nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from helpers.paths import PACKAGED
from helpers.thinkedit.chains import MAX_STEPS
from helpers.thinkedit.graph import Triplet
from helpers.thinkedit.growth import Growth, Settings
from helpers.thinkedit.journal import Journal, JournalError, header
from helpers.thinkedit.pipeline import Session
from helpers.thinkedit.proposers import store_neighbours
from helpers.thinkedit.wordings import read_wordings

FOLDER = PACKAGED / "thinkedit"


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
            " since; make it again with python -m tools.grow"
        )


def grown_journals(model: str) -> list[Path]:
    """The packaged journals of a model, in the order of their names."""
    return sorted(FOLDER.glob(f"grown-{model}-*.jsonl"))


def replayed(paths: Sequence[Path]) -> list[Growth]:
    """The graphs that journals of ``tools.grow`` hold; nothing is written.

    Args:
        paths: the journals. Their settings name the fact, the pipeline's settings and the source of
            the proposals.

    Raises:
        JournalError: a journal is damaged, ends before its run does, or another version made it.
    """
    wordings = read_wordings()
    headers = [header(path) for path in paths]
    sources = {each["settings"]["source"] for each in headers}
    stores = {source: store_neighbours(source, wordings) for source in sources}
    grown = []
    for path, made in zip(paths, headers, strict=True):
        held = made["settings"]
        session = Session(
            Triplet(*held["fact"]),
            Recorded(path, made["model"]),
            Journal(path, model=made["model"], settings=held),
            settings=Settings(**held["pipeline"]),
            aliases=wordings.aliases,
            proposer=stores[held["source"]],
            wordings=wordings,
        )
        if session.pending is not None:
            raise JournalError(
                f"{path} ends before its run: make it again with python -m tools.grow"
            )
        grown.append(session.growth)
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
