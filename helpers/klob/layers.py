"""ROME at every layer: where does editing a fact work?

Each fact of KLoB-c is edited at its first wording, to an answer that another fact of its relation has;
the gain is read at the other two (``metrics.edit_gains``). ROME runs without sampled contexts before the
prompt, which cost most of its time.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from helpers.editing.build import build_editor
from helpers.editing.corpus import corpus_named
from helpers.editing.moments import second_moment
from helpers.editing.presets import read_hyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.rome import Rome
from helpers.editing.update import Update
from helpers.klob.examples import ConsistencyExample
from helpers.models import LanguageModel
from helpers.records import without_slot
from helpers.results.store import Cases, ResultsStore, settings_key
from helpers.scoring.answers import Question, score_answers

Facts = Mapping[int, ConsistencyExample]  # by their place in the file
UNEDITED = -1
_OWN: dict[str, Any] = {"context_template_length_params": []}  # hyperparameters of ours


def edit_requests(
    examples: Facts, numbers: Sequence[int], *, seed: int = 0
) -> dict[int, EditRequest]:
    """One counterfactual edit per numbered fact, not of those whose first wording does not hold the
    subject, or whose relation has one answer.
    """
    answers: dict[str, set[str]] = {}
    for _, relation, answer in (example.fact for example in examples.values()):
        answers.setdefault(relation, set()).add(answer)
    requests = {}
    for number in numbers:
        subject, relation, answer = examples[number].fact
        others = sorted(answers[relation] - {answer})
        first = examples[number].prompts[0]
        if others and subject in first:
            target = random.Random(f"{seed} {number}").choice(others)
            prompt = without_slot(first).replace(subject, "{}", 1)
            requests[number] = EditRequest(subject, prompt, target, (answer,), record=str(number))
    return requests


def edit_every_layer(
    lm: LanguageModel,
    examples: Facts,
    numbers: Sequence[int],
    *,
    store: ResultsStore,
    **options: Any,
) -> pd.DataFrame:
    """Edit facts at every layer; what is in the store is not edited again. ``options``: preset, corpus, seed.

    Columns example (place in the file), layer (−1: the unedited model), wording, and new and old: the
    answers' mean token log-probability, NaN of a failed edit.
    """
    settings = edit_settings(lm, examples, **options)
    results = store.open({**settings, "facts": "by content"})
    layers = range(lm.layout.blocks)
    requests = edit_requests(examples, numbers, seed=options["seed"])

    def content(number: int) -> object:
        return _content(examples[number]), asdict(requests[number])

    def edited(chosen: Sequence[int], *, layer: int) -> dict[str, pd.DataFrame]:
        updates, asked = None, {number: requests[number] for number in chosen}
        if layer != UNEDITED:
            own = {"layers": [layer], **_OWN}
            editor = build_editor("rome", lm, overrides=own, **options)
            updates = editor.edit(list(asked.values()))
        table = score_edits(lm, examples, asked, updates).assign(layer=layer)
        return {"scores": table.assign(case_id=1_000 * table["example"] + layer - UNEDITED)}

    cases = {  # one id per fact and layer, so that facts can be added later
        layer: Cases({1_000 * n + layer - UNEDITED: n for n in numbers}, content=content)
        for layer in (UNEDITED, *layers)
    }
    if settings["hyperparameters"]["mom2_adjustment"] and any(
        cases[layer].missing(results) for layer in layers
    ):  # one pass over the corpus serves all layers
        second_moment(lm, layers, corpus_named(options["corpus"], seed=options["seed"]))
    parts = [each.completed(results, partial(edited, layer=n)) for n, each in cases.items()]
    table = pd.concat(parts).reindex(columns=["example", "layer", "wording", "new", "old"])
    return table.sort_values(["layer", "example", "wording"], ignore_index=True)


def score_edits(
    lm: LanguageModel,
    examples: Facts,
    requests: Mapping[int, EditRequest],
    updates: Sequence[Update] | None,
) -> pd.DataFrame:
    """The same of some facts under their updates, without the layer; empty ones (failed) give NaN."""
    asked = [(n, w, cloze) for n in requests for w, cloze in enumerate(examples[n].prompts)]
    table = pd.DataFrame(asked, columns=["example", "wording", "cloze"])
    questions = [
        Question(without_slot(cloze), (requests[n].target, requests[n].correct[0]))
        for n, _, cloze in asked
    ]
    owners = [list(requests).index(n) for n, _, _ in asked]
    scores = score_answers(lm, questions, updates, owners if updates else None)
    wide = scores.pivot(index="question", columns="answer", values="mean")
    table["new"] = wide[0].to_numpy()
    table["old"] = wide[1].to_numpy()
    if updates is not None:
        table.loc[[not updates[owner] for owner in owners], ["new", "old"]] = np.nan
    return table.drop(columns="cloze")


def _content(example: ConsistencyExample) -> dict[str, Any]:
    return {"prompts": example.prompts, "knowledge": example.fact}


def edit_settings(lm: LanguageModel, examples: Facts, **options: Any) -> dict[str, Any]:
    """Everything the numbers depend on but the fact and the layer."""
    preset = read_hyperparameters("rome", lm.name, options["preset"], **_OWN)
    return {
        **lm.identity,
        "hyperparameters": preset.model_dump(mode="json", exclude={"layers"}),
        "corpus": corpus_named(options["corpus"], seed=options["seed"]).name,
        "seed": options["seed"],
        "facts": settings_key({"facts": [_content(example) for example in examples.values()]}),
        "version": 2,
        "versions": dict.fromkeys(("rome", "vector", "contexts", "second_moments"), Rome.version),
        "scored_by": {"answers": Question.version},
    }
