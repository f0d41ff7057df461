"""A construction step by step, as notebook 02 makes it and as it is published, and its figure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
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
from helpers.results.style import PALETTE, with_caption
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
    lm = models.load(params["model"], dtype=params["dtype"], device=params["device"])

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
    """Facts left after each step, a panel for each set of records, the two largest losses in colour."""
    by_set = run.tables["funnel"].groupby("set", sort=False)
    funnels = {str(set_name): funnel for set_name, funnel in by_set}
    most_facts = run.tables["funnel"]["left"].max()
    size = (7.2, 0.26 * max(map(len, funnels.values())) + 1.3)
    fig, panels = plt.subplots(1, len(funnels), figsize=size, sharex=True, squeeze=False)
    for axes, (set_name, funnel) in zip(panels[0], funnels.items(), strict=True):
        _draw_funnel(axes, funnel)
        axes.set(
            xscale="log", xlim=(1, 12 * most_facts), title=set_name, xlabel="facts left (log scale)"
        )
    set_name, funnel = next(iter(funnels.items()))
    source = run.about.source
    source_words = (
        f"{source['facts']} facts, {source['model']}, {source['dtype']} on {source['device']}"
    )
    note = f"{source_words}, rule {source['rule']}\nIn colour: the two steps that keep least"
    return with_caption(fig, _losses_in_words(set_name, funnel), note)


def _largest_losses(funnel: pd.DataFrame) -> list[int]:
    """Rows of the two steps that keep the smallest share of what was there before."""
    facts_left = funnel["left"].to_numpy()
    share_left = facts_left[1:] / np.maximum(facts_left[:-1], 1)
    return sorted(int(step_index) + 1 for step_index in np.argsort(share_left, kind="stable")[:2])


def _draw_funnel(axes: Axes, funnel: pd.DataFrame) -> None:
    """Facts left after each step, from top to bottom, the two largest losses in colour."""
    heights = np.arange(len(funnel))[::-1]
    facts_left = funnel["left"].to_numpy()
    losses = _largest_losses(funnel)
    axes.plot(facts_left, heights, color="0.6", marker="o", zorder=2)
    axes.plot(facts_left[losses], heights[losses], "o", color=PALETTE[3], zorder=3)
    for height, count in zip(heights, facts_left, strict=True):
        axes.text(1.7 * max(count, 1), height, f"{count:,}", va="center")
    axes.set_yticks(heights, funnel["step"], fontsize=8)
    axes.grid(axis="y", visible=False)


def _losses_in_words(set_name: str, funnel: pd.DataFrame) -> str:
    """The two steps at which a set loses most, each with the facts before and after it."""
    losses = []
    for step_index in _largest_losses(funnel):
        before, after = funnel["left"].iloc[[step_index - 1, step_index]]
        losses.append(f"“{funnel['step'].iloc[step_index]}” ({before:,} → {after:,})")
    return f"{set_name} loses the largest shares at {' and '.join(losses)}"


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
