"""Deep edits (beyond the paper): also edit the subject's other facts that lead to the original object.

The paper asks for it (section 4) but evaluates none. Here every question about the edited subject that
begins a chain gets another plausible answer of its kind, from which no chain leads to the original object.
Questions worded alike up to the subject have the same key: they share one vector, optimised for all.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import networkx as nx
import numpy as np

from helpers.editing.request import EditRequest
from helpers.models import LanguageModel
from helpers.records import comparable
from helpers.scoring.answers import Question, score_answers
from helpers.thinkedit.graph import graph_of_facts
from helpers.thinkedit.knowgic import ChainFact, EditedGraph
from helpers.thinkedit.probes import Kinds, request_of, rivals_of

VERSION = 2  # raise it when the same edits give other requests
PLAUSIBLE = 5  # the target is drawn from the most probable answers, this many


@dataclass(frozen=True)
class FurtherQuestion:
    """A question about the edited subject that begins chains."""

    prompt: str
    correct: tuple[str, ...]  # answers in the graph
    harmless: tuple[str, ...]  # of its kind, from which no chain leads to the original object


def further_questions(edit: EditedGraph, kinds: Kinds) -> list[FurtherQuestion]:
    """What a deep edit changes besides the edit itself; chains that have no harmless answer stay."""
    graph = graph_of_facts(edit.facts)
    leading = nx.ancestors(graph, comparable(edit.original)) | {comparable(edit.original)}
    edited_prompts = {edit.prompt}
    if edit.direct_fact:
        edited_prompts.add(edit.direct_fact.prompt)
    firsts: dict[str, dict[str, ChainFact]] = {}
    for chain in edit.chains:
        first = chain.facts[0]
        if first.prompt not in edited_prompts:
            firsts.setdefault(first.prompt, {})[first.key[2]] = first
    questions = []
    for prompt, facts in firsts.items():
        rivals = rivals_of(next(iter(facts.values())), edit, kinds, most=None)
        harmless = tuple(name for name in rivals if comparable(name) not in leading)
        if harmless:
            correct = tuple(fact.object for fact in facts.values())
            questions.append(FurtherQuestion(prompt, correct, harmless))
    return questions


def deep_edits(
    lm: LanguageModel, edits: Sequence[EditedGraph], kinds: Kinds, *, seed: int = 0
) -> list[list[EditRequest]]:
    """The requests of every edit's deep edit, one for each beginning of its questions, its own first.

    A question's new answer is drawn from its ``PLAUSIBLE`` most probable harmless ones (per token, on the
    unedited model); each question has its own stream of the seed.
    """
    further = [(edit, question) for edit in edits for question in further_questions(edit, kinds)]
    scored = [Question(q.prompt.replace("{}", edit.subject), q.harmless) for edit, q in further]
    scores = score_answers(lm, scored).groupby("question")
    requests = {edit.case_id: {_beginning(edit.prompt): request_of(edit, kinds)} for edit in edits}
    for (edit, question), (_, group) in zip(further, scores, strict=True):
        best = group.sort_values("mean", ascending=False)["answer"].head(PLAUSIBLE)
        number = zlib.crc32(question.prompt.encode())
        stream = np.random.default_rng([seed, edit.case_id, number])
        target = question.harmless[int(stream.choice(best))]
        by_beginning = requests[edit.case_id]
        beginning = _beginning(question.prompt)
        if first := by_beginning.get(beginning):
            further_prompts = (*first.further, (question.prompt, target))
            by_beginning[beginning] = replace(first, further=further_prompts)
        else:
            request = EditRequest(edit.subject, question.prompt, target, question.correct)
            by_beginning[beginning] = replace(request, record=str(edit.case_id))
    return [list(by_beginning.values()) for by_beginning in requests.values()]


def _beginning(prompt: str) -> str:
    """The prompt up to its subject."""
    return prompt.partition("{}")[0]
