"""Deep edits (beyond the paper): also edit the subject's other facts that lead to the original object.

The paper asks for it (section 4: with the school the house must change, too) but evaluates none. Here
every question about the edited subject that begins a chain gets another answer of its kind, one from
which no chain leads to the original object and which the model finds plausible. Questions that are
worded alike up to the subject have the same key: they share one vector, optimised for all of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np

from helpers.editing.request import EditRequest
from helpers.models.language_model import LanguageModel
from helpers.scoring.answers import Question, score_answers
from helpers.thinkedit.edits import Edit, Fact
from helpers.thinkedit.graph import graph_of_facts
from helpers.thinkedit.probes import Kinds, all_rivals_of, request_of

VERSION = 2  # raise it when the same edits give other requests
PLAUSIBLE = 5  # the target is drawn from the so many most probable answers


@dataclass(frozen=True)
class FurtherQuestion:
    """A question about the edited subject that begins chains, and what may be answered instead.

    Attributes:
        prompt: with one ``{}`` for the subject.
        correct: its answers in the graph.
        harmless: answers of the same kind from which no chain leads to the original object.
    """

    prompt: str
    correct: tuple[str, ...]
    harmless: tuple[str, ...]


def further_questions(edit: Edit, kinds: Kinds) -> list[FurtherQuestion]:
    """The questions that a deep edit changes besides the edit itself, in order of appearance.

    First steps with the same prompt are one question; those that ask what the edit asks are none. A
    question whose kind has no harmless entity is left out, so its chains stay.

    Args:
        edit: the edit with its chains.
        kinds: entities by kind, from ``kinds_of``.
    """
    graph = graph_of_facts(edit.facts)
    leading = nx.ancestors(graph, edit.original.casefold()) | {edit.original.casefold()}
    asked = {edit.prompt} | ({edit.direct_fact.prompt} if edit.direct_fact else set())
    firsts: dict[str, dict[str, Fact]] = {}
    for chain in edit.chains:
        if chain.facts[0].prompt not in asked:
            firsts.setdefault(chain.facts[0].prompt, {})[chain.facts[0].key[2]] = chain.facts[0]
    found = []
    for prompt, facts in firsts.items():
        rivals = all_rivals_of(next(iter(facts.values())), edit, kinds)
        harmless = tuple(name for name in rivals if name.casefold() not in leading)
        if harmless:
            correct = tuple(fact.object for fact in facts.values())
            found.append(FurtherQuestion(prompt, correct, harmless))
    return found


def plausible_targets(
    language_model: LanguageModel,
    asked: Sequence[tuple[Edit, FurtherQuestion]],
    *,
    seed: int = 0,
) -> list[str]:
    """For each question a harmless answer, drawn from the ``PLAUSIBLE`` most probable ones.

    Probable: by mean-token probability on the unedited model, so that short names have no advantage.

    Args:
        asked: questions with their edits.
        seed: of the draws; each question has its own stream.
    """
    texts = [(q.prompt.replace("{}", e.subject), q.harmless) for e, q in asked]
    scores = score_answers(language_model, [Question(*text) for text in texts])
    targets = []
    for (edit, question), (_, group) in zip(asked, scores.groupby("question"), strict=True):
        best = group.sort_values("mean", ascending=False)["answer"].head(PLAUSIBLE)
        stream = np.random.default_rng([seed, edit.case_id, zlib.crc32(question.prompt.encode())])
        targets.append(question.harmless[int(stream.choice(best))])
    return targets


def deep_edits(
    language_model: LanguageModel, edits: Sequence[Edit], kinds: Kinds, *, seed: int = 0
) -> list[list[EditRequest]]:
    """The requests of every edit's deep edit, with plausible targets (see ``plausible_targets``)."""
    asked = [(edit, question) for edit in edits for question in further_questions(edit, kinds)]
    targets = iter(plausible_targets(language_model, asked, seed=seed))
    return [
        deep_requests(
            edit,
            kinds,
            [question for owner, question in asked if owner is edit],
            [next(targets) for owner, _ in asked if owner is edit],
        )
        for edit in edits
    ]


def deep_requests(
    edit: Edit, kinds: Kinds, questions: Sequence[FurtherQuestion], targets: Sequence[str]
) -> list[EditRequest]:
    """The edit and its further questions as requests, one per key.

    Args:
        edit: the edit with its chains.
        kinds: entities by kind.
        questions: from ``further_questions``.
        targets: the new answer of each.

    Returns:
        The edit's own request, with the questions that begin as it does as its ``further`` ones; then
        one request for each other beginning.
    """
    groups: dict[str, list[tuple[FurtherQuestion, str]]] = {beginning(edit.prompt): []}
    for question, target in zip(questions, targets, strict=True):
        groups.setdefault(beginning(question.prompt), []).append((question, target))
    own, *others = groups.values()
    main = request_of(edit, kinds)
    shared = tuple((question.prompt, target) for question, target in own)
    requests = [
        EditRequest(
            edit.subject, main.prompt, main.target, main.correct, main.false, main.record, shared
        )
    ]
    for (first, target), *rest in others:
        further = tuple((question.prompt, other) for question, other in rest)
        requests.append(
            EditRequest(
                edit.subject,
                first.prompt,
                target,
                first.correct,
                record=str(edit.case_id),
                further=further,
            )
        )
    return requests


def beginning(prompt: str) -> str:
    """What stands before the subject: the key at the subject depends on nothing else of a prompt."""
    return prompt.partition("{}")[0]
