"""Locators over KLoB's subtasks, with every finished part kept.

A finished (locator, subtask) is never computed again; inside one, finished chunks are read back, so an
interrupted run goes on where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tqdm.auto import tqdm

from helpers.klob.evaluation import evaluate
from helpers.klob.evaluation_tables import score_rows
from helpers.klob.questions import Examples, Subtask, load_examples
from helpers.klob.unit_sets import SHARES
from helpers.locating.locators import LOCATORS, Locator, make_locator
from helpers.locating.query import encode
from helpers.models.language_model import LanguageModel
from helpers.processes import Progress
from helpers.results.archive import About, ArchiveError, Run
from helpers.results.store import Cases, Results, ResultsStore, settings_key

TABLES = ("sentences", "similarities", "null", "layers", "cost")
VERSION = 1  # of the scores; raise it when a locator's numbers change
COST_SENTENCES = 4


@dataclass(frozen=True)
class Plan:
    """What is evaluated on what.

    Attributes:
        locators: names of ``helpers.locating.locators``.
        source: ``"klob-mini"``, ``"klob"`` or, in tests, files by subtask.
        counts: examples per subtask; None takes all.
        seed: of the choice of examples.
        shares: located shares k.
        permutations: deals behind a null.
        skip_bad: leave out examples that the model cannot be asked; else they are an error.
    """

    locators: tuple[str, ...] = tuple(LOCATORS)
    source: str = "klob-mini"
    counts: dict[Subtask, int | None] = field(
        default_factory=lambda: {"consistency": 200, "relevance": 100, "unbiasedness": 200}
    )
    seed: int = 0
    shares: tuple[float, ...] = SHARES
    permutations: int = 1_000
    skip_bad: bool = False

    def examples(self, language_model: LanguageModel) -> list[Examples]:
        """Each subtask's examples.

        Raises:
            UserError: some cannot be used, by file and line.
        """
        options: dict[str, Any] = {"seed": self.seed, "asked": language_model}
        return [
            load_examples(subtask, self.source, count=count, skip_bad=self.skip_bad, **options)
            for subtask, count in self.counts.items()
        ]


def run(
    language_model: LanguageModel, plan: Plan, *, store: ResultsStore, progress: bool = False
) -> dict[str, pd.DataFrame]:
    """Evaluate a plan, resuming what an earlier run left, and return its tables.

    Returns:
        Tables by name (``TABLES``), with columns model, locator and subtask.
    """
    for name, examples, results in _parts(language_model, plan, store):
        evaluated = partial(
            _evaluated,
            language_model,
            plan,
            make_locator(name),
            folder=_chunks(language_model, plan, name, examples.subtask, store),
            progress=progress,
        )
        # A subtask is one case: its nulls and mean scores are of all its examples.
        Cases({0: examples}).completed(results, evaluated, mark="sentences")
    return collect(language_model, plan, store=store)


def collect(
    language_model: LanguageModel, plan: Plan, *, store: ResultsStore
) -> dict[str, pd.DataFrame]:
    """The tables of whatever part of a plan is finished."""
    tables: dict[str, list[pd.DataFrame]] = {table: [] for table in TABLES}
    for name, examples, results in _parts(language_model, plan, store):
        if not results.done("sentences"):
            continue
        for table in TABLES:
            part = results.read(table).drop(columns="case_id")
            if len(part):
                part.insert(0, "subtask", examples.subtask)
                part.insert(0, "locator", name)
                part.insert(0, "model", language_model.name)
                tables[table].append(part)
    return {
        name: pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
        for name, parts in tables.items()
    }


def located_layers(
    language_model: LanguageModel, locators: Sequence[str], published: Run
) -> pd.DataFrame:
    """A run's table *layers*, with locators' layer mass at the facts that were edited layer by layer.

    The test of the locality hypothesis needs no more of a locator that is too slow for all examples.

    Args:
        locators: names of ``helpers.locating.locators``.
        published: the run, which has a table *edits* (``helpers.klob.layer_edits``).

    Raises:
        ArchiveError: its facts have not been edited.
    """
    tables = published.tables
    if "edits" not in tables:
        raise ArchiveError(f"run {published.name} has no edits: publish it with edited_facts first")
    examples = load_examples("consistency", published.about.source["dataset"], skip_bad=True)
    edited = examples.only(tables["edits"]["example"].unique().tolist())
    parts = [tables["layers"]]
    for locator in locators:
        found = evaluate(language_model, make_locator(locator), edited, shares=())
        named = {"model": language_model.name, "locator": locator, "subtask": "consistency"}
        parts.append(found.layers.assign(**named))
    once = ["locator", "subtask", "example", "layer"]
    return pd.concat(parts, ignore_index=True).drop_duplicates(once, ignore_index=True)


def about(language_model: LanguageModel, plan: Plan) -> About:
    """How a plan's tables were made, to be published with them."""
    source = {
        **language_model.identity,
        "dataset": plan.source,
        "seed": plan.seed,
        "shares": list(plan.shares),
        "permutations": plan.permutations,
        "version": VERSION,
    }
    locators = {name: make_locator(name).settings() for name in plan.locators}
    counts: dict[str, Any] = {"counts": dict(plan.counts)}
    if skipped := sum(len(examples.skipped) for examples in plan.examples(language_model)):
        counts["skipped"] = skipped
    counted = {name: how | counts for name, how in locators.items()}
    return About(source, counted)


