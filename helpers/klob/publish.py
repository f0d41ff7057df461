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
from helpers.klob.run import TABLES, VERSION, Tables, run_locators
from helpers.locating.locators import LOCATORS, make_locator
from helpers.models import LanguageModel
from helpers.models.load import load
from helpers.paths import RUNS, run_name
from helpers.results.archive import About, TableKey
from helpers.results.publish import Part, Publication
from helpers.results.store import ResultsStore, settings_key


def publication(params: Mapping[str, Any]) -> Publication:
    """The run that the parameters of notebook 05 ask for; models that fill masks are not edited."""
    loading = {name: params[name] for name in ("dtype", "device", "masked")}
    lm = load(params["model"], **loading)
    counts = dict(zip(SCHEMAS, (count or None for count in params["counts"]), strict=True))
    source = {
        **lm.identity,
        "dataset": _dataset_name(params["source"]),
        "seed": params["seed"],
        "shares": list(SHARES),
        "permutations": params["permutations"],
        "version": VERSION,
    }
    parts = evaluations(
        lm,
        params["locators"] or list(LOCATORS),
        source=params["source"],
        counts=counts,
        seed=params["seed"],
        permutations=params["permutations"],
    )
    if params["edited_facts"] and not params["masked"]:
        parts.append(layer_edits_part(lm, params))
    return Publication(run_name(params["model"], params["source"]), About(source), parts)


def _dataset_name(source: str) -> str:
    """The source; a user's own one with a digest of what is in its files."""
    if source in ("klob", "klob-mini"):
        return source
    content = {
        str(subtask): [str(example) for example in read_examples(subtask, source).values()]
        for subtask in SCHEMAS
    }
    return f"{source} ({settings_key(content)})"


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
    def tables(name: str, stored_only: bool) -> Tables:
        return run_locators(
            lm,
            [name],
            source,
            counts,
            store=ResultsStore(RUNS / "klob"),
            seed=seed,
            permutations=permutations,
            stored_only=stored_only,
        )

    def part(name: str, table: str) -> Part:
        settings = {**make_locator(name, seed).settings(), "counts": counts}
        return Part(
            str(TableKey(table, name)),
            settings,
            make=lambda: tables(name, False)[table],
            stored=lambda: tables(name, True)[table],
        )

    for name in locators:
        make_locator(name).shape(lm.layout)  # or why it cannot score this model
    return [part(name, table) for name in locators for table in TABLES]


def layer_edits_part(lm: LanguageModel, params: Mapping[str, Any]) -> Part:
    """ROME at every layer, on ``edited_facts`` of the facts that locators are evaluated on."""
    source = params["source"]
    seed = params["seed"]
    count = params["counts"][0] or None
    facts = read_examples("consistency", source)
    evaluated = load_examples("consistency", source, count=count, seed=seed).numbers
    sample_size = min(params["edited_facts"], len(evaluated))
    sampled = random.Random(seed).sample(evaluated, sample_size)
    editable = sorted(edit_requests(facts, sampled, seed=seed))
    options = {"preset": params["preset"], "corpus": params["corpus"], "seed": seed}
    settings = {**edit_settings(lm, facts, **options), "edited": editable}
    store = ResultsStore(RUNS / "klob-edits")
    make = partial(edit_every_layer, lm, facts, editable, store=store, **options)
    return Part("edits", settings, make)
