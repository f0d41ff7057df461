"""KLoB's published run: locators over all subtasks, and ROME at every layer, from a params file.

A table each: "sentences: LOCATOR" and the same of the other tables of ``run``, and *edits*.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

from helpers.klob.examples import SCHEMAS, load_examples, read_examples
from helpers.klob.layers import edit_every_layer, edit_requests, edit_settings
from helpers.klob.metrics import SHARES
from helpers.klob.run import TABLES, VERSION, Tables, run_locators
from helpers.locating.locators import LOCATORS, make_locator
from helpers.models import LanguageModel
from helpers.models.load import load
from helpers.paths import RUNS, run_name
from helpers.results.archive import About
from helpers.results.publish import Part, Publication
from helpers.results.store import ResultsStore, settings_key


def publication(params: Mapping[str, Any]) -> Publication:
    """The run that the parameters of notebook 05 ask for; models that fill masks are not edited."""
    loading = {name: params[name] for name in ("dtype", "device", "masked")}
    lm = load(params["model"], **loading)
    counts = dict(zip(SCHEMAS, (count or None for count in params["counts"]), strict=True))
    how = {name: params[name] for name in ("source", "seed", "permutations")}
    content = {str(s): [*map(str, read_examples(s, params["source"]).values())] for s in SCHEMAS}
    own = params["source"] not in ("klob", "klob-mini")  # named with what is in its files
    source = {
        **lm.identity,
        "dataset": params["source"] + f" ({settings_key(content)})" * own,
        "seed": params["seed"],
        "shares": list(SHARES),
        "permutations": params["permutations"],
        "version": VERSION,
    }
    parts = evaluations(lm, params["locators"] or list(LOCATORS), counts=counts, **how)
    if params["edited_facts"] and not params["masked"]:
        parts.append(layer_edits_part(lm, params))
    return Publication(run_name(params["model"], params["source"]), About(source), parts)


def evaluations(lm: LanguageModel, locators: list[str], **how: Any) -> list[Part]:
    """The tables of each locator."""

    @lru_cache(maxsize=1)  # the tables of one locator are made together
    def tables(name: str, finished: bool) -> Tables:
        store = ResultsStore(RUNS / "klob")
        return run_locators(lm, [name], store=store, finished=finished, **how)

    def part(name: str, table: str) -> Part:
        settings = {**make_locator(name, how["seed"]).settings(), "counts": how["counts"]}
        return Part(
            f"{table}: {name}",
            settings,
            make=lambda: tables(name, False)[table],
            stored=lambda: tables(name, True)[table],
        )

    for name in locators:
        make_locator(name).shape(lm.layout)  # or why it cannot score this model
    return [part(name, table) for name in locators for table in TABLES]


def layer_edits_part(lm: LanguageModel, params: Mapping[str, Any]) -> Part:
    """ROME at every layer, on ``edited_facts`` of the facts that locators are evaluated on."""
    dataset, seed, count = params["source"], params["seed"], params["counts"][0] or None
    how = {"preset": params["preset"], "corpus": params["corpus"], "seed": seed}
    facts = read_examples("consistency", dataset)
    evaluated = load_examples("consistency", dataset, count=count, seed=seed).numbers
    drawn = random.Random(seed).sample(evaluated, min(params["edited_facts"], len(evaluated)))
    chosen = sorted(edit_requests(facts, drawn, seed=seed))  # those that can be edited
    make = partial(edit_every_layer, lm, facts, chosen, **how)
    settings = {**edit_settings(lm, facts, **how), "edited": chosen}
    return Part("edits", settings, partial(make, store=ResultsStore(RUNS / "klob-edits")))
