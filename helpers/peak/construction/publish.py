"""A construction step by step, as notebook 02 makes it and as it is published, and its figure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from helpers import UserError, models
from helpers.models import LanguageModel
from helpers.paths import run_name
from helpers.peak.construction.build import (
    Built,
    Filtered,
    FilterSettings,
    PeakSettings,
    apply_filter,
    build_counterfactual,
    build_temporal,
    list_questions,
)
from helpers.results.archive import About, Run
from helpers.results.figure import figure
from helpers.results.publish import Part, Publication
from helpers.results.style import CONDITION_COLOURS, with_caption
from helpers.results.text import footer
from helpers.scoring.answers import score_answers
from helpers.triples.graph import read_graph, relations_in
from helpers.triples.sources import open_source
from helpers.triples.templates import packaged_templates

_DATE = re.compile(r"\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?")


def settings_of(params: Mapping[str, Any]) -> tuple[PeakSettings, PeakSettings, FilterSettings]:
    """How parameters of notebook 02 make PEAK-CF and PEAK-T, and what the model must know of them."""
    for name in ("cutoff", "until"):
        if not _DATE.fullmatch(params[name]):
            raise ValueError(f"{name}: {params[name]!r} is no date such as 2022 or 2022-01-31")
    if params["until"] <= params["cutoff"]:
        raise ValueError(f"until: {params['until']!r} must come after the cutoff")
    shared_names = ("random_false", "link_steps", "paraphrases", "seed")
    shared_sizes = {name: params[name] for name in shared_names}
    shared_sizes["locality"] = (params["least_locality"], params["most_locality"])
    filter_limits = {name: params[name] for name in ("rule", "hard_share", "threshold")}
    return (
        PeakSettings(
            correct=(params["least_correct"], params["most_correct"]),
            hard=(params["least_hard"], params["most_hard"]),
            per_relation=params["per_relation"],
            **shared_sizes,
        ),
        PeakSettings(
            correct=(params["temporal_least_correct"], params["temporal_most_correct"]),
            hard=(params["temporal_least_hard"], params["temporal_most_hard"]),
            per_relation=params["temporal_per_relation"],
            **shared_sizes,
        ),
        FilterSettings(least_correct=params["least_known"], **filter_limits),
    )


def construction_run(
    params: Mapping[str, Any],
    lm: LanguageModel,
    built: Mapping[str, Built],
    filtered: Mapping[str, Filtered],
) -> Run:
    """What is published of a construction; no text of records but subject and relation."""
    funnel_rows = []
    filter_tables = []
    for set_name, filtered_set in filtered.items():
        for step, facts_left in (*built[set_name].funnel(), *filtered_set.funnel()):
            funnel_rows.append((set_name, step, facts_left))
        filter_tables.append(filtered_set.table.assign(set=set_name))
    funnel = pd.DataFrame(funnel_rows, columns=["set", "step", "left"])
    tables = {"funnel": funnel, "filter": pd.concat(filter_tables, ignore_index=True)}
    name = run_name(params["source"], lm.name)
    return Run(name, About(_source(params, lm)), tables)


def publication(params: Mapping[str, Any]) -> Publication:
    """Notebook 02's construction: the facts read, both sets built, and filtered by the model."""
    lm = models.load_named(params)

    @cache
    def published_tables() -> Mapping[str, pd.DataFrame]:
        templates = packaged_templates()
        settings_cf, settings_t, filter_settings = settings_of(params)
        store = open_source(params["source"])
        relations = params["relations"] or relations_in(store)
        graph = read_graph(store, relations, most=params["most_rows"])
        counterfactual = build_counterfactual(graph, templates, settings=settings_cf)
        temporal = build_temporal(
            graph, templates, cutoff=params["cutoff"], until=params["until"], settings=settings_t
        )
        built = {"PEAK-CF": counterfactual, "PEAK-T": temporal}
        if not counterfactual.records and not temporal.records:
            raise UserError(
                f"no fact of {params['source']} becomes a candidate: lower"
                " least_correct, least_hard or least_locality, or name other relations"
            )
        filtered = {}
        for set_name, built_set in built.items():
            if built_set.records:
                scores = score_answers(lm, list_questions(built_set.records))
                filtered[set_name] = apply_filter(built_set.records, scores, filter_settings)
        return construction_run(params, lm, built, filtered).tables

    settings = {name: params[name] for name in ("relations", "most_rows")}
    parts = [
        Part("funnel", settings, lambda: published_tables()["funnel"]),
        Part("filter", settings, lambda: published_tables()["filter"]),
    ]
    name = run_name(params["source"], lm.name)
    return Publication(name, About(_source(params, lm)), parts)


