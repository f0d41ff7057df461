"""A construction as the parameters of notebook 02 ask for it, from triples to filtered records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import pandas as pd

from helpers import UserError
from helpers.models.language_model import LanguageModel
from helpers.paths import run_name
from helpers.peak.construction.candidates import build_counterfactual, build_temporal
from helpers.peak.construction.model_filter import (
    Filtered,
    FilterSettings,
    apply_filter,
    questions,
)
from helpers.peak.construction.settings import Built, PeakSettings, temporal_span
from helpers.peak.construction.tables import relation_names
from helpers.results.archive import About, Run
from helpers.scoring.answers import Question, score_answers
from helpers.triples.graph import read_graph, relations_in
from helpers.triples.sources import open_source
from helpers.triples.templates import packaged_templates

MOST_LOCALITY, CORRECT_TEMPORAL, MOST_HARD_TEMPORAL = 6, (4, 15), 15  # what the notebook fixes


class Settings(NamedTuple):
    """How both sets are made, and what the model must know."""

    counterfactual: PeakSettings
    temporal: PeakSettings
    limits: FilterSettings


def settings_of(params: Mapping[str, Any]) -> Settings:
    """The settings that parameters of notebook 02 stand for.

    Raises:
        ValueError: a number below its bound, or an unknown choice.
    """
    sizes = {name: params[name] for name in ("random_type", "link_steps", "seed")}
    sizes["locality"] = (params["least_locality"], MOST_LOCALITY)
    temporal_span(params["cutoff"], params["until"])
    filtered = {name: params[name] for name in ("rule", "hard_share", "threshold", "prune")}
    return Settings(
        PeakSettings(
            correct=(params["least_correct"], params["most_correct"]),
            hard=(params["least_hard"], params["most_hard"]),
            per_relation=params["per_relation"],
            **sizes,
        ),
        PeakSettings(
            correct=CORRECT_TEMPORAL,
            hard=(params["temporal_least_hard"], MOST_HARD_TEMPORAL),
            per_relation=params["temporal_per_relation"],
            **sizes,
        ),
        FilterSettings(least_correct=params["least_known"], **filtered),
    )


def about_of(params: Mapping[str, Any], language_model: LanguageModel) -> About:
    """What a construction's tables are of."""
    settings = settings_of(params)
    return About(
        {
            **{"facts": params["source"], **language_model.identity, **asdict(settings.limits)},
            **{"counterfactual": asdict(settings.counterfactual)},
            **{"temporal": asdict(settings.temporal)},
            **{"cutoff": params["cutoff"], "until": params["until"]},
        }
    )


def construct(params: Mapping[str, Any], language_model: LanguageModel) -> Run:
    """Read the facts, build both sets, filter them; a set without candidates is left out.

    Raises:
        UserError: neither set has a candidate.
    """
    settings, templates = settings_of(params), packaged_templates()
    store = open_source(params["source"])
    relations = params["relations"] or relations_in(store)
    graph = read_graph(store, relations, most=params["most_rows"])
    span = {"cutoff": params["cutoff"], "until": params["until"]}
    built = {
        "PEAK-CF": build_counterfactual(graph, templates, settings=settings.counterfactual),
        "PEAK-T": build_temporal(graph, templates, **span, settings=settings.temporal),
    }
    filtered = {}
    for name, candidates in built.items():
        if candidates.records:
            asked = [Question(*question) for question in questions(candidates.records)]
            scores = score_answers(language_model, asked)
            filtered[name] = apply_filter(candidates.records, scores, settings.limits)
    if not filtered:
        raise UserError(
            f"no fact of {params['source']} becomes a candidate: ask for fewer answers (least_correct,"
            " least_hard, least_locality) or name other relations"
        )
    name = run_name(params["source"], language_model.name)
    return Run(name, about_of(params, language_model), tables_of(built, filtered))


def tables_of(
    built: Mapping[str, Built], filtered: Mapping[str, Filtered]
) -> dict[str, pd.DataFrame]:
    """What figures of a construction are drawn from; no text of records but subject and relation.

    Args:
        built: the candidates of each set.
        filtered: what the filter leaves of those that have some.
    """
    rows = [
        (name, *step)
        for name, part in filtered.items()
        for step in (*built[name].funnel(), *part.funnel())
    ]
    table = pd.concat([part.table.assign(set=name) for name, part in filtered.items()])
    table["name"] = table["relation"].map(relation_names(table["relation"].unique()))
    funnel = pd.DataFrame(rows, columns=["set", "step", "left"])
    return {"funnel": funnel, "filter": table.reset_index(drop=True)}
