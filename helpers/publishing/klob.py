"""The published evaluation: ``python -m helpers.publishing.klob --model smollm2-135m``.

Runs locators over KLoB's subtasks and stores result tables. A finished (locator, subtask) is never
computed again; inside one, finished chunks are read back, so an interrupted run goes on where it
stopped. Locators can be published one by one (``--locator``).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, get_args

import pandas as pd
import torch
import typer
from tqdm.auto import tqdm

from helpers.locating.benchmark import Examples, Subtask, load_examples
from helpers.locating.evaluation import evaluate, score_rows
from helpers.locating.locator import Locator
from helpers.locating.masked import load_masked
from helpers.locating.query import encode
from helpers.locating.registry import LOCATORS, make_locator
from helpers.metrics.klob_sets import SHARES
from helpers.models.language_model import LanguageModel
from helpers.models.load import load
from helpers.paths import RUNS, run_name
from helpers.reporting.klob_stored import (
    FOLDER,
    add_klob_run,
    load_klob_run,
    store_klob_run,
)
from helpers.runs.store import Results, ResultsStore, settings_key

TABLES = ("sentences", "similarities", "null", "layers", "cost")
VERSION = 1  # of the scores; raise it when a locator's numbers change
COST_SENTENCES = 4


@dataclass(frozen=True)
class Plan:
    """What is evaluated on what.

    Attributes:
        locators: names of ``helpers.locating.registry``.
        source: ``"klob-mini"``, ``"klob"`` or, in tests, files by subtask.
        counts: examples per subtask; None takes all.
        seed: of the choice of examples.
        shares: located shares k.
        permutations: draws of the null.
    """

    locators: tuple[str, ...] = tuple(LOCATORS)
    source: str = "klob-mini"
    counts: dict[Subtask, int | None] = field(
        default_factory=lambda: {"consistency": 200, "relevance": 100, "unbiasedness": 200}
    )
    seed: int = 0
    shares: tuple[float, ...] = SHARES
    permutations: int = 1_000


def run(
    language_model: LanguageModel, plan: Plan, *, store: ResultsStore, progress: bool = False
) -> dict[str, pd.DataFrame]:
    """Evaluate a plan, resuming what an earlier run left, and return its tables.

    Args:
        language_model: the model.
        plan: what to evaluate.
        store: where finished parts are kept.
        progress: show progress bars.

    Returns:
        Tables by name (``TABLES``), with columns model, locator and subtask.
    """
    for name, examples, results in _parts(language_model, plan, store):
        if not results.done("sentences"):
            _evaluate(language_model, plan, make_locator(name), examples, results, progress)
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


def add_edited(
    language_model: LanguageModel, locators: Sequence[str], name: str, source: str, folder: Path
) -> Path:
    """Add locators' layer mass at the facts that were edited layer by layer to a stored run.

    The test of the locality hypothesis needs no more of a locator that is too slow for all examples.

    Args:
        language_model: the model.
        locators: names of ``helpers.locating.registry``.
        name: of the stored run, which has a table *edits* (``helpers.publishing.layer_edits``).
        source: of the facts.
        folder: where runs are stored.

    Raises:
        KeyError: no such run.
        ValueError: its facts have not been edited.
    """
    tables = load_klob_run(name, folder).tables
    if "edits" not in tables:
        raise ValueError(f"{folder / name} has no edits: run helpers.publishing.layer_edits first")
    edited = load_examples("consistency", source).only(tables["edits"]["example"].unique().tolist())
    parts = [tables["layers"]]
    for locator in locators:
        found = evaluate(language_model, make_locator(locator), edited, shares=())
        named = {"model": language_model.name, "locator": locator, "subtask": "consistency"}
        parts.append(found.layers.assign(**named))
    once = ["locator", "subtask", "example", "layer"]
    layers = pd.concat(parts, ignore_index=True).drop_duplicates(once, ignore_index=True)
    return store_klob_run(name, {"layers": layers}, folder=folder)


def about(language_model: LanguageModel, plan: Plan) -> dict[str, Any]:
    """How a plan's tables were made, to be stored with them."""
    return {
        **language_model.identity,
        "locators": {
            name: {**make_locator(name).settings(), "counts": dict(plan.counts)}
            for name in plan.locators
        },
        "source": plan.source,
        "seed": plan.seed,
        "shares": list(plan.shares),
        "permutations": plan.permutations,
        "version": VERSION,
    }


