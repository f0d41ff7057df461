"""KLoB's published run: locators over all subtasks, and ROME at every layer, from a params file.

A table each: "sentences: LOCATOR" and the same of the other tables of ``run``, and *edits*.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from helpers.klob.examples import SCHEMAS, load_examples, read_examples
from helpers.klob.layers import edit_every_layer, edit_requests, edit_settings
from helpers.klob.run import TABLES, VERSION, Plan, Tables, run
from helpers.locating.locators import LOCATORS, make_locator
from helpers.models.language_model import LanguageModel
from helpers.models.load import load
from helpers.paths import RUNS, run_name
from helpers.results.archive import About
from helpers.results.publish import Part, Publication
from helpers.results.store import ResultsStore


def publication(params: Mapping[str, Any]) -> Publication:
    """The run that the parameters of notebook 05 ask for; models that fill masks are not edited."""
    how = {name: params[name] for name in ("dtype", "device", "masked")}
    language_model = load(params["model"], **how)
    counts = dict(zip(SCHEMAS, (count or None for count in params["counts"]), strict=True))
    locators = tuple(params["locators"] or LOCATORS)
    deals = params["permutations"]
    plan = Plan(locators, params["source"], counts, params["seed"], permutations=deals)
    source = {
        **language_model.identity,
        "dataset": plan.source,
        "seed": plan.seed,
        "shares": list(plan.shares),
        "permutations": plan.permutations,
        "version": VERSION,
    }
    parts = evaluations(language_model, plan)
    if params["edited_facts"] and not params["masked"]:
        parts.append(edits(language_model, params))
    return Publication(run_name(params["model"], params["source"]), About(source), parts)


def evaluations(language_model: LanguageModel, plan: Plan) -> list[Part]:
    """The tables of each locator."""

    @lru_cache(maxsize=1)  # the tables of one locator are made together
    def tables(name: str, finished: bool) -> Tables:
        one, store = replace(plan, locators=(name,)), ResultsStore(RUNS / "klob")
        return run(language_model, one, store=store, finished=finished)

    def part(name: str, table: str) -> Part:
        settings = {**make_locator(name).settings(), "counts": dict(plan.counts)}
        return Part(
            f"{table}: {name}",
            settings,
            make=lambda: tables(name, False)[table],
            stored=lambda: tables(name, True)[table],
        )

    return [part(name, table) for name in plan.locators for table in TABLES]


def edits(language_model: LanguageModel, params: Mapping[str, Any]) -> Part:
    """ROME at every layer, on ``edited_facts`` of the facts that locators are evaluated on."""
    dataset, seed, count = params["source"], params["seed"], params["counts"][0] or None
    how = {"preset": params["preset"], "corpus": params["corpus"], "seed": seed}
    facts = read_examples("consistency", dataset)
    evaluated = load_examples("consistency", dataset, count=count, seed=seed).numbers
    possible = list(edit_requests(facts, evaluated, seed=seed))
    chosen = random.Random(seed).sample(possible, min(params["edited_facts"], len(possible)))
    make = partial(edit_every_layer, language_model, facts, sorted(chosen), **how)
    settings = {**edit_settings(language_model, facts, **how), "edited": sorted(chosen)}
    return Part("edits", settings, partial(make, store=ResultsStore(RUNS / "klob-edits")))