def cost(language_model: LanguageModel, locator: Locator, examples: Examples) -> pd.DataFrame:
    """CPU and wall seconds per sentence, measured on a few sentences after one to warm up."""
    queries = encode(language_model, [s for group in examples.groups[:2] for s in group])
    list(score_rows(language_model, locator, queries[:1]))
    wall, cpu = time.perf_counter(), time.process_time()
    count = len(list(score_rows(language_model, locator, queries[:COST_SENTENCES])))
    row = {
        "cpu_seconds": (time.process_time() - cpu) / count,
        "wall_seconds": (time.perf_counter() - wall) / count,
        "threads": torch.get_num_threads(),
        "sentences": count,
    }
    return pd.DataFrame([row])


def _parts(
    language_model: LanguageModel, plan: Plan, store: ResultsStore
) -> Iterator[tuple[str, Examples, Results]]:
    """Every locator with every subtask's examples, and where its results are kept."""
    loaded = plan.examples(language_model)
    keys = [settings_key({"examples": examples.content}) for examples in loaded]
    for name in plan.locators:
        for examples, key in zip(loaded, keys, strict=True):
            settings = _settings(language_model, plan, name, examples.subtask)
            yield name, examples, store.open({**settings, "examples": key})


def _chunks(
    language_model: LanguageModel, plan: Plan, name: str, subtask: Subtask, store: ResultsStore
) -> Path:
    """Where finished chunks are kept, by their sentences: a mended example costs its chunk alone."""
    return store.open(_settings(language_model, plan, name, subtask)).folder / "chunks"


def _settings(
    language_model: LanguageModel, plan: Plan, name: str, subtask: Subtask
) -> dict[str, Any]:
    """Everything the numbers depend on besides the examples."""
    return {
        "model": language_model.name,
        "fingerprint": language_model.fingerprint,
        "dtype": language_model.dtype_name,
        "source": plan.source,
        "seed": plan.seed,
        "shares": list(plan.shares),
        "permutations": plan.permutations,
        "version": VERSION,
        "locator": make_locator(name).settings(),
        "subtask": subtask,
    }


def _evaluated(
    language_model: LanguageModel,
    plan: Plan,
    locator: Locator,
    cases: Sequence[Examples],
    *,
    folder: Path,
    progress: bool,
) -> dict[str, pd.DataFrame]:
    """Tables of one locator on one subtask; its finished chunks are kept in a folder."""
    (examples,) = cases
    told = Progress(len(examples.groups), "examples")
    with tqdm(
        desc=f"{locator.name}, {examples.subtask}", unit="example", disable=not progress
    ) as bar:

        def show(done: int, total: int) -> None:
            told.at(done)
            bar.total = total
            bar.update(done - bar.n)

        evaluation = evaluate(
            language_model,
            locator,
            examples,
            shares=plan.shares,
            permutations=plan.permutations,
            checkpoints=folder,
            progress=show,
        )
    tables = {name: getattr(evaluation, name) for name in ("similarities", "null", "layers")}
    if examples.subtask == "consistency":
        tables["cost"] = cost(language_model, locator, examples)
    tables = {name: table for name, table in tables.items() if len(table)}
    tables["sentences"] = evaluation.sentences
    return {name: table.assign(case_id=0) for name, table in tables.items()}
