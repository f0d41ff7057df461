"""A construction step by step, as notebook 02 makes it and as it is published."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any, NamedTuple

import pandas as pd

from helpers import UserError, models
from helpers.models.language_model import LanguageModel
from helpers.paths import run_name
from helpers.peak.construction.build import (
    Built,
    PeakSettings,
    build_counterfactual,
    build_temporal,
)
from helpers.peak.construction.filter import Filtered, FilterSettings, apply_filter, questions
from helpers.peak.construction.report import relation_names
from helpers.results.archive import About, Run
from helpers.results.publish import Part, Publication
from helpers.scoring.answers import score_answers
from helpers.triples.graph import read_graph, relations_in
from helpers.triples.sources import open_source
from helpers.triples.templates import packaged_templates

_DATE = re.compile(r"\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?")
MOST_LOCALITY, CORRECT_TEMPORAL, MOST_HARD_TEMPORAL = 6, (4, 15), 15


class Settings(NamedTuple):
    """How both sets are made, and what the model must know."""

    counterfactual: PeakSettings
    temporal: PeakSettings
    limits: FilterSettings


def settings_of(params: Mapping[str, Any]) -> Settings:
    """The settings that parameters of notebook 02 define.

    Raises:
        ValueError: a number below its bound, or an unknown choice.
    """
    sizes = {name: params[name] for name in ("random_type", "link_steps", "seed")}
    sizes["locality"] = (params["least_locality"], MOST_LOCALITY)
    span = {name: params[name] for name in ("cutoff", "until") if params[name] is not None}
    for name, date in span.items():
        if not _DATE.fullmatch(date):
            raise ValueError(
                f"{name}: {date!r} is no date; write a year, '2022-01' or '2022-01-31'"
            )
    if span.get("until", "~") <= params["cutoff"]:
        raise ValueError(f"until: {span['until']!r} must come after the cutoff {span['cutoff']!r}")
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


def filter_sets(
    built: Mapping[str, Built], language_model: LanguageModel, limits: FilterSettings
) -> dict[str, Filtered]:
    """What a model knows of the candidates of each set that has some."""
    candidates = {name: made.records for name, made in built.items() if made.records}
    return {
        name: apply_filter(records, score_answers(language_model, questions(records)), limits)
        for name, records in candidates.items()
    }


def construction_run(
    params: Mapping[str, Any],
    language_model: LanguageModel,
    built: Mapping[str, Built],
    filtered: Mapping[str, Filtered],
) -> Run:
    """What figures of a construction are drawn from; no text of records but subject and relation."""
    steps = {name: [*built[name].funnel(), *part.funnel()] for name, part in filtered.items()}
    rows = [(name, *step) for name, funnel in steps.items() for step in funnel]
    table = pd.concat([part.table.assign(set=name) for name, part in filtered.items()])
    table["name"] = table["relation"].map(relation_names(table["relation"].unique()))
    funnel = pd.DataFrame(rows, columns=["set", "step", "left"])
    name = run_name(params["source"], language_model.name)
    tables = {"funnel": funnel, "filter": table.reset_index(drop=True)}
    return Run(name, About(_source(params, language_model)), tables)


def publication(params: Mapping[str, Any]) -> Publication:
    """Notebook 02's construction: the facts read, both sets built, and filtered by the model."""
    model = models.load(params["model"], dtype=params["dtype"], device=params["device"])

    @cache
    def made() -> Mapping[str, pd.DataFrame]:
        settings, templates = settings_of(params), packaged_templates()
        store = open_source(params["source"])
        relations = params["relations"] or relations_in(store)
        graph = read_graph(store, relations, most=params["most_rows"])
        span = {"cutoff": params["cutoff"], "until": params["until"]}
        built = {
            "PEAK-CF": build_counterfactual(graph, templates, settings=settings.counterfactual),
            "PEAK-T": build_temporal(graph, templates, **span, settings=settings.temporal),
        }
        if not any(part.records for part in built.values()):
            raise UserError(
                f"no fact of {params['source']} becomes a candidate: ask for fewer answers"
                " (least_correct, least_hard, least_locality) or name other relations"
            )
        filtered = filter_sets(built, model, settings.limits)
        return construction_run(params, model, built, filtered).tables

    parts = [Part(name, {}, lambda name=name: made()[name]) for name in ("funnel", "filter")]  # type: ignore[misc]
    name = run_name(params["source"], model.name)
    return Publication(name, About(_source(params, model)), parts)


def _source(params: Mapping[str, Any], language_model: LanguageModel) -> dict[str, Any]:
    settings = settings_of(params)
    return {
        **{"facts": params["source"], **language_model.identity, **asdict(settings.limits)},
        **{"counterfactual": asdict(settings.counterfactual)},
        **{"temporal": asdict(settings.temporal)},
        **{"cutoff": params["cutoff"], "until": params["until"]},
    }
