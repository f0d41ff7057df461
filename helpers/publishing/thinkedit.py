"""The command that evaluates methods on KnowGIC and publishes the result tables.

python -m helpers.publishing.thinkedit --model smollm2-135m --method rome --method memit --publish
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from helpers.data.knowgic import load_aliases, load_edits
from helpers.editing.build import Shared
from helpers.editing.editor import Editor
from helpers.editing.presets import preset_words
from helpers.editing.remembering import Remembering, sharing
from helpers.models import LanguageModel, load
from helpers.paths import FIGURES, RUNS, file_name, written_whole
from helpers.reporting.thinkedit_stored import DRAWN
from helpers.runs.methods import build_method
from helpers.runs.store import ResultsStore
from helpers.thinkedit.run import ANSWERS, TEXTS, ThinkEditRun
from helpers.thinkedit.tables import chain_index

# Columns of every table.
PROVENANCE = (
    "preset",
    "corpus",
    "model",
    "layout",
    "fingerprint",
    "dtype",
    "device",
    "scoring_version",
)


class PublishingError(ValueError):
    """Results that cannot be published beside the stored ones; the message says how they differ."""


def evaluate(
    language_model: LanguageModel,
    methods: Sequence[str],
    *,
    modes: Sequence[str] = ("independent", "sequential"),
    estimators: Sequence[str] = ("exact",),
    layout: str = "2025-06",
    preset: str = "tuned",
    first: int | None = None,
    samples: int = 5,
    temperature: float = ANSWERS.temperature,
    max_new_tokens: int | None = None,
    first_line: bool = True,
    seed: int = 0,
    corpus: str = "self",
    store: Path = RUNS / "results",
) -> dict[str, pd.DataFrame]:
    """Evaluate methods; what is in the store already is not computed again.

    Args:
        language_model: the model.
        methods: e.g. "rome" or "memit+app".
        modes: "independent", "sequential", "deep".
        estimators: "exact", "sampled", "texts" (see ``ThinkEditRun``).
        layout: edits, see ``helpers.data.knowgic.load_edits``.
        preset: of the editors' hyperparameters.
        first: only so many edits.
        samples: responses per question, or texts per edit.
        temperature: of the sampled responses and texts.
        max_new_tokens: at most so many to a response or text; None: as ``ANSWERS`` and ``TEXTS`` say.
        first_line: a response ends with its first line; False for models that answer in lists.
        seed: of the samples, contexts and corpus.
        corpus: text behind the second moments, see ``helpers.editing.corpus.corpus_named``.
        store: folder of the results store.

    Returns:
        Tables by estimator ("along", too, if exact and sequential), with columns method and mode
        (method "none" and mode "before" are the unedited model), ``PROVENANCE`` and, of samples and
        texts, ``DRAWN``. An edit that was given up is left out, unless it is part of a sequence.
    """
    universe = load_edits(layout)
    answers = ANSWERS if first_line else replace(ANSWERS, stop=None)
    drawn = {
        kind: replace(
            sampling,
            temperature=temperature,
            seed=seed,
            max_new_tokens=max_new_tokens or sampling.max_new_tokens,
        )
        for kind, sampling in (("sampled", answers), ("texts", TEXTS))
    }
    runs = [
        ThinkEditRun(
            language_model,
            universe[:first],
            universe,
            load_aliases(layout),
            ResultsStore(store),
            layout=layout,
            estimator=estimator,
            samples=samples,
            sampling=drawn.get(estimator),
            progress=True,
        )
        for estimator in estimators
    ]
    options: dict[str, Any] = {"preset": preset, "corpus": corpus, "seed": seed}
    options |= {"progress": True, "shared": Shared()}
    editors = {method: build_method(method, language_model, **options) for method in methods}
    found = _evaluated(runs, sharing(editors), modes)
    named = {
        run.estimator: {
            "preset": preset_words(language_model.name, preset, methods),
            "corpus": corpus,
            **{name: run.settings()[name] for name in PROVENANCE[2:]},
        }
        for run in runs
    }
    named["along"] = named.get("exact", {})
    for kind, sampling in drawn.items():
        how = samples, temperature, seed, sampling.max_new_tokens, sampling.stop is not None
        named.setdefault(kind, {}).update(zip(DRAWN, how, strict=True))
    return {kind: table.assign(**named[kind]) for kind, table in found.items()}


def main(
    model: str = "smollm2-135m",
    method: Annotated[list[str] | None, typer.Option(help="e.g. rome, memit+app")] = None,
    mode: Annotated[list[str] | None, typer.Option(help="independent, sequential, deep")] = None,
    estimator: Annotated[list[str] | None, typer.Option(help="exact, sampled, texts")] = None,
    preset: str = "tuned",
    layout: str = "2025-06",
    first: Annotated[int | None, typer.Option(help="only the first edits")] = None,
    samples: Annotated[int, typer.Option(help="responses per question, texts per edit")] = 5,
    temperature: Annotated[float, typer.Option(help="of responses and texts")] = (
        ANSWERS.temperature
    ),
    max_new_tokens: Annotated[int | None, typer.Option(help="of a response or text")] = None,
    first_line: Annotated[bool, typer.Option(help="a response ends with its first line")] = True,
    seed: int = 0,
    corpus: Annotated[str, typer.Option(help="behind the second moments")] = "self",
    dtype: str = "float32",
    device: str = "cpu",
    accept_terms: bool = False,
    store: Path = RUNS / "results",
    publish: Annotated[bool, typer.Option(help="add tables to figures/data")] = False,
) -> None:
    """Evaluate methods on KnowGIC and, with --publish, write the tables the figures are drawn from."""
    if publish and first is not None:
        raise typer.BadParameter("published tables hold all edits: leave out --first")
    language_model = load(model, dtype=dtype, device=device, accept_terms=accept_terms)
    tables = evaluate(
        language_model,
        method or ["rome"],
        modes=mode or ["independent", "sequential"],
        estimators=estimator or ["exact"],
        layout=layout,
        preset=preset,
        first=first,
        samples=samples,
        temperature=temperature,
        max_new_tokens=max_new_tokens,
        first_line=first_line,
        seed=seed,
        corpus=corpus,
        store=store,
    )
    if publish:
        for path in store_tables(tables, file_name(model)):
            typer.echo(str(path))
        chains = chain_index(load_edits(layout)).assign(layout=layout)
        typer.echo(str(store_chains(chains)))


def store_tables(
    tables: Mapping[str, pd.DataFrame], model: str, folder: Path = FIGURES / "data"
) -> list[Path]:
    """Write published tables, in place of what was published of the same methods and modes.

    Args:
        tables: from ``evaluate``.
        model: name of the model, as it is to stand in the file names.
        folder: where to.

    Raises:
        PublishingError: a stored table was made with other settings, so the two cannot be compared.
    """
    for kind, table in tables.items():
        _check_alike(table, folder / f"06_thinkedit_{kind}_{model}.parquet")
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for kind, table in tables.items():
        path = folder / f"06_thinkedit_{kind}_{model}.parquet"
        if path.exists():
            stored = pd.read_parquet(path)
            made = table.set_index(["method", "mode"]).index
            kept = stored[~stored.set_index(["method", "mode"]).index.isin(made)]
            table = pd.concat([kept, table], ignore_index=True)
        with written_whole(path) as scratch:
            table.to_parquet(scratch, index=False)
        paths.append(path)
    return paths


def store_chains(chains: pd.DataFrame, folder: Path = FIGURES / "data") -> Path:
    """Write which facts make up which chains, with the column layout, which the scores' items number.

    Raises:
        PublishingError: the stored chains are of another layout.
    """
    path = folder / "06_thinkedit_chains.parquet"
    _check_alike(chains, path)
    with written_whole(path) as scratch:
        chains.to_parquet(scratch, index=False)
    return path


def _check_alike(table: pd.DataFrame, path: Path) -> None:
    """Refuse to put rows beside others that were made with other settings."""
    if not path.exists():
        return
    stored = pd.read_parquet(path)
    for name in (*PROVENANCE, *DRAWN):
        ours, theirs = (set(t[name]) if name in t else set() for t in (table, stored))
        if ours != theirs:
            raise PublishingError(
                f"{path} was made with {name} {_listed(theirs)}, this run with {_listed(ours)}: the two"
                " cannot stand in one table. Run with the stored settings, or move the file away"
            )


def _listed(values: set[Any]) -> str:
    return ", ".join(sorted(map(str, values))) or "unknown"


def _evaluated(
    runs: Sequence[ThinkEditRun], editors: Mapping[str, Editor], modes: Sequence[str]
) -> dict[str, pd.DataFrame]:
    """Scores of all methods and modes by kind of table, with columns method and mode.

    An edit is made, and then looked at with every estimator, before the next is made.
    """
    parts: dict[str, list[pd.DataFrame]] = {}

    def add(kind: str, scores: pd.DataFrame, method: str, mode: str) -> None:
        if len(scores):
            parts.setdefault(kind, []).append(scores.assign(method=method, mode=mode))

    for run in runs:
        add(run.estimator, _timed(f"{run.estimator}: before", run.before), "none", "before")
    for name, editor in editors.items():
        once = Remembering(editor)  # for this method's estimators, and forgotten with it
        for mode in modes:
            found, given_up = {}, set()
            for run in runs:
                label = f"{run.estimator}: {name}, {mode}"
                found[run.estimator] = _timed(label, partial(run.after, once, mode))
                add("along", run.read(once, mode, "along"), name, mode)
                edits = run.read(once, mode, "edits")
                given_up |= set(edits.loc[edits["failure"] != "", "case_id"])
            for estimator, scores in found.items():
                if mode != "sequential":  # of which a lost edit is a part
                    scores = scores[~scores["case_id"].isin(given_up)]
                add(estimator, scores, name, mode)
    return {kind: pd.concat(tables, ignore_index=True) for kind, tables in parts.items()}


def _timed(label: str, compute: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    wall, cpu = time.perf_counter(), time.process_time()
    table = compute()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    typer.echo(f"{label}: {len(table)} rows in {wall:.0f} s ({cpu:.0f} CPU s)", err=True)
    return table


if __name__ == "__main__":
    typer.run(main)
