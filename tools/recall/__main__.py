"""Make ``recalled-<model>``: edits and chains of the facts that a model recalls.

    HELPERS_DATA=… python -m tools.recall smollm2-135m

Neighbours come from the packaged facts and CoDEx-S. A run that was stopped resumes. With the edits it
writes how many links and chains each stage left.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import typer

from helpers.models import load
from helpers.paths import RUNS
from helpers.results.store import ResultsStore
from helpers.thinkedit.grow.pipeline import FOLDER
from helpers.thinkedit.grow.wordings import read_wordings, store_neighbours
from helpers.thinkedit.knowgic import write_edits
from tools.recall.edits import recalled_edits
from tools.recall.facts import Store, Validation, recalled_facts

# Subjects to begin with: (source, relation they have, how many, drawn).
BEGIN = (
    ("packaged", "P30", 300),
    ("packaged", "P17", 250),
    ("packaged", "re_P150", 200),
    ("packaged", "P176", 90),
    ("packaged", "P50", 110),
    ("packaged", "P57", 130),
    ("codex-s", "P27", 150),
)


def beginnings(stores: Mapping[str, Store]) -> list[str]:
    """Subjects to begin with, each once."""
    rng = random.Random(0)
    found: dict[str, None] = {}
    for source, relation, number in BEGIN:
        proposed = (p for proposals in stores[source].values() for p in proposals)
        subjects = sorted({p.subject for p in proposed if p.relation == relation})
        rng.shuffle(subjects)
        found |= dict.fromkeys(subjects[:number])
    return list(found)


def main(
    model: str, dtype: str = "float32", store: Path = RUNS / "results", into: Path = FOLDER
) -> None:
    """Make the edits, and count what each stage left."""
    wordings = read_wordings()
    stores = {source: store_neighbours(source) for source in ("packaged", "codex-s")}
    validation = Validation(load(model, dtype=dtype), wordings, ResultsStore(store))
    facts = recalled_facts(validation, list(stores.values()), beginnings(stores))
    recalled = recalled_edits(facts)
    name = f"recalled-{model}"
    facts.to_csv(store / f"{name}.csv", index=False)  # all proposals, for a closer look
    write_edits(recalled.edits, into / f"{name}.json")
    recalled.links.to_csv(into / f"{name}-links.csv", index=False)
    recalled.chains.to_csv(into / f"{name}-chains.csv", index=False)
    print(recalled.links.to_string(), recalled.chains.to_string(), sep="\n")


if __name__ == "__main__":
    typer.run(main)
