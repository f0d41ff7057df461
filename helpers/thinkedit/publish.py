"""ThinkEdit's published run: methods on a set of edits, by every estimator, from a params file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from helpers.editing.build import build_editor
from helpers.editing.editor import Editor, Memo, Memoised, with_memo
from helpers.editing.editors import split_method
from helpers.editing.icd import Icd
from helpers.editing.presets import icd_of_preset, preset_words
from helpers.editing.request import TrainingProbe
from helpers.models import LanguageModel, load_named
from helpers.paths import RUNS, file_name, run_name
from helpers.results.archive import About, TableKey
from helpers.results.publish import Part, Publication
from helpers.results.store import ResultsStore
from helpers.thinkedit.knowgic import EditedGraph, load_aliases, load_edited_graphs
from helpers.thinkedit.metrics import chain_index
from helpers.thinkedit.modes import AGAIN, BEFORE, SEQUENCES
from helpers.thinkedit.run import ThinkEditRun
from helpers.thinkedit.scores import ANSWER_SAMPLING, SCORING_VERSION, TEXT_SAMPLING
from helpers.thinkedit.shown import split_graphs


def publication(params: Mapping[str, Any]) -> Publication:
    """The run that the parameters of notebook 06 ask for."""
    lm = load_named(params)
    edits: Sequence[EditedGraph] = load_edited_graphs(params["benchmark"])
    probes_shown: Mapping[int, Sequence[TrainingProbe]] = {}
    if params["shown_half"]:
        edits, probes_shown = split_graphs(edits)
    preset = params["preset"]
    corpus = params["corpus"]
    memo: Memo = {}  # what several methods need, found once
    editors = {}
    for method in params["methods"]:
        editor = build_editor(
            method,
            lm,
            preset=preset,
            corpus=corpus,
            seed=params["seed"],
            progress=True,
            memo=memo,
            icd=icd_of_chains(method, lm.name, preset),
        )
        editors[method] = with_memo(editor, memo)
    runs = runs_of(params, lm, edits, probes_shown)
    universe = runs[0].benchmark.data["universe"]
    layout = params["benchmark"]
    if layout == "2025-06":  # the paper's edits: such a run has the model's name alone
        name = file_name(lm.name)
    else:
        name = run_name(lm.name, Path(layout).name.removesuffix(".json"))
    is_own_file = layout.endswith(".json")
    source = f"{layout} ({universe})" if is_own_file else layout
    return Publication(
        name,
        About({**lm.identity, "layout": source, "preset": preset, "corpus": corpus}),
        [
            *parts_of(runs, editors, params["modes"]),
            Part("chains", {"edits": universe}, lambda: chain_index(edits)),
        ],
        partial(_preset, lm.name, preset),
    )


def icd_of_chains(method: str, model: str, preset: str) -> Icd | None:
    """The preset's icd with chains as its only probes, as all other facts of a graph are scored."""
    editor, suffix = split_method(method)
    if suffix != "icd":
        return None
    return replace(icd_of_preset(editor.name, model, preset), kinds=("chain",))


def runs_of(
    params: Mapping[str, Any],
    lm: LanguageModel,
    edits: Sequence[EditedGraph],
    probes_shown: Mapping[int, Sequence[TrainingProbe]],
) -> list[ThinkEditRun]:
    """A run for each estimator that the parameters name; of edits with ``probes_shown``, if any has some.

    Rivals and neighbours are of all ``edits``.
    """
    edited = [edit for edit in edits if edit.case_id in probes_shown] if probes_shown else edits
    drawn = {"temperature": params["temperature"], "seed": params["seed"]}
    if params["max_new_tokens"]:
        drawn["max_new_tokens"] = params["max_new_tokens"]
    answers = ANSWER_SAMPLING if params["first_line"] else replace(ANSWER_SAMPLING, stop=None)
    sampling = {"sampled": replace(answers, **drawn), "texts": replace(TEXT_SAMPLING, **drawn)}
    return [
        ThinkEditRun(
            lm,
            edited[: params["first"]],
            universe=edits,
            aliases=load_aliases(params["benchmark"]),
            store=ResultsStore(RUNS / "results"),
            layout=params["benchmark"],
            estimator=estimator,
            samples=params["samples"],
            sampling=sampling.get(estimator),
            seed=params["seed"],
            corpus=params["corpus"],
            rivals=params["rivals"],
            probes_shown=probes_shown,
        )
        for estimator in params["estimators"]
    ]


def parts_of(
    runs: Sequence[ThinkEditRun], editors: Mapping[str, Editor], modes: Sequence[str]
) -> list[Part]:
    """Tables of the unedited model, then of each method and mode; their kind is the estimator.

    Where responses are drawn, "none, again" holds a second draw of the unedited model. An edit is made
    once; one that was given up has no rows, unless it is part of a sequence.
    """
    memoised = lru_cache(maxsize=1)(lambda method: Memoised(editors[method], {}))

    def rows(run: ThinkEditRun, method: str, mode: str, *, make: bool = False) -> pd.DataFrame:
        if method not in editors:
            return run.before().assign(method=method, mode=mode)
        if make:
            run.after(memoised(method), mode)
        table = run.evaluation(editors[method], mode).read()
        given_up: set[int] = set()
        if mode not in SEQUENCES:
            for any_run in runs:
                given_up |= any_run.evaluation(editors[method], mode).failed()
        return table[~table["case_id"].isin(given_up)].assign(method=method, mode=mode)

    def part(run: ThinkEditRun, method: str, mode: str) -> Part:
        settings: dict[str, Any] = {"scoring_version": SCORING_VERSION[run.estimator]}
        if run.estimator != "exact":
            settings["samples"] = run.samples
            settings["temperature"] = run.drawn.temperature
            settings["seed"] = run.drawn.seed
            settings["max_new_tokens"] = run.drawn.max_new_tokens
            settings["first_line"] = run.drawn.stop is not None
        if method in editors:
            settings |= editors[method].settings()
        settings |= run.mode(mode).settings
        if not run.rivals:
            settings["rivals"] = False
        read_rows = partial(rows, run, method, mode)
        cases = [edit.case_id for edit in run.edits]
        name = str(TableKey(run.estimator, method, mode))
        return Part(
            name, settings, partial(read_rows, make=True), from_store=read_rows, cases=cases
        )

    unedited = [part(run, "none", BEFORE) for run in runs]
    unedited += [
        part(run.second_draw(), "none", AGAIN) for run in runs if run.estimator == "sampled"
    ]
    edited = [part(run, method, mode) for method, mode in product(editors, modes) for run in runs]
    return unedited + edited


def _preset(model: str, preset: str, table_names: Collection[str]) -> dict[str, str]:
    """The preset's words in captions, for the methods that the run has tables of."""
    keys = [TableKey.parse(name) for name in table_names]
    methods = {key.method for key in keys if key.kind} - {"none"}  # "chains" has no kind
    return {"preset": preset_words(model, preset, sorted(methods))}
