"""Which facts a model recalls: a cloze after solved ones of the same relation (KLoB, Section 3.3).

Eight demonstrations, one per line, stand before the question; a fact counts as recalled when
greedy decoding gives exactly the answer's tokens. Teacher forcing decides that without decoding: the
answer is what greedy decoding says if and only if each of its tokens is the most probable one after
those before it. Facts of a relation share their demonstrations, which run once per packed row.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from helpers.models.batching import token_batches
from helpers.models.forest import Forest, pack
from helpers.models.forward import hidden_states
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import answer_ids, prompt_ids, separator_after

DEMONSTRATIONS = 8


@dataclass(frozen=True)
class RecallQuestion:
    """A prompt without its answer, the answer, and the relation that shares demonstrations."""

    prompt: str
    answer: str
    relation: str


def recalled(
    language_model: LanguageModel,
    questions: Sequence[RecallQuestion],
    *,
    demonstrations: int = DEMONSTRATIONS,
    seed: int = 0,
    row_tokens: int = 512,
) -> list[bool]:
    """Whether the model gives each question's answer.

    Args:
        questions: facts as prompts; those of one relation demonstrate each other.
        demonstrations: solved questions before each; a relation needs one more than this.
        row_tokens: questions of one relation are packed up to this many tokens.

    Raises:
        ValueError: a relation with too few questions.
    """
    prompts = with_demonstrations(questions, demonstrations, seed)
    rows: list[tuple[Forest, list[tuple[int, list[int], tuple[int, ...]]]]] = []
    open_row: dict[str, int] = {}
    for index in sorted(range(len(questions)), key=lambda i: (questions[i].relation, prompts[i])):
        relation = questions[index].relation
        prompt = prompt_ids(language_model, prompts[index])
        answer = answer_ids(
            language_model, questions[index].answer, separator_after(prompts[index])
        )
        if relation not in open_row or len(rows[open_row[relation]][0]) > row_tokens:
            open_row[relation] = len(rows)
            rows.append((Forest(), []))
        forest, members = rows[open_row[relation]]
        nodes = forest.add_answer(prompt, answer)
        members.append((index, nodes, answer))
    right = [False] * len(questions)
    for batch in token_batches([len(forest) for forest, _ in rows], 2 * row_tokens):
        _decide(language_model, [rows[i] for i in batch], right)
    return right


def with_demonstrations(
    questions: Sequence[RecallQuestion], demonstrations: int, seed: int
) -> list[str]:
    """Each question's prompt after ``demonstrations`` solved ones of its relation.

    All questions of a relation see the same ones, except those that would see themselves.

    Raises:
        ValueError: a relation with too few questions.
    """
    by_relation: dict[str, list[int]] = {}
    for index, question in enumerate(questions):
        by_relation.setdefault(question.relation, []).append(index)
    prompts = [""] * len(questions)
    for relation, members in by_relation.items():
        if len(members) <= demonstrations:
            raise ValueError(
                f"relation {relation} has {len(members)} facts, too few to demonstrate with"
                f" {demonstrations}; drop it or lower `demonstrations`"
            )
        order = random.Random(f"{seed} {relation}").sample(members, len(members))
        for index in members:
            others = [i for i in order[: demonstrations + 1] if i != index][:demonstrations]
            solved = [f"{questions[i].prompt} {questions[i].answer}\n" for i in others]
            prompts[index] = "".join(solved) + questions[index].prompt
    return prompts


@torch.inference_mode()
def _decide(
    language_model: LanguageModel,
    rows: Sequence[tuple[Forest, list[tuple[int, list[int], tuple[int, ...]]]]],
    found: list[bool],
) -> None:
    """Mark the questions all of whose answer tokens are the most probable ones."""
    packed = pack([forest for forest, _ in rows], language_model)
    hidden = hidden_states(language_model, packed.ids, packed.positions, packed.visible)
    head = language_model.model.get_output_embeddings()
    for row, (_, members) in enumerate(rows):
        for index, nodes, answer in members:
            best = head(hidden[row, nodes]).argmax(-1).tolist()
            found[index] = tuple(best) == answer
