"""Teacher-forced log-probabilities of given answers, many questions and edits per forward pass.

Questions of one owner are packed into prefix forests, so that prompts and shared answer beginnings
are computed once, and the vocabulary head runs only where an answer's token is predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
import pandas as pd
import torch
from tqdm.auto import tqdm

from helpers.editing.update import Update, overlay
from helpers.models import LanguageModel
from helpers.models.batching import run_halving, token_batches, tokens_at_once
from helpers.models.forest import Forest, pack
from helpers.models.forward import hidden_states, vocabulary_scores
from helpers.models.state import in_own_state
from helpers.models.tokens import Ids, answer_ids, ids_of_questions, tuple_of_texts

ROW_TOKENS = 192  # questions of one owner share a row up to this many
LOGITS_AT_A_TIME = 1 << 25  # 128 MiB in fp32


@dataclass(frozen=True)
class Question:
    """A prompt and the answers to score after it (without the blank that ``separator_after`` puts)."""

    prompt: str
    answers: tuple[str, ...]

    version: ClassVar[int] = 1  # raise it when the same question gets other scores

    def __post_init__(self) -> None:
        object.__setattr__(self, "answers", tuple_of_texts(self.answers))


@dataclass
class _Row:
    """Questions of one owner in one prefix forest."""

    owner: int
    forest: Forest = field(default_factory=Forest)
    predictions: list[_ScoredToken] = field(default_factory=list)


class _ScoredToken(NamedTuple):
    """A token of an answer, and the node of its row's forest that predicts it."""

    node: int
    token: int
    answer: int  # its row of the table of scores


class _TokenScores(NamedTuple):
    """Of n predicted tokens: the answer each belongs to, its log-probability, and whether none is higher."""

    answers: np.ndarray  # [n], rows of the table of scores
    log_probabilities: np.ndarray  # [n], fp64, natural logarithm
    is_top: np.ndarray  # [n], boolean


@in_own_state
def score_answers(
    lm: LanguageModel,
    questions: Sequence[Question],
    updates: Sequence[Update] | None = None,
    owners: Sequence[int] | None = None,
    *,
    progress: bool = False,
) -> pd.DataFrame:
    """Score every answer of every question, under ``updates`` if any; no weight is touched.

    Args:
        questions: prompts with the answers that are scored after each.
        updates: the edits; None: all questions are asked of the unedited model.
        owners: for each question the index of its update, or -1 for the unedited model.
        progress: show a bar.

    Returns:
        A row per answer, in the order of the questions: ``question`` and ``answer`` (indices), ``tokens``
        (how many it has), ``sum`` and ``mean`` (of the tokens' log-probabilities, natural logarithm), and
        ``top`` (how many of its tokens are such that no other token is more probable).

    Raises:
        TokenError: an empty text, a prompt that ends with a blank, or one that exceeds the context.
        UpdateError: an update that does not fit the model.
    """
    owner_of_question = resolve_owners(len(questions), updates, owners)
    on_device = [update.to(lm.device) for update in updates or ()]
    asked = tokenised(lm, questions)
    table = pd.DataFrame(
        [
            (question, answer, len(ids))
            for question, (_, answers) in enumerate(asked)
            for answer, ids in enumerate(answers)
        ],
        columns=["question", "answer", "tokens"],
    )
    rows = _packed_rows(asked, owner_of_question)
    sums = np.zeros(len(table))
    top_counts = np.zeros(len(table))

    def score(row_indices: Sequence[int]) -> None:
        scores = _score_rows(lm, [rows[i] for i in row_indices], on_device)
        np.add.at(sums, scores.answers, scores.log_probabilities)
        np.add.at(top_counts, scores.answers, scores.is_top)

    budget = tokens_at_once(lm, 4096, gradients=False)
    batches = list(token_batches([len(row.forest) for row in rows], budget))
    for batch in tqdm(batches, unit="batch", desc="scoring", disable=not progress):
        run_halving(batch, score)
    return table.assign(sum=sums, mean=sums / table["tokens"], top=top_counts)


def resolve_owners(
    count: int, updates: Sequence[Update] | None, owners: Sequence[int] | None
) -> list[int]:
    """For each of ``count`` prompts the index of its update; without ``owners`` -1, the unedited model."""
    number_of_updates = len(updates or ())
    if number_of_updates and owners is None:
        raise ValueError("updates without owners: give for each prompt the index of its update")
    resolved = [-1] * count if owners is None else [int(owner) for owner in owners]
    if len(resolved) != count or not all(-1 <= owner < number_of_updates for owner in resolved):
        raise ValueError(
            f"{count} prompts need owners in -1 … {number_of_updates - 1}, not {resolved}"
        )
    return resolved