@figure(
    "02_funnel",
    of="construction",
    main="packaged_smollm2-135m",
    needs=("funnel",),
)
def construction_funnel(run: Run) -> Figure:
    """The share of facts that each step of the construction keeps, for each set of records."""
    by_set = run.tables["funnel"].groupby("set", sort=False)
    steps_by_set = {str(set_name): _shares_kept(funnel) for set_name, funnel in by_set}
    steps = _steps_of_all(list(steps_by_set.values()))
    fig, axes = plt.subplots(figsize=(6.8, 0.36 * len(steps) + 1.2))
    axes.grid(visible=False)
    for set_index, (set_name, funnel_steps) in enumerate(steps_by_set.items()):
        aside = 0.36 * (set_index - (len(steps_by_set) - 1) / 2)
        heights = np.array([steps.index(step) for step in funnel_steps["step"]]) + aside
        percent = 100 * funnel_steps["kept"]
        bars = axes.barh(
            heights, percent, 0.34, color=CONDITION_COLOURS[2 * set_index], label=set_name
        )
        axes.bar_label(
            bars, [f"{count:,}" for count in funnel_steps["left"]], padding=2, fontsize=7
        )
    axes.set_yticks(range(len(steps)), steps, fontsize=8)
    axes.set(ylim=(len(steps) - 0.5, -0.5), xlim=(0, 112), xlabel="facts kept at this step, %")
    if len(steps_by_set) > 1:
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    source = run.about.source
    first_set, first_steps = next(iter(steps_by_set.items()))
    first_counts = dict.fromkeys(f"{funnel['left'].iloc[0]:,}" for _, funnel in by_set)
    notes = (
        "numbers: facts left",
        "relation's share: the most records that a relation may have",
        f"last steps: what the model knows, by the {source['rule']} of answers",
        "no bar: not a step of the set",
    )
    caption = footer([run], f"{' or '.join(first_counts)} {source['facts']} facts", *notes)
    return with_caption(fig, _losses_in_words(first_set, first_steps), caption)


def _shares_kept(funnel: pd.DataFrame) -> pd.DataFrame:
    """Each step after the first with the facts left, and ``kept``, their share of those before it."""
    facts_before = funnel["left"].shift().clip(lower=1)
    return funnel.assign(kept=funnel["left"] / facts_before).iloc[1:]


def _steps_of_all(shares_of_sets: Sequence[pd.DataFrame]) -> list[str]:
    """The steps of all sets, each after the one that it follows in the set which has it first."""
    steps: list[str] = []
    for shares in shares_of_sets:
        position = 0
        for step in shares["step"]:
            if step not in steps:
                steps.insert(position, step)
            position = steps.index(step) + 1
    return steps


def _losses_in_words(set_name: str, shares: pd.DataFrame) -> str:
    """The two steps at which a set keeps the smallest shares."""
    smallest = shares.nsmallest(2, "kept").sort_index()
    losses = [
        # A line does not end before the percent sign.
        f"“{step}” keeps {100 * share:.0f}\u00a0%"
        for step, share in zip(smallest["step"], smallest["kept"], strict=True)
    ]
    return f"{set_name} loses most facts where {' and '.join(losses)}"


def _source(params: Mapping[str, Any], lm: LanguageModel) -> dict[str, Any]:
    counterfactual, temporal, filter_settings = (
        asdict(settings) for settings in settings_of(params)
    )
    return {
        "facts": params["source"],
        **lm.identity,
        **filter_settings,
        "counterfactual": counterfactual,
        "temporal": temporal,
        "cutoff": params["cutoff"],
        "until": params["until"],
    }
