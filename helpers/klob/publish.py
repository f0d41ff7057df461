"""KLoB's published run: locators over all subtasks, and ROME at every layer, from a params file."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from helpers.klob.layer_edits import edit_every_layer, edit_settings, editable
from helpers.klob.questions import chosen_examples
from helpers.klob.run import Plan, about, collect, located_layers, run
from helpers.locating.locators import LOCATORS
from helpers.models.language_model import LanguageModel
from helpers.models.load import load
from helpers.paths import RUNS, run_name
from helpers.results.archive import About, Archive
from helpers.results.store import ResultsStore


def publish(params: Mapping[str, Any], into: Archive, *, finished: bool = False) -> Path:
    """Evaluate locators and edit facts layer by layer; locators published before stay beside them.

    Args:
        params: of notebook 05. ``locators`` are given ``counts`` examples of each subtask, and those of
            ``layers_only`` the edited facts alone, for the test of the locality hypothesis.
        into: the archive *klob*.
        finished: write what is finished of the evaluation and compute nothing.

    Raises:
        ArchiveError: the published run was made from other examples or in another way.
    """
    how = {name: params[name] for name in ("dtype", "device", "masked")}
    language_model = load(params["model"], **how)
    name = run_name(params["model"], params["source"])
    consistency, relevance, unbiasedness = (count or None for count in params["counts"])
    plan = Plan(
        tuple(params["locators"] or LOCATORS),
        params["source"],
        {"consistency": consistency, "relevance": relevance, "unbiasedness": unbiasedness},
        params["seed"],
        permutations=params["permutations"],
        skip_bad=params.get("skip_bad_records", False),
    )
    made, store = about(language_model, plan), ResultsStore(RUNS / "klob")
    into.check(name, made)
    if finished:
        return into.put(name, collect(language_model, plan, store=store), made, by=["locator"])
    tables = run(language_model, plan, store=store, progress=True)
    folder = into.put(name, tables, made, by=["locator"])
    if params["edited_facts"] and not params["masked"]:
        publish_edits(language_model, params, name, into)
    if params["layers_only"]:
        layers = located_layers(language_model, params["layers_only"], into.get(name))
        into.put(name, {"layers": layers}, About(made.source))
    return folder


def publish_edits(
    language_model: LanguageModel, params: Mapping[str, Any], name: str, into: Archive
) -> Path:
    """Add edits of facts at every layer to a published run.

    Args:
        params: of notebook 05: ``edited_facts`` of the evaluated ones are edited.
        into: the archive *klob*.
    """
    seed, dataset = params["seed"], params["source"]
    options = {"preset": params["preset"], "corpus": params["corpus"], "seed": seed}
    usable: dict[str, Any] = {"asked": language_model, "seed": seed}
    usable["skip_bad"] = params.get("skip_bad_records", False)
    examples, skipped = chosen_examples("consistency", dataset, **usable)
    count = params["counts"][0] or None
    evaluated, _ = chosen_examples("consistency", dataset, count=count, **usable)
    possible = editable(examples, list(evaluated))
    edited = random.Random(seed).sample(possible, min(params["edited_facts"], len(possible)))
    store = ResultsStore(RUNS / "klob-edits")
    table = edit_every_layer(
        language_model, examples, sorted(edited), store=store, progress=True, **options
    )
    source = {**language_model.identity, "dataset": dataset, "seed": seed}
    settings = edit_settings(language_model, examples, **options)
    settings |= {"skipped": len(skipped)} if skipped else {}
    return into.put(name, {"edits": table}, About(source, {"edits": settings}))
