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
from helpers.editing.edit import Edit
from helpers.editing.moments import second_moments
from helpers.editing.presets import read_hyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.rome import Rome
from helpers.klob.examples import ConsistencyExample
from helpers.models import LanguageModel
from helpers.records import without_slot
from helpers.results.store import Cases, ResultsStore, settings_key
from helpers.scoring.answers import Question, score_answers

Facts = Mapping[int, ConsistencyExample]  # by their place in the file
NO_LAYER = -1  # in place of the edited one: the unedited model
MOST_LAYERS = 1_000  # more than any model has
_WITHOUT_CONTEXTS: dict[str, Any] = {"context_template_length_params": []}


def edit_requests(
    examples: Facts, example_numbers: Sequence[int], *, seed: int = 0, target: int = 0
) -> dict[int, EditRequest]:
    """One counterfactual edit per numbered fact, not of those whose first wording does not hold the
    subject, or whose relation has too few answers.

    ``target`` counts a fact's new answers, which are drawn one after the other: 0 is the first.
    """
    answers_by_relation: dict[str, set[str]] = {}
    for example in examples.values():
        _, relation, answer = example.fact
        answers_by_relation.setdefault(relation, set()).add(answer)
    requests = {}
    for example_number in example_numbers:
        subject, relation, answer = examples[example_number].fact
        other_answers = sorted(answers_by_relation[relation] - {answer})
        first_wording = examples[example_number].prompts[0]
        if len(other_answers) > target and subject in first_wording:
            generator = random.Random(f"{seed} {example_number}")
            for _ in range(target):
                other_answers.remove(generator.choice(other_answers))
            new_answer = generator.choice(other_answers)
            prompt = without_slot(first_wording).replace(subject, "{}", 1)
            requests[example_number] = EditRequest(
                subject, prompt, new_answer, (answer,), record=str(example_number)
            )
    return requests


def edit_every_layer(  # noqa: PLR0913 - a parameter of notebook 05 each
    lm: LanguageModel,
    examples: Facts,
    example_numbers: Sequence[int],
    *,
    store: ResultsStore,
    preset: str,
    corpus: str,
    seed: int,
    layers: Sequence[int] | None = None,
    target: int = 0,
) -> pd.DataFrame:
    """Edit the numbered facts at every layer; what is in the store is not edited again.

    Columns example (place in the file), layer (−1: the unedited model), wording, and new and old: the
    answers' mean token log-probability, NaN of a failed edit. ``layers`` are those that are edited, None:
    all; ``target`` is which of a fact's new answers is written (``edit_requests``).
    """
    settings = edit_settings(lm, examples, preset=preset, corpus=corpus, seed=seed)
    results = store.open({**settings, "facts": "by content"})
    requests = edit_requests(examples, example_numbers, seed=seed, target=target)
    edited_layers = range(lm.layout.blocks) if layers is None else layers

    def content(example_number: int) -> object:
        return _content(examples[example_number]), asdict(requests[example_number])

    def scores_at_layer(chosen_numbers: Sequence[int], *, layer: int) -> dict[str, pd.DataFrame]:
        chosen_requests = {
            example_number: requests[example_number] for example_number in chosen_numbers
        }
        edits = None
        if layer != NO_LAYER:
            editor = build_editor(
                "rome",
                lm,
                preset=preset,
                corpus=corpus,
                seed=seed,
                overrides={"layers": [layer], **_WITHOUT_CONTEXTS},
            )
            edits = editor.edit(list(chosen_requests.values()))
        scored_answers = score_edits(lm, examples, chosen_requests, edits)
        case_ids = [_case_id(example_number, layer) for example_number in scored_answers["example"]]
        return {"scores": scored_answers.assign(layer=layer, case_id=case_ids)}

    cases_by_layer: dict[int, Cases[int]] = {}
    for layer in (NO_LAYER, *edited_layers):
        number_of_case = {
            _case_id(example_number, layer): example_number for example_number in example_numbers
        }
        cases_by_layer[layer] = Cases(number_of_case, content=content)
    edits_are_missing = any(
        cases.missing(results) for layer, cases in cases_by_layer.items() if layer != NO_LAYER
    )
    if edits_are_missing and settings["hyperparameters"]["mom2_adjustment"]:
        _store_second_moments(lm, edited_layers, corpus, seed)
    tables_of_layers = [
        cases.completed(results, partial(scores_at_layer, layer=layer))
        for layer, cases in cases_by_layer.items()
    ]
    scored_answers = pd.concat(tables_of_layers).reindex(
        columns=["example", "layer", "wording", "new", "old"]
    )
    return scored_answers.sort_values(["layer", "example", "wording"], ignore_index=True)


def _case_id(example_number: int, layer: int) -> int:
    """The id of a fact's edit at a layer, whatever other facts are edited; the unedited model is first."""
    return MOST_LAYERS * example_number + (layer - NO_LAYER)


def _store_second_moments(lm: LanguageModel, layers: Sequence[int], corpus: str, seed: int) -> None:
    """Put the second moments of all edited layers into the cache, in one pass over the corpus.

    The editors of single layers then read theirs; each would make its own pass, and all matrices do
    not fit into memory together with what is solved with them.
    """
    second_moments(lm, layers, corpus_named(corpus, seed=seed))


def score_edits(
    lm: LanguageModel,
    examples: Facts,
    requests: Mapping[int, EditRequest],
    edits: Sequence[Edit] | None,
) -> pd.DataFrame:
    """The two answers' scores after each wording of the requests' facts, under their ``edits``.

    Columns example (place in the file), wording, and new and old: mean token log-probabilities of the
    target and of the fact's answer, NaN under an update that is empty (a failed edit). Without
    ``edits`` the scores are the unedited model's.
    """
    examples_and_wordings = []
    questions = []
    owner_of_question = []
    for owner, (example_number, request) in enumerate(requests.items()):
        for wording, cloze in enumerate(examples[example_number].prompts):
            examples_and_wordings.append((example_number, wording))
            questions.append(Question(without_slot(cloze), (request.target, request.correct[0])))
            owner_of_question.append(owner)
    scores = score_answers(lm, questions, edits, owner_of_question if edits else None)
    by_answer = scores.pivot(index="question", columns="answer", values="mean")
    scored_wordings = pd.DataFrame(examples_and_wordings, columns=["example", "wording"])
    scored_wordings["new"] = by_answer[0].to_numpy()
    scored_wordings["old"] = by_answer[1].to_numpy()
    if edits is not None:
        is_failed = [edits[owner].failed for owner in owner_of_question]
        scored_wordings.loc[is_failed, ["new", "old"]] = np.nan
    return scored_wordings


def _content(example: ConsistencyExample) -> dict[str, Any]:
    return {"prompts": example.prompts, "knowledge": example.fact}


def edit_settings(
    lm: LanguageModel, examples: Facts, *, preset: str, corpus: str, seed: int
) -> dict[str, Any]:
    """Everything the numbers depend on but the fact and the layer."""
    hyperparameters = read_hyperparameters("rome", lm.name, preset, **_WITHOUT_CONTEXTS)
    return {
        **lm.identity,
        "hyperparameters": hyperparameters.model_dump(mode="json", exclude={"layers"}),
        "corpus": corpus_named(corpus, seed=seed).name,
        "seed": seed,
        "facts": settings_key({"facts": [_content(example) for example in examples.values()]}),
        "version": 2,
        "versions": dict.fromkeys(("rome", "vector", "contexts", "second_moments"), Rome.version),
        "scored_by": {"answers": Question.version},
    }
