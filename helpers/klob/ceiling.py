"""Localisation with a ceiling: facts edited at every few layers, to two answers each, and located.

*figures/data/regret/<model>_<source>* holds what ``helpers.klob.regret`` compares: a table *edits*, as KLoB's
own run has one, with each row's target (0 or 1), relation and answer; and for each locator its mass by layer
on the prompt of the edit, a table for the method's own tokens (``layers: fisher``) and one for the subject's
last token, where ROME writes (``layers: fisher, subject``).

With two answers a fact's best layer is chosen on the edits to one and scored on those to the other: the best
layer of the numbers that it is scored on would be better by chance alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from helpers import UserError
from helpers.editing.presets import read_hyperparameters
from helpers.klob.examples import read_examples
from helpers.klob.layers import Facts, edit_every_layer, edit_requests, edit_settings
from helpers.klob.publish import dataset_name
from helpers.locating.locators import LOCATORS, Locator, make_locator, pool
from helpers.locating.query import Sentence, encode
from helpers.models import LanguageModel
from helpers.models.load import load_named
from helpers.paths import RUNS, run_name
from helpers.results.archive import About, TableKey
from helpers.results.publish import Part, Publication
from helpers.results.store import Cases, ResultsStore

# Controls point to no fact's layer; logit attribution of neurons is activation's twin over layers.
_NOT_ASKED = ("random", "constant", "logit-neuron")
TARGETS = 2  # new answers of each fact
AT_SUBJECT = "subject"  # mode of a table of mass at the subject's last token
VERSION = 1  # of what is located; raise it when the numbers change


def facts_by_pairs(examples: Facts, count: int, *, seed: int = 0) -> list[int]:
    """Numbers of facts in pairs that share relation and answer, spread evenly over relations.

    Relations give two facts each, in the order of the file, until ``count`` are there. A relation's first
    facts are pairs that share an answer, each of another answer; those without a partner come after them.
    Facts that cannot be edited to ``TARGETS`` new answers are excluded.
    """
    editable = edit_requests(examples, list(examples), seed=seed, target=TARGETS - 1)
    if count > len(editable):
        raise UserError(
            f"located_edits: {len(editable)} facts can be edited to {TARGETS} new answers: give at most"
            f" that many, not {count}"
        )
    numbers_by_relation: dict[str, list[int]] = {}
    for example_number in editable:
        relation = examples[example_number].fact[1]
        numbers_by_relation.setdefault(relation, []).append(example_number)
    orders = [
        _pairs_first(examples, example_numbers, random.Random(f"{seed} {relation}"))
        for relation, example_numbers in numbers_by_relation.items()
    ]
    sampled: list[int] = []
    for first in range(0, max(map(len, orders)), 2):
        for order in orders:
            sampled += order[first : first + 2]
    return sorted(sampled[:count])


def _pairs_first(
    examples: Facts, example_numbers: Sequence[int], generator: random.Random
) -> list[int]:
    """A relation's facts in random order, after one pair of each answer that two facts share."""
    shuffled = generator.sample(list(example_numbers), len(example_numbers))
    numbers_by_answer: dict[str, list[int]] = {}
    for example_number in shuffled:
        answer = examples[example_number].fact[2]
        numbers_by_answer.setdefault(answer, []).append(example_number)
    paired_numbers: list[int] = []
    for numbers_of_answer in numbers_by_answer.values():
        if len(numbers_of_answer) > 1:
            paired_numbers += numbers_of_answer[:2]
    unpaired = [number for number in shuffled if number not in paired_numbers]
    return paired_numbers + unpaired


def edited_layers(blocks: int, preset_layer: int, step: int) -> list[int]:
    """Every ``step``-th layer such that the preset's is one, without the last.

    An edit at the last layer cannot reach the token at which the answer is predicted.
    """
    return list(range(preset_layer % step, blocks - 1, step))


def edit_targets(
    lm: LanguageModel, examples: Facts, example_numbers: Sequence[int], **options: Any
) -> pd.DataFrame:
    """``edit_every_layer`` to each of the facts' new answers, with columns target, relation and answer."""
    tables = []
    for target in range(TARGETS):
        scores = edit_every_layer(lm, examples, example_numbers, target=target, **options)
        tables.append(scores.assign(target=target))
    edits = pd.concat(tables, ignore_index=True)
    facts = {number: examples[number].fact for number in example_numbers}
    relations = edits["example"].map({number: fact[1] for number, fact in facts.items()})
    answers = edits["example"].map({number: fact[2] for number, fact in facts.items()})
    return edits.assign(relation=relations, answer=answers)


