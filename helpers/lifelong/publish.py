"""A lifelong run as it is published: a table of measures for each method and order of the stream."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pandas as pd

from helpers.editing.presets import preset_words
from helpers.lifelong.checkpoints import LifelongRun
from helpers.lifelong.plan import LifelongPlan, cost_table
from helpers.models import LanguageModel, load_named
from helpers.paths import run_name
from helpers.results.archive import About, Run
from helpers.results.publish import Part, Publication

_TYPES = {
    "case_id": "int32",
    "measure": "category",
    "item": "int32",
    "unit": "int32",
    "value": "float32",
}


def publication(params: Mapping[str, Any]) -> Publication:
    """The runs that the parameters of notebook 10 ask for; what they will cost is printed first."""
    lm = load_named(params)
    plan = LifelongPlan.of(params)
    runs = plan.runs(lm)
    print("CPU minutes of SmolLM2's measured costs, in proportion to the model's parameters:")
    print(cost_table(runs).to_string(index=False, float_format="{:.1f}".format), flush=True)
    return publication_of_runs(lm, plan, {str(key): run for key, run in runs.items()})


def publication_of_runs(
    lm: LanguageModel, plan: LifelongPlan, runs: Mapping[str, LifelongRun]
) -> Publication:
    """Runs as parts of a publication, by the names of their tables."""
    any_run = next(iter(runs.values()))
    source = {
        "benchmark": "lifelong",
        "dataset": plan.stream,
        **lm.identity,
        "probes": any_run.probed.probes.settings,
    }
    parts = []
    for name, run in runs.items():
        track = run.track
        settings = {
            **track.editor.settings(),
            "stream": track.settings["stream"],
            "turn_size": track.turn_size,
        }
        parts.append(
            Part(
                name,
                settings,
                partial(published_measures, run),
                partial(published_measures, run, from_store_only=True),
                cases=(0, *run.checkpoints),
            )
        )
    protected = [method for method in (*plan.methods, *plan.in_turns) if method.endswith("+app")]
    words = preset_words(lm.name, plan.preset, protected)
    known_count = len(any_run.probed.known_facts)
    caption = {"preset": words, "known facts": known_count}
    return Publication(run_name(lm.name, plan.stream), About(source, caption=caption), parts)


def published_measures(run: LifelongRun, *, from_store_only: bool = False) -> pd.DataFrame:
    """The measures of a run as they are published; if ``from_store_only``, of what is finished."""
    if not from_store_only:
        run.complete()
    return run.measures().astype(_TYPES)


def live_run(lm: LanguageModel, plan: LifelongPlan, runs: Mapping[str, LifelongRun]) -> Run:
    """Runs made now, as published runs are, under a name that no published run has."""
    planned = publication_of_runs(lm, plan, runs)
    tables = {part.name: part.make() for part in planned.parts}
    settings = {part.name: part.settings for part in planned.parts}
    about = About(planned.about.source, settings, planned.about.caption)
    return Run(f"{planned.name}@live", about, tables)
