"""Grow a few graphs from a model with a curator's decisions, and package the journals.

    python -m tools.grow smollm2-135m

The packaged facts propose neighbours. The curator keeps what they propose, prunes what the model's
free text is read as, adds the borders listed here and discards what does not validate. Whatever is
proposed or added enters a graph only if the model itself names its object (Algorithm 1).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from helpers.models import load
from helpers.thinkedit.graph import Triplet
from helpers.thinkedit.grown import FOLDER, SAMPLING, session
from helpers.thinkedit.growth import Growth
from helpers.thinkedit.journal import Journal
from helpers.thinkedit.respondent import ModelRespondent
from helpers.thinkedit.reviewers import Decision, Review
from helpers.thinkedit.wordings import Wordings, read_wordings

# The continent of a country, and the neighbours that the curator adds to the store's first one.
FACTS = {
    "France": ("Europe", ("Germany", "Spain", "Italy")),
    "China": ("Asia", ("India", "Vietnam", "Mongolia")),
    "Egypt": ("Africa", ("Libya", "Sudan")),
    "Germany": ("Europe", ("France", "Poland", "Austria")),
}


class Curator:
    """Keeps proposals, adds the listed borders once, and discards what does not validate."""

    def __init__(self, fact: Triplet, borders: Sequence[str], wordings: Wordings) -> None:
        self._reads = {wording.reads for wording in wordings.relations.values()}
        self._added = tuple(Triplet(fact.subject, "shares a border with", b) for b in borders)
        self._first = (fact,)

    def decide(self, review: Review) -> Decision:
        """Decide one review."""
        if review.occasion == "refine":
            return Decision(discard=True)
        kept = [each for each in review.candidates if each.relation in self._reads]
        if review.path == self._first:
            kept = [each for each in kept if each.relation != "shares a border with"]
            kept += self._added
        return Decision(triplets=tuple(kept))


def grow(respondent: ModelRespondent, name: str, country: str, into: Path) -> Growth:
    """One graph, around the continent of a country; a run that was stopped goes on."""
    continent, borders = FACTS[country]
    fact = Triplet(country, "is on the continent of", continent)
    path = into / f"grown-{name}-{country.lower()}.jsonl"
    run = session(fact, respondent, partial(Journal, path))
    return run.run(Curator(fact, borders, read_wordings()))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--into", type=Path, default=FOLDER)
    given = parser.parse_args(arguments)
    respondent = ModelRespondent(load(given.model), SAMPLING)
    for country in FACTS:
        growth = grow(respondent, given.model, country, given.into)
        edges, chains = growth.graph.number_of_edges(), len(growth.chains)
        print(f"{country}: {edges} links, {chains} chains; {growth.stopped}", file=sys.stderr)


if __name__ == "__main__":
    main()