def layer_mass_of_facts(
    lm: LanguageModel,
    examples: Facts,
    example_numbers: Sequence[int],
    locator: Locator,
    *,
    store: ResultsStore,
) -> pd.DataFrame:
    """The mean |score| of each layer's units on the facts' edit prompts; stored ones are read.

    Columns example (place in the file), layer and mass.
    """
    shape = locator.shape(lm.layout)

    def sentence(example_number: int) -> Sentence:
        subject, _, answer = examples[example_number].fact
        return Sentence(examples[example_number].prompts[0], answer, subject)

    def content(example_number: int) -> object:
        located = sentence(example_number)
        return [located.cloze, located.answer, located.subject]

    def masses(chosen_numbers: Sequence[int]) -> dict[str, pd.DataFrame]:
        queries = encode(lm, [sentence(number) for number in chosen_numbers])
        tables = []
        for start in range(0, len(queries), locator.at_a_time):
            batch_numbers = chosen_numbers[start : start + locator.at_a_time]
            scores = locator.scores(lm, queries[start : start + locator.at_a_time])
            by_layer = np.abs(pool(scores, shape, "layer"))  # [queries, layers]
            for example_number, mass in zip(batch_numbers, by_layer, strict=True):
                columns = {"case_id": example_number, "layer": range(len(mass)), "mass": mass}
                tables.append(pd.DataFrame(columns))
        return {"scores": pd.concat(tables, ignore_index=True)}

    settings = {**lm.identity, "locator": locator.settings(), "version": VERSION}
    cases = Cases({number: number for number in example_numbers}, content=content)
    completed = cases.completed(store.open(settings), masses)
    return completed.rename(columns={"case_id": "example"})[["example", "layer", "mass"]]


def variants(locator_names: Sequence[str], seed: int) -> Iterator[tuple[str, Locator]]:
    """Each locator with its name: first on their own tokens, then, of those with others, at the subject."""
    for name in locator_names:
        yield name, make_locator(name, seed)
    for name in locator_names:
        if make_locator(name).tokens in ("last", "all"):
            yield name, make_locator(name, seed, at_subject=True)


def publication(params: Mapping[str, Any]) -> Publication:
    """The run that notebook 05's parameter ``located_edits`` asks for."""
    lm = load_named(params)
    seed = params["seed"]
    source = params["source"]
    facts = read_examples("consistency", source)
    example_numbers = facts_by_pairs(facts, params["located_edits"], seed=seed)
    hyperparameters = read_hyperparameters("rome", lm.name, params["preset"])
    (preset_layer,) = hyperparameters.layers
    layers = edited_layers(lm.layout.blocks, preset_layer, params["layer_step"])
    all_names = [name for name in LOCATORS if name not in _NOT_ASKED]
    locators = list(variants(params["locators"] or all_names, seed))
    for _, locator in locators:
        locator.shape(lm.layout)  # or why it cannot score this model
    editing_options = {"preset": params["preset"], "corpus": params["corpus"], "seed": seed}
    edit_part = Part(
        "edits",
        {
            **edit_settings(lm, facts, **editing_options),
            "edited": example_numbers,
            "targets": TARGETS,
            "layers": layers,
            "preset_layer": preset_layer,
        },
        partial(
            edit_targets,
            lm,
            facts,
            example_numbers,
            layers=layers,
            store=ResultsStore(RUNS / "klob-edits"),
            **editing_options,
        ),
    )
    parts = [edit_part]
    for name, locator in locators:
        mode = AT_SUBJECT if locator.at_subject else ""
        settings = {
            **locator.settings(),
            "tokens": locator.scored_tokens,
            "located": example_numbers,
            "version": VERSION,
        }
        make = partial(
            layer_mass_of_facts,
            lm,
            facts,
            example_numbers,
            locator,
            store=ResultsStore(RUNS / "klob-located"),
        )
        parts.append(Part(str(TableKey("layers", name, mode)), settings, make))
    about = About({**lm.identity, "dataset": dataset_name(source), "seed": seed})
    return Publication(run_name(params["model"], source), about, parts)
