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


def further_questions(edit: EditedGraph, entities_by_kind: Kinds) -> list[FurtherQuestion]:
    """What a deep edit changes in addition to the edit itself; chains without a harmless answer stay."""
    facts_graph = graph_of_facts(edit.facts)
    nodes_leading_back = nx.ancestors(facts_graph, comparable(edit.original)) | {
        comparable(edit.original)
    }
    edited_prompts = {edit.prompt}
    if edit.direct_fact:
        edited_prompts.add(edit.direct_fact.prompt)
    first_facts: dict[str, dict[str, ChainFact]] = {}
    for chain in edit.chains:
        first_fact = chain.facts[0]
        if first_fact.prompt not in edited_prompts:
            first_facts.setdefault(first_fact.prompt, {})[first_fact.key[2]] = first_fact
    questions = []
    for prompt, facts_by_object in first_facts.items():
        rivals = rivals_of(next(iter(facts_by_object.values())), edit, entities_by_kind, most=None)
        harmless_answers = tuple(
            rival for rival in rivals if comparable(rival) not in nodes_leading_back
        )
        if harmless_answers:
            correct_answers = tuple(fact.object for fact in facts_by_object.values())
            questions.append(FurtherQuestion(prompt, correct_answers, harmless_answers))
    return questions


def deep_edits(
    lm: LanguageModel, edits: Sequence[EditedGraph], entities_by_kind: Kinds, *, seed: int = 0
) -> list[list[EditRequest]]:
    """The requests of every edit's deep edit, one for each beginning of its questions, its own first.

    A question's new answer is drawn from its ``PLAUSIBLE`` most probable harmless ones (per token, on the
    unedited model); each question has its own stream of the seed.
    """
    questions_of_edits = [
        (edit, question) for edit in edits for question in further_questions(edit, entities_by_kind)
    ]
    scored_questions = [
        Question(further.prompt.replace("{}", edit.subject), further.harmless)
        for edit, further in questions_of_edits
    ]
    scores_of_questions = score_answers(lm, scored_questions).groupby("question")
    requests_of_edits = {
        edit.case_id: {_before_subject(edit.prompt): request_of(edit, entities_by_kind)}
        for edit in edits
    }
    for (edit, question), (_, answer_scores) in zip(
        questions_of_edits, scores_of_questions, strict=True
    ):
        plausible_answers = answer_scores.sort_values("mean", ascending=False)["answer"].head(
            PLAUSIBLE
        )
        prompt_checksum = zlib.crc32(question.prompt.encode())
        generator = np.random.default_rng([seed, edit.case_id, prompt_checksum])
        target = question.harmless[int(generator.choice(plausible_answers))]
        requests_by_beginning = requests_of_edits[edit.case_id]
        beginning = _before_subject(question.prompt)
        if earlier_request := requests_by_beginning.get(beginning):
            further_prompts = (*earlier_request.further, (question.prompt, target))
            requests_by_beginning[beginning] = replace(earlier_request, further=further_prompts)
        else:
            request = EditRequest(edit.subject, question.prompt, target, question.correct)
            requests_by_beginning[beginning] = replace(request, record=str(edit.case_id))
    return [
        list(requests_by_beginning.values()) for requests_by_beginning in requests_of_edits.values()
    ]


def _before_subject(prompt: str) -> str:
    """The prompt up to its subject."""
    return prompt.partition("{}")[0]