def tokenised(lm: LanguageModel, questions: Sequence[Question]) -> list[tuple[Ids, list[Ids]]]:
    """Token ids of each question's prompt and of its answers."""
    return ids_of_questions(lm, [(q.prompt, q.answers) for q in questions])


def exclusive(lm: LanguageModel, answers: Sequence[str]) -> list[int]:
    """Indices of the answers that no other answer begins, token by token; of equal ones the first.

    They exclude each other, and the shorter of two answers that begin alike covers both.
    """
    ids_of_answers = [answer_ids(lm, answer) for answer in answers]
    exclusive_indices = []
    for index, ids in enumerate(ids_of_answers):
        is_repeated = ids in ids_of_answers[:index]
        is_begun = any(ids[: len(other)] == other != ids for other in ids_of_answers)
        if not is_repeated and not is_begun:
            exclusive_indices.append(index)
    return exclusive_indices


def _packed_rows(asked: Sequence[tuple[Ids, list[Ids]]], owners: Sequence[int]) -> list[_Row]:
    """Rows of up to ``ROW_TOKENS``, first fit, longest questions first; owners do not share a row."""
    first_answers = np.cumsum([0, *(len(answers) for _, answers in asked)]).tolist()
    sizes = [len(prompt) + sum(len(ids) - 1 for ids in answers) for prompt, answers in asked]
    with_answers = [index for index, (_, answers) in enumerate(asked) if answers]
    rows_of_owners: dict[int, list[_Row]] = {}
    for index in sorted(with_answers, key=lambda i: (owners[i], -sizes[i], i)):
        prompt, answers = asked[index]
        rows = rows_of_owners.setdefault(owners[index], [])
        row = _with_room(rows, sizes[index])
        if row is None:
            row = _Row(owners[index])
            rows.append(row)
        for answer, ids in enumerate(answers, start=first_answers[index]):
            nodes = row.forest.add_answer(prompt, ids)
            for node, token in zip(nodes, ids, strict=True):
                row.predictions.append(_ScoredToken(node, token, answer))
    return [row for rows in rows_of_owners.values() for row in rows]


def _with_room(rows: Sequence[_Row], size: int) -> _Row | None:
    for row in rows:
        if len(row.forest) + size <= ROW_TOKENS:
            return row
    return None


@torch.inference_mode()
def _score_rows(lm: LanguageModel, rows: Sequence[_Row], updates: Sequence[Update]) -> _TokenScores:
    """Score all predicted tokens of a batch; the head runs once per distinct position."""
    packed = pack([row.forest for row in rows], lm)
    with overlay(lm, updates, [row.owner for row in rows]):
        hidden = hidden_states(lm, packed.ids, packed.positions, packed.visible)
    device = hidden.device
    width = packed.ids.shape[1]
    predictions = [
        (row_index * width + prediction.node, prediction.token, prediction.answer)
        for row_index, row in enumerate(rows)
        for prediction in row.predictions
    ]
    positions, tokens, answers = torch.tensor(predictions).unbind(1)  # [n] each
    distinct, head_rows = positions.unique(return_inverse=True)
    states = hidden.flatten(0, 1)[distinct.to(device)]  # [distinct, hidden]

    log_probabilities = torch.empty(len(positions), dtype=torch.float64)
    is_top = torch.empty(len(positions), dtype=torch.bool)
    states_at_a_time = max(1, LOGITS_AT_A_TIME // lm.network.config.vocab_size)
    for first in range(0, len(distinct), states_at_a_time):
        in_chunk = (head_rows >= first) & (head_rows < first + states_at_a_time)
        chunk_rows = (head_rows[in_chunk] - first).to(device)
        scores, distributions = vocabulary_scores(
            lm,
            states[first : first + states_at_a_time],
            chunk_rows,
            tokens[in_chunk].to(device),
            distribution_rows=slice(None),
        )
        highest = distributions.amax(-1)[chunk_rows]
        log_probabilities[in_chunk] = scores.to(log_probabilities)
        is_top[in_chunk] = (scores == highest).cpu()
    return _TokenScores(answers.numpy(), log_probabilities.numpy(), is_top.numpy())
