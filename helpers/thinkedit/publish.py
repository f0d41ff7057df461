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
from helpers.editing.presets import preset_words
from helpers.models import LanguageModel, load
from helpers.paths import RUNS, file_name, run_name
from helpers.results.archive import About, TableKey
from helpers.results.publish import Part, Publication
from helpers.results.store import ResultsStore
from helpers.thinkedit.knowgic import Edit, load_aliases, load_edits
from helpers.thinkedit.metrics import chain_index
from helpers.thinkedit.modes import AGAIN, BEFORE, SEQUENCES
from helpers.thinkedit.run import ThinkEditRun
from helpers.thinkedit.scores import ANSWERS, SCORING_VERSION, TEXTS


def publication(params: Mapping[str, Any]) -> Publication:
    """The run that the parameters of notebook 06 ask for."""
    lm = load(params["model"], dtype=params["dtype"], device=params["device"])
    edits = load_edits(params["benchmark"])
    common = {name: params[name] for name in ("preset", "corpus")}
    memo: Memo = {}  # what several methods need, found once
    options = {**common, "seed": params["seed"], "progress": True, "memo": memo}
    editors = {
        method: with_memo(build_editor(method, lm, **options), memo) for method in params["methods"]
    }
    runs = runs_of(params, lm, edits)
    universe = runs[0].settings()["universe"]
    layout, name = params["benchmark"], lm.name
    of = Path(layout).name.removesuffix(".json")
    content = f" ({universe})" * layout.endswith(".json")  # of your own file
    return Publication(
        # June 2025's edits are the paper's: such a run has the model's name alone.
        file_name(name) if layout == "2025-06" else run_name(name, of),
        About({**lm.identity, "layout": layout + content, **common}),
        [
            *parts_of(runs, editors, params["modes"]),
            Part("chains", {"edits": universe}, lambda: chain_index(edits)),
        ],
        partial(_preset, name, params["preset"]),
    )


def runs_of(
    params: Mapping[str, Any], lm: LanguageModel, edits: Sequence[Edit]
) -> list[ThinkEditRun]:
    """A run for each estimator that the parameters name."""
    drawn = {"temperature": params["temperature"], "seed": params["seed"]}
    if params["max_new_tokens"]:
        drawn["max_new_tokens"] = params["max_new_tokens"]
    answers = ANSWERS if params["first_line"] else replace(ANSWERS, stop=None)
    sampling = {"sampled": replace(answers, **drawn), "texts": replace(TEXTS, **drawn)}
    how = {name: params[name] for name in ("samples", "seed", "rivals")}
    how |= {"layout": params["benchmark"], "aliases": load_aliases(params["benchmark"])}
    how |= {"store": ResultsStore(RUNS / "results")}
    all_of = partial(ThinkEditRun, lm, edits[: params["first"]], edits, **how)
    return [all_of(estimator=e, sampling=sampling.get(e)) for e in params["estimators"]]


def parts_of(
    runs: Sequence[ThinkEditRun], editors: Mapping[str, Editor], modes: Sequence[str]
) -> list[Part]:
    """Tables of the unedited model, then of each method and mode; their kind is the estimator.

    Where responses are drawn, "none, again" holds a second draw of the unedited model. An edit is made
    once; one that was given up has no rows, unless it is part of a sequence.
    """
    once = lru_cache(maxsize=1)(lambda method: Memoised(editors[method], {}))

    def rows(run: ThinkEditRun, method: str, mode: str, *, make: bool = False) -> pd.DataFrame:
        if method not in editors:
            return run.before().assign(method=method, mode=mode)
        if make:
            run.after(once(method), mode)
        table, lost = run.read(editors[method], mode), set[int]()
        for each in runs if mode not in SEQUENCES else ():
            made = each.read(editors[method], mode, "edits")
            lost |= set(made.loc[made["failure"] != "", "case_id"]) if len(made) else set()
        return table[~table["case_id"].isin(lost)].assign(method=method, mode=mode)

    def part(run: ThinkEditRun, method: str, mode: str) -> Part:
        settings: dict[str, Any] = {"scoring_version": SCORING_VERSION[run.estimator]}
        if run.estimator != "exact":
            names = ("temperature", "seed", "max_new_tokens")
            settings["samples"] = run.samples
            settings |= {name: getattr(run.drawn, name) for name in names}
            settings["first_line"] = run.drawn.stop is not None
        if method in editors:
            settings |= editors[method].settings()
        settings |= run.of_mode(mode) | ({} if run.rivals else {"rivals": False})
        stored = partial(rows, run, method, mode)
        cases = [edit.case_id for edit in run.edits]
        name = str(TableKey(run.estimator, method, mode))
        return Part(name, settings, partial(stored, make=True), stored, cases)

    unedited = [part(run, "none", BEFORE) for run in runs]
    unedited += [part(run.again(), "none", AGAIN) for run in runs if run.estimator == "sampled"]
    edited = [part(run, *asked) for asked in product(editors, modes) for run in runs]
    return unedited + edited


def _preset(model: str, preset: str, names: Collection[str]) -> dict[str, str]:
    """The preset's words in captions, for the methods that the run has tables of."""
    keys = [TableKey.parse(name) for name in names]
    methods = {key.method for key in keys if key.kind} - {"none"}  # "chains" has no kind
    return {"preset": preset_words(model, preset, sorted(methods))}
