"""ROME at every layer: where does editing a fact work?

Each fact of KLoB-c is edited once per layer, to an answer that another fact of its relation has. The
edit is made at the first wording; how it holds is read at the other two, which ROME did not see.
Stored are log-probabilities, one row per fact, layer and wording; layer −1 is the unedited model.
ROME runs without sampled contexts before the prompt, which cost most of its time.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from helpers.editing.build import build_editor
from helpers.editing.corpus import corpus_named
from helpers.editing.moments import second_moment
from helpers.editing.presets import read_hyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.rome import Rome, RomeHyperparameters
from helpers.editing.update import Update
from helpers.klob.examples import ConsistencyExample
from helpers.models.language_model import LanguageModel
from helpers.processes import Progress
from helpers.records import without_slot
from helpers.results.store import Cases, ResultsStore, settings_key
from helpers.scoring.answers import Question, score_answers

Facts = Mapping[int, ConsistencyExample]  # by their place in the file
UNEDITED = -1
_OWN: dict[str, Any] = {"context_template_length_params": []}  # hyperparameters of ours
VERSION = 2


def editable(examples: Facts, numbers: Sequence[int]) -> list[int]:
    """Those of the numbered facts that can be edited.

    Their first wording holds the subject as it is written, and another fact of their relation has
    another answer.
    """
    answers = _answers(examples)
    possible = []
    for number in numbers:
        subject, relation, _ = examples[number].knowledge
        if len(answers[relation]) > 1 and subject in examples[number].prompts[0]:
            possible.append(number)
    return possible


def edit_requests(examples: Facts, numbers: Sequence[int], *, seed: int = 0) -> list[EditRequest]:
    """One counterfactual edit per fact: an answer of another fact of its relation.

    Args:
        examples: the benchmark the other answers come from.
        numbers: which of them to edit.

    Raises:
        ValueError: a relation all of whose facts have one answer (see ``editable``).
    """
    answers = _answers(examples)
    requests = []
    for number in numbers:
        subject, relation, answer = examples[number].knowledge
        others = sorted(answers[relation] - {answer})
        if not others:
            raise ValueError(f"relation {relation}: every fact has the answer {answer!r}")
        target = random.Random(f"{seed} {number}").choice(others)
        prompt = without_slot(examples[number].prompts[0]).replace(subject, "{}", 1)
        requests.append(EditRequest(subject, prompt, target, (answer,), record=str(number)))
    return requests


def _answers(examples: Facts) -> dict[str, set[str]]:
    """All answers of each relation."""
    answers: dict[str, set[str]] = {}
    for _, relation, answer in (example.knowledge for example in examples.values()):
        answers.setdefault(relation, set()).add(answer)
    return answers


def score_edits(
    language_model: LanguageModel,
    examples: Sequence[ConsistencyExample],
    requests: Sequence[EditRequest],
    updates: Sequence[Update] | None,
) -> pd.DataFrame:
    """Mean token log-probability of new and old answer at every wording of every edited fact.

    Args:
        examples: the facts of the requests, in their order.
        requests: the edits.
        updates: one per request; None scores the unedited model.

    Returns:
        Columns fact (position), wording, new, old; empty updates (failed edits) give NaN.
    """
    questions = [
        Question(without_slot(cloze), (request.target, request.correct[0]))
        for example, request in zip(examples, requests, strict=True)
        for cloze in example.prompts
    ]
    facts = [i for i, example in enumerate(examples) for _ in example.prompts]
    scores = score_answers(language_model, questions, updates, facts if updates else None)
    wide = scores.pivot(index="question", columns="answer", values="mean")
    wordings = [w for example in examples for w in range(len(example.prompts))]
    table = pd.DataFrame({"fact": facts, "wording": wordings, "new": wide[0], "old": wide[1]})
    if updates is not None:
        failed = [not updates[fact] for fact in facts]
        table.loc[failed, ["new", "old"]] = np.nan
    return table


def edit_every_layer(
    language_model: LanguageModel,
    examples: Facts,
    numbers: Sequence[int],
    *,
    store: ResultsStore,
    preset: str = "tuned",
    corpus: str = "self",
    seed: int = 0,
    progress: bool = False,
) -> pd.DataFrame:
    """Edit facts at every layer; what is in the store is not edited again.

    Returns:
        Columns example (place in the file), layer, wording, new, old.
    """
    options: dict[str, Any] = {"preset": preset, "corpus": corpus, "seed": seed}
    results = store.open(
        {**edit_settings(language_model, examples, **options), "facts": "by content"}
    )
    layers = range(language_model.layout.blocks)
    requests = dict(zip(numbers, edit_requests(examples, numbers, seed=seed), strict=True))

    def content(number: int) -> object:
        return examples[number].to_json(), asdict(requests[number])

    cases = {
        layer: Cases({_record(number, layer): number for number in numbers}, None, content)
        for layer in (UNEDITED, *layers)
    }
    needed = _hyperparameters(language_model, preset).mom2_adjustment
    if needed and any(cases[layer].missing(results) for layer in layers):
        # One pass over the corpus serves all layers.
        second_moment(language_model, layers, corpus_named(corpus, seed=seed))

    def edited(chosen: Sequence[int], *, layer: int) -> dict[str, pd.DataFrame]:
        table = _edit_layer(language_model, examples, chosen, layer, **options)
        records = [_record(number, layer) for number in table["example"].tolist()]
        return {"scores": table.assign(case_id=records)}

    told, parts = Progress(len(cases), "layers"), list[pd.DataFrame]()
    for layer, each in tqdm(cases.items(), unit="layer", disable=not progress):
        parts.append(each.completed(results, partial(edited, layer=layer)))
        told.at(len(parts))
    table = pd.concat(parts, ignore_index=True)
    ordered = table.sort_values(["layer", "example", "wording"], ignore_index=True)
    return ordered[["example", "layer", "wording", "new", "old"]]


def _hyperparameters(language_model: LanguageModel, preset: str) -> RomeHyperparameters:
    hyperparameters: RomeHyperparameters = read_hyperparameters(
        "rome", language_model.name, preset, **_OWN
    )
    return hyperparameters


def edit_settings(language_model: LanguageModel, examples: Facts, **options: Any) -> dict[str, Any]:
    """Everything the numbers depend on but the fact and the layer."""
    hyperparameters = _hyperparameters(language_model, options["preset"])
    return {
        "model": language_model.name,
        "fingerprint": language_model.fingerprint,
        "dtype": language_model.dtype_name,
        "hyperparameters": hyperparameters.model_dump(mode="json", exclude={"layers"}),
        "corpus": options["corpus"],
        "seed": options["seed"],
        "facts": settings_key({"facts": [example.to_json() for example in examples.values()]}),
        "version": VERSION,
        "versions": dict.fromkeys(("rome", "vector", "contexts", "second_moments"), Rome.version),
        "scored_by": {"answers": Question.version},
    }


def _edit_layer(
    language_model: LanguageModel,
    examples: Facts,
    numbers: Sequence[int],
    layer: int,
    **options: Any,
) -> pd.DataFrame:
    """``score_edits`` of facts edited at one layer, or of the unedited model."""
    requests = edit_requests(examples, numbers, seed=options["seed"])
    updates = None
    if layer != UNEDITED:
        overrides = {"layers": [layer], **_OWN}
        updates = build_editor("rome", language_model, overrides=overrides, **options).edit(
            requests
        )
    table = score_edits(language_model, [examples[n] for n in numbers], requests, updates)
    example = np.array(numbers)[table.pop("fact")]
    return table.assign(example=example, layer=layer)


def _record(number: int, layer: int) -> int:
    """One id per fact and layer, so that facts can be added later."""
    return 1_000 * number + layer - UNEDITED
