"""KLoB's published run: locators over all subtasks, and ROME at every layer, from a params file.

For each locator and each of ``run.TABLES`` it has a table, such as "sentences: random"; *edits* is one more.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

from helpers.klob.examples import SCHEMAS, Subtask, load_examples, read_examples
from helpers.klob.layers import edit_every_layer, edit_requests, edit_settings
from helpers.klob.metrics import SHARES
from helpers.klob.run import TABLES, VERSION, KlobTables, run_locators
from helpers.locating.locators import LOCATORS, make_locator
from helpers.models import LanguageModel
from helpers.models.load import load_named
from helpers.paths import RUNS, run_name
from helpers.results.archive import About, TableKey
from helpers.results.publish import Part, Publication
from helpers.results.store import ResultsStore, settings_key


def publication(params: Mapping[str, Any]) -> Publication:
    """The run that the parameters of notebook 05 ask for; models that fill masks are not edited."""
    lm = load_named(params)
    count_by_subtask = dict(
        zip(SCHEMAS, (count or None for count in params["counts"]), strict=True)
    )
    source = {
        **lm.identity,
        "dataset": dataset_name(params["source"]),
        "seed": params["seed"],
        "shares": list(SHARES),
        "permutations": params["permutations"],
        "version": VERSION,
    }
    parts = evaluations(
        lm,
        params["locators"] or list(LOCATORS),
        source=params["source"],
        counts=count_by_subtask,
        seed=params["seed"],
        permutations=params["permutations"],
    )
    if params["edited_facts"] and not params["masked"]:
        parts.append(layer_edits_part(lm, params))
    return Publication(run_name(params["model"], params["source"]), About(source), parts)


def dataset_name(source: str) -> str:
    """The source; a user's own one with a digest of what is in its files."""
    if source in ("klob", "klob-mini"):
        return source
    examples_in_words = {
        str(subtask): [str(example) for example in read_examples(subtask, source).values()]
        for subtask in SCHEMAS
    }
    return f"{source} ({settings_key(examples_in_words)})"


def evaluations(
    lm: LanguageModel,
    locators: list[str],
    *,
    source: str,
    counts: Mapping[Subtask, int | None],
    seed: int,
    permutations: int,
) -> list[Part]:
    """The tables of each locator."""

    @lru_cache(maxsize=1)  # the tables of one locator are made together
    def tables_of_locator(locator_name: str, from_store_only: bool) -> KlobTables:
        return run_locators(
            lm,
            [locator_name],
            source,
            counts,
            store=ResultsStore(RUNS / "klob"),
            seed=seed,
            permutations=permutations,
            from_store_only=from_store_only,
        )

    def table_part(locator_name: str, table_name: str) -> Part:
        settings = {**make_locator(locator_name, seed).settings(), "counts": counts}
        return Part(
            str(TableKey(table_name, locator_name)),
            settings,
            make=lambda: tables_of_locator(locator_name, False)[table_name],
            from_store=lambda: tables_of_locator(locator_name, True)[table_name],
        )

    for locator_name in locators:
        make_locator(locator_name).shape(lm.layout)  # or why it cannot score this model
    return [
        table_part(locator_name, table_name) for locator_name in locators for table_name in TABLES
    ]


def layer_edits_part(lm: LanguageModel, params: Mapping[str, Any]) -> Part:
    """ROME at every layer, on ``edited_facts`` of the facts that locators are evaluated on."""
    source = params["source"]
    seed = params["seed"]
    example_count = params["counts"][0] or None
    facts_by_number = read_examples("consistency", source)
    evaluated = load_examples("consistency", source, count=example_count, seed=seed).numbers
    sample_size = min(params["edited_facts"], len(evaluated))
    sampled = random.Random(seed).sample(evaluated, sample_size)
    editable = sorted(edit_requests(facts_by_number, sampled, seed=seed))
    editing_options = {"preset": params["preset"], "corpus": params["corpus"], "seed": seed}
    settings = {**edit_settings(lm, facts_by_number, **editing_options), "edited": editable}
    store = ResultsStore(RUNS / "klob-edits")
    make = partial(edit_every_layer, lm, facts_by_number, editable, store=store, **editing_options)
    return Part("edits", settings, make)
