"""ThinkEdit's published run: methods on all of KnowGIC, by every estimator, from a params file."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from helpers.editing.build import build_editor
from helpers.editing.editor import Editor
from helpers.editing.memo import Memo, Memoised, with_memo
from helpers.editing.presets import preset_words
from helpers.models import LanguageModel, load
from helpers.paths import RUNS
from helpers.results.archive import About, Archive, Run
from helpers.results.store import ResultsStore
from helpers.thinkedit.knowgic import load_aliases
from helpers.thinkedit.run import ThinkEditRun
from helpers.thinkedit.scores import ANSWERS, ESTIMATORS, TEXTS
from helpers.thinkedit.stored_scores import DRAWN, run_name
from helpers.thinkedit.tables import chain_index, edit_index
from helpers.thinkedit.usable import load_usable


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
    rivals: bool = True,
    skip_bad: bool = False,
    store: Path = RUNS / "results",
    finished: bool = False,
) -> Run:
    """Evaluate methods; what is in the store already is not computed again.

    Args:
        methods: e.g. "rome" or "memit+app".
        modes: "independent", "sequential", "deep".
        estimators: "exact", "negated", "sampled", "texts" (see ``ThinkEditRun``).
        layout: edits, see ``helpers.thinkedit.knowgic.load_edits``.
        preset: of the editors' hyperparameters.
        first: only so many edits.
        samples: responses per question, or texts per edit.
        temperature: of the sampled responses and texts.
        max_new_tokens: at most so many to a response or text; None: as ``ANSWERS`` and ``TEXTS`` say.
        first_line: a response ends with its first line; False for models that answer in lists.
        seed: of the samples, contexts and corpus.
        corpus: text behind the second moments, see ``helpers.editing.corpus.corpus_named``.
        rivals: score entities of the same kind, too (see ``ThinkEditRun``).
        skip_bad: leave out edits that cannot be used, see ``load_usable``.
        store: folder of the results store.
        finished: make no edit: take those that are in the store, of every method those it has.

    Returns:
        A run, see ``helpers.thinkedit.stored_scores``. Scores have columns method
        and mode (method "none" and mode "before" are the unedited model); settings are each table's
        and, as "exact: rome, deep", each method's. An edit that was given up is left out, unless it is
        part of a sequence.
    """
    found = load_usable(language_model, layout, skip_bad=skip_bad)
    universe = tuple(found.records.values())
    skipped = {"skipped": len(found.wrong)} if found.wrong else {}
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
            seed=seed,
            rivals=rivals,
            progress=True,
        )
        for estimator in estimators
    ]
    options: dict[str, Any] = {"preset": preset, "corpus": corpus, "seed": seed}
    memo: Memo = {}  # what several methods need, found once
    options |= {"progress": True, "memo": memo}
    editors = {method: build_editor(method, language_model, **options) for method in methods}
    shared = {method: with_memo(editor, memo) for method, editor in editors.items()}
    scores = _evaluated(runs, shared, modes, finished=finished)
    scored = {run.estimator: run.settings() for run in runs}
    settings: dict[str, Any] = {}
    for kind, table in scores.items():
        version = scored["exact" if kind == "along" else kind]["scoring_version"]
        settings[kind] = {"scoring_version": version}
        if kind in drawn:
            sampling = drawn[kind]
            how = samples, temperature, seed, sampling.max_new_tokens, sampling.stop is not None
            settings[kind] |= dict(zip(DRAWN, how, strict=True))
        made = table[["method", "mode"]].drop_duplicates().itertuples(index=False)
        for method, mode in made:
            editor = editors.get(method)
            settings[f"{kind}: {method}, {mode}"] = (editor.settings() if editor else {}) | skipped
    index = {"chains": chain_index(universe), "edits": edit_index(universe)}
    about = About(_source(language_model, layout, preset, corpus), settings)
    return Run(run_name(language_model.name, layout), about, {**scores, **index})


def publish(params: Mapping[str, Any], into: Archive, *, finished: bool = False) -> Path:
    """Evaluate methods on all edits, in place of the same methods and modes published before.

    Args:
        params: of notebook 06: ``methods``, ``modes``, ``estimators``, ``benchmark`` (the edits), and how
            responses are drawn.
        into: the archive *thinkedit*.
        finished: make no edit and publish those in the store: methods may then have different numbers
            of edits, which every table states. A sequence is there as a whole or not at all.

    Raises:
        ArchiveError: the published run was made in another way.
    """
    language_model = load(params["model"], dtype=params["dtype"], device=params["device"])
    benchmark, preset, methods = params["benchmark"], params["preset"], params["methods"]
    source = _source(language_model, benchmark, preset, params["corpus"])
    into.check(run_name(language_model.name, benchmark), About(source))
    drawn = ("preset", "samples", "temperature", "max_new_tokens", "first_line", "seed", "corpus")
    run = evaluate(
        language_model,
        methods,
        modes=params["modes"],
        estimators=params["estimators"],
        layout=benchmark,
        first=params["first"],
        rivals=params["rivals"],
        skip_bad=params.get("skip_bad_records", False),
        finished=finished,
        **{name: params[name] for name in drawn},
    )
    tables, published = dict(run.tables), list[str]()
    if known := into.known(run.name):
        for name in set(ESTIMATORS) & set(known.tables):
            stored = known.tables[name]
            published += stored.loc[stored["mode"] != "before", "method"].unique().tolist()
            if name in tables:
                tables[name] = _with_unedited(tables[name], stored)
    words = preset_words(language_model.name, preset, sorted({*published, *methods}))
    about = replace(run.about, caption={"preset": words})
    return into.put(run.name, tables, about, by=["method", "mode"])


def _source(language_model: LanguageModel, layout: str, preset: str, corpus: str) -> dict[str, Any]:
    """What all rows of a run have in common."""
    return {**language_model.identity, "layout": layout, "preset": preset, "corpus": corpus}


def _with_unedited(scores: pd.DataFrame, known: pd.DataFrame) -> pd.DataFrame:
    """The scores, and those of the unedited model that only the published run has.

    Methods that were published before on more edits are compared with them.
    """
    unedited = known[known["mode"] == "before"]
    there = scores.loc[scores["mode"] == "before", "case_id"]
    return pd.concat([scores, unedited[~unedited["case_id"].isin(there)]], ignore_index=True)


def _evaluated(
    runs: Sequence[ThinkEditRun],
    editors: Mapping[str, Editor],
    modes: Sequence[str],
    *,
    finished: bool,
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
        once = Memoised(editor, {})  # for this method's estimators, and forgotten with it
        for mode in modes:
            found, given_up = {}, set()
            for run in runs:
                label = f"{run.estimator}: {name}, {mode}"
                if not finished:
                    _timed(label, partial(run.after, once, mode))
                found[run.estimator] = run.read(once, mode, "scores")
                add("along", run.read(once, mode, "along"), name, mode)
                edits = run.read(once, mode, "edits")
                if len(edits):
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
    print(f"{label}: {len(table)} rows in {wall:.0f} s ({cpu:.0f} CPU s)", file=sys.stderr)
    return table
