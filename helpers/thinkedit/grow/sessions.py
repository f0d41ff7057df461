"""Graphs grown from a model with a triple store's proposals: sessions, and packaged journals of some.

A packaged journal is replayed; the model is asked nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd

from helpers import UserError
from helpers.paths import PACKAGED
from helpers.scoring.responses import Sampling
from helpers.thinkedit.graph import MAX_STEPS, Triplet, check_triplet, triplets
from helpers.thinkedit.grow.journal import Journal, Respondent, read_journal
from helpers.thinkedit.grow.people import Proposer, about, store_neighbours
from helpers.thinkedit.grow.pipeline import Growth, Session, Settings, asks_for_all
from helpers.thinkedit.grow.wordings import WORDINGS, read_wordings

FOLDER = PACKAGED / "thinkedit"
SETTINGS = Settings(
    max_attempts=2, target_chains=8, max_rounds=3, responses=5, chain_questions=1,
    thoughts=3, thought_tokens=96, statements=5, proposals=6,
)  # fmt: skip
SAMPLING = Sampling(max_new_tokens=32, stop="\n")


def session(
    fact: Triplet,
    model: Respondent,
    open_journal: Callable[..., Journal],
    *,
    question: str = "",
    settings: Settings = SETTINGS,
) -> Session:
    """A run in which the packaged facts propose neighbours in addition to the model's own reasoning.

    ``open_journal`` is called with the model's fingerprint and the settings, e.g.
    ``partial(Journal.kept_in, folder, "my")``; a session that was left resumes. For the other arguments
    see ``Session``.

    Raises:
        UserError: the journal is damaged or belongs to another run.
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
        "source": "packaged",
        "pipeline": asdict(settings),
    }
    journal = open_journal(model=model.fingerprint, settings=held)
    return Session(fact, model, journal, settings, _proposer(), wordings, question)


def lacking(fact: Triplet, *, question: str = "") -> list[str]:
    """What a run about a fact has to do without, a sentence each; none for the packaged countries."""
    lacks = []
    if not question and not read_wordings().questions_about(fact.relation, fact.subject):
        lacks.append(
            f"No relation of {WORDINGS.name} reads {fact.relation!r}: the model writes the question itself;"
            " give your own where it fails."
        )
    if not _proposer()((fact.subject, fact.object)):
        lacks.append(
            f"The packaged facts hold nothing about {fact.subject} or {fact.object}: only the"
            " model's own reasoning and the reviewer bring new facts."
        )
    return lacks


@cache
def _proposer() -> Proposer:
    return about(store_neighbours("packaged", read_wordings()))


@dataclass(frozen=True)
class Recorded:
    """Replaces the model of a journal; asking it anything means that the record was left."""

    path: Path
    fingerprint: str

    def respond(self, prompts: Sequence[Any], **_: Any) -> NoReturn:
        """Refuse."""
        raise UserError(
            f"{self.path} does not answer {prompts[0]!r}: the pipeline has changed since;"
            " grow it again, by python -m tools.grow or at notebook 06's panel"
        )


def grown_journals(model: str) -> list[Path]:
    """The packaged journals of a model, in the order of their names."""
    return sorted(FOLDER.glob(f"grown-{model}-*.jsonl"))


def replayed(paths: Sequence[Path]) -> list[Growth]:
    """The graphs that journals of ``session`` hold; nothing is written.

    Raises:
        UserError: a journal is damaged, ends before its run does, or another version made it.
    """
    grown = []
    for path in paths:
        records, _ = read_journal(path)
        if not records:
            raise UserError(f"{path}: no journal of a run; give a file that a run wrote")
        made = records[0]["request"]
        held = made["settings"]
        run = session(
            Triplet(*held["fact"]),
            Recorded(path, made["model"]),
            partial(Journal, path),
            question=held["question"],
            settings=Settings(**held["pipeline"]),
        )
        if run.pending is not None:
            raise UserError(
                f"{path} ends before its run: grow it again, by python -m tools.grow or at the panel"
            )
        grown.append(run.growth)
    return grown


def counts(grown: Sequence[Growth]) -> pd.DataFrame:
    """What each graph holds: fact, links (of them reasoned), chains by number of steps, and how it ended."""
    rows = []
    for growth in grown:
        links, lengths = _links(growth), [len(chain) for chain in growth.chains]
        rows.append({
            "fact": str(growth.fact),
            "links": len(links),
            "reasoned": len(links & growth.reasoned & growth.offered),
            "chains": len(growth.chains),
            "by steps": "/".join(str(lengths.count(n)) for n in range(1, MAX_STEPS + 1)),
            "discarded": len(growth.discarded),
            "rounds": growth.rounds,
            "stopped by": growth.stopped,
        })  # fmt: skip
    return pd.DataFrame(rows)


def reasoned(grown: Sequence[Growth]) -> pd.DataFrame:
    """How much of all graphs comes from the model's own reasoning, before and after the review.

    A candidate is *reasoned* if a chain of thought states it, *reasoned only* if the triple store does
    not hold it. What is neither reasoned nor in the store is the fact to edit or the reviewer's.

    Returns:
        One row per stage, with numbers of facts and the share of them that is reasoned.
    """
    rows = [
        (stage, len(keys), len(own), len(own - growth.proposed), len(keys & growth.proposed))
        for growth in grown
        for stage, keys in {
            "offered for review": growth.offered,
            "kept by the review": growth.kept,
            "links (validated)": _links(growth),
            "links on chains": {step.key for chain in growth.chains for step in chain},
        }.items()
        for own in [keys & growth.reasoned & growth.offered]
    ]
    names = ["stage", "facts", "reasoned", "reasoned only", "in the store"]
    table = pd.DataFrame(rows, columns=names).groupby("stage", sort=False).sum()
    table = table.rename_axis(index=None)
    return table.assign(share=table["reasoned"] / table["facts"])


def _links(growth: Growth) -> set[tuple[str, str, str]]:
    return {triplet.key for triplet in triplets(growth.graph)}