def cost(language_model: LanguageModel, locator: Locator, plan: Plan) -> pd.DataFrame:
    """CPU and wall seconds per sentence, measured on a few sentences after one to warm up."""
    examples = load_examples("consistency", plan.source, count=2, seed=plan.seed)
    queries = encode(language_model, [s for group in examples.groups for s in group])
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
    loaded = [
        load_examples(subtask, plan.source, count=count, seed=plan.seed)
        for subtask, count in plan.counts.items()
    ]
    keys = [settings_key({"examples": asdict(examples)}) for examples in loaded]
    for name in plan.locators:
        for examples, key in zip(loaded, keys, strict=True):
            settings = _settings(language_model, plan, name, examples.subtask)
            yield name, examples, store.open({**settings, "examples": key})


def _settings(
    language_model: LanguageModel, plan: Plan, name: str, subtask: Subtask
) -> dict[str, Any]:
    """Everything the numbers depend on besides the examples."""
    whole = about(language_model, plan)
    del whole["locators"], whole["device"]
    return {**whole, "locator": make_locator(name).settings(), "subtask": subtask}


def _evaluate(
    language_model: LanguageModel,
    plan: Plan,
    locator: Locator,
    examples: Examples,
    results: Results,
    progress: bool,
) -> None:
    with tqdm(
        desc=f"{locator.name}, {examples.subtask}", unit="example", disable=not progress
    ) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        evaluation = evaluate(
            language_model,
            locator,
            examples,
            shares=plan.shares,
            permutations=plan.permutations,
            checkpoints=results.folder / "chunks",
            progress=show,
        )
    tables = {name: getattr(evaluation, name) for name in ("similarities", "null", "layers")}
    if examples.subtask == "consistency":
        tables["cost"] = cost(language_model, locator, plan)
    # Sentences last: they mark the subtask as finished.
    tables = {name: table for name, table in tables.items() if len(table)}
    tables["sentences"] = evaluation.sentences
    results.add({name: table.assign(case_id=0) for name, table in tables.items()})


def main(
    model: Annotated[str, typer.Option(help="model name, see helpers.models.load")] = (
        "smollm2-135m"
    ),
    source: Annotated[str, typer.Option(help="klob-mini (packaged) or klob (official)")] = (
        "klob-mini"
    ),
    locator: Annotated[list[str] | None, typer.Option(help="one locator; repeat; default all")] = (
        None
    ),
    consistency: Annotated[int, typer.Option(help="examples of KLoB-c, 0 = all")] = 200,
    relevance: Annotated[int, typer.Option(help="examples of KLoB-r, 0 = all")] = 100,
    unbiasedness: Annotated[int, typer.Option(help="sentences of KLoB-u, 0 = all")] = 200,
    seed: Annotated[int, typer.Option(help="choice of examples")] = 0,
    permutations: Annotated[int, typer.Option(help="draws of the permutation null")] = 1_000,
    dtype: Annotated[str, typer.Option(help="torch dtype of the weights")] = "float32",
    device: Annotated[str, typer.Option(help="torch device")] = "cpu",
    accept_terms: Annotated[bool, typer.Option(help="accept a packaged model's terms")] = False,
    masked: Annotated[
        bool, typer.Option(help="a masked model (BERT), by hub name or folder")
    ] = False,
    edited: Annotated[
        bool, typer.Option(help="no criteria, only the layers of facts edited by layer_edits")
    ] = False,
    out: Annotated[Path, typer.Option(help="folder of the result tables")] = FOLDER,
    store: Annotated[Path, typer.Option(help="folder of finished parts")] = RUNS / "klob",
) -> None:
    """Evaluate locating methods on KLoB and publish them beside those already published.

    An interrupted run resumes. A slow method may be given fewer examples than the others.
    """
    language_model: LanguageModel
    if masked:
        language_model = load_masked(model, dtype=dtype, device=device)
    else:
        language_model = load(model, dtype=dtype, device=device, accept_terms=accept_terms)
    counts = _counts((consistency, relevance, unbiasedness))
    names = tuple(locator or LOCATORS)
    name = run_name(model, source)
    if edited:
        typer.echo(str(add_edited(language_model, names, name, source, out)))
        return
    plan = Plan(names, source, counts, seed, permutations=permutations)
    tables = run(language_model, plan, store=ResultsStore(store), progress=True)
    typer.echo(str(add_klob_run(name, tables, about(language_model, plan), out)))


def _counts(wanted: Sequence[int]) -> dict[Subtask, int | None]:
    subtasks: Iterable[Subtask] = get_args(Subtask)
    return {subtask: count or None for subtask, count in zip(subtasks, wanted, strict=True)}


if __name__ == "__main__":
    typer.run(main)
