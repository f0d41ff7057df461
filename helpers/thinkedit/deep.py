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
import pandas as pd

from helpers.editing.request import EditRequest
from helpers.models.language_model import LanguageModel
from helpers.scoring.answers import Question, score_answers
from helpers.thinkedit.graph import graph_of_facts
from helpers.thinkedit.knowgic import ChainFact, Edit
from helpers.thinkedit.probes import Kinds, kinds_of, request_of, rivals_of

VERSION = 2  # raise it when the same edits give other requests
PLAUSIBLE = 5  # the target is drawn from the most probable answers, this many


@dataclass(frozen=True)
class FurtherQuestion:
    """A question about the edited subject that begins chains, its ``correct`` answers in the graph, and
    ``harmless`` ones of the same kind, from which no chain leads to the original object.
    """

    prompt: str
    correct: tuple[str, ...]
    harmless: tuple[str, ...]


def further_questions(edit: Edit, kinds: Kinds) -> list[FurtherQuestion]:
    """The questions that a deep edit changes besides the edit itself, in order of appearance; one whose kind
    has no harmless entity is omitted, so its chains stay.
    """
    graph = graph_of_facts(edit.facts)
    leading = nx.ancestors(graph, edit.original.casefold()) | {edit.original.casefold()}
    asked = {edit.prompt} | ({edit.direct_fact.prompt} if edit.direct_fact else set())
    firsts: dict[str, dict[str, ChainFact]] = {}
    for chain in edit.chains:
        if chain.facts[0].prompt not in asked:
            firsts.setdefault(chain.facts[0].prompt, {})[chain.facts[0].key[2]] = chain.facts[0]
    found = []
    for prompt, facts in firsts.items():
        rivals = rivals_of(next(iter(facts.values())), edit, kinds, most=None)
        harmless = tuple(name for name in rivals if name.casefold() not in leading)
        if harmless:
            correct = tuple(fact.object for fact in facts.values())
            found.append(FurtherQuestion(prompt, correct, harmless))
    return found


def deep_edits(
    language_model: LanguageModel, edits: Sequence[Edit], kinds: Kinds, *, seed: int = 0
) -> list[list[EditRequest]]:
    """The requests of every edit's deep edit.

    A question's new answer is drawn from its ``PLAUSIBLE`` most probable harmless ones (per token, on the
    unedited model); each question has its own stream of the seed.
    """
    asked = [(edit, question) for edit in edits for question in further_questions(edit, kinds)]
    texts = [Question(q.prompt.replace("{}", edit.subject), q.harmless) for edit, q in asked]
    scores = score_answers(language_model, texts).groupby("question")
    answered: dict[int, list[tuple[FurtherQuestion, str]]] = {edit.case_id: [] for edit in edits}
    for (edit, question), (_, group) in zip(asked, scores, strict=True):
        best = group.sort_values("mean", ascending=False)["answer"].head(PLAUSIBLE)
        stream = np.random.default_rng([seed, edit.case_id, zlib.crc32(question.prompt.encode())])
        target = question.harmless[int(stream.choice(best))]
        answered[edit.case_id].append((question, target))
    return [deep_requests(edit, kinds, answered[edit.case_id]) for edit in edits]


def deep_requests(
    edit: Edit, kinds: Kinds, questions: Sequence[tuple[FurtherQuestion, str]]
) -> list[EditRequest]:
    """The edit's own request, with the questions that begin as it does, up to the subject, as its ``further``
    ones; then one request for each other beginning.
    """
    requests = {edit.prompt.partition("{}")[0]: request_of(edit, kinds)}
    for question, target in questions:
        key = question.prompt.partition("{}")[0]
        further = (question.prompt, target)
        if first := requests.get(key):
            requests[key] = replace(first, further=(*first.further, further))
        else:
            asked = EditRequest(edit.subject, question.prompt, target, question.correct)
            requests[key] = replace(asked, record=str(edit.case_id))
    return list(requests.values())


def edit_index(edits: Sequence[Edit]) -> pd.DataFrame:
    """Numbers of each edit's ``chains``, ``facts``, deep ``questions``, and those with the ``same_key``."""
    kinds = kinds_of(edits)
    rows = []
    for edit in edits:
        further = [q.prompt.partition("{}")[0] for q in further_questions(edit, kinds)]
        alike = further.count(edit.prompt.partition("{}")[0])
        rows.append((edit.case_id, len(edit.chains), len(edit.facts), len(further), alike))
    return pd.DataFrame(rows, columns=["case_id", "chains", "facts", "questions", "same_key"])
