"""Log-probabilities of given answers, many questions and edits per forward pass.

A question is a prompt with answers; each answer's score is the teacher-forced log-probability of its
own tokens after the prompt. Questions of one owner are packed into prefix forests (see
``helpers.models.forest``), so that prompts and shared answer beginnings are computed once, and the
vocabulary head runs only where an answer's token is predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from tqdm.auto import tqdm

from helpers.editing.overlay import overlay
from helpers.editing.update import Update, moved_where_used
from helpers.models.batching import run_halving, token_batches, tokens_at_once
from helpers.models.forest import Forest, pack
from helpers.models.forward import hidden_states, log_probabilities
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import (
    TokenError,
    ids_of_answers,
    ids_of_prompts,
    separator_after,
    several,
)

Ids = tuple[int, ...]
COLUMNS = ["question", "answer", "tokens", "sum", "mean"]
LOGITS_AT_A_TIME = 1 << 25  # 128 MiB in fp32


@dataclass(frozen=True)
class Question:
    """A prompt and the answers to score after it (given without a leading blank).

    What comes between the two is the prompt's: see ``helpers.models.tokens.separator_after``.
    """

    prompt: str
    answers: tuple[str, ...]

    version: ClassVar[int] = 1  # raise it when the same question gets other scores

    def __post_init__(self) -> None:
        object.__setattr__(self, "answers", several(self.answers))


@dataclass
class _Row:
    """One packed row: its forest, its owner, and the predictions to read from it.

    ``predictions`` holds (node that predicts, predicted token, index of the answer's table row).
    """

    owner: int
    forest: Forest = field(default_factory=Forest)
    predictions: list[tuple[int, int, int]] = field(default_factory=list)


def score_answers(
    language_model: LanguageModel,
    questions: Sequence[Question],
    updates: Sequence[Update] | None = None,
    owners: Sequence[int] | None = None,
    *,
    token_budget: int | None = None,
    row_tokens: int = 192,
    progress: bool = False,
) -> pd.DataFrame:
    """Score every answer of every question.

    Args:
        language_model: the model; its weights are not touched.
        updates: edits to score under, if any.
        owners: for each question the index of its update, -1 for the unedited model; needed with
            updates.
        token_budget: tokens per forward pass, padding included; default: by free memory.
        row_tokens: questions of one owner share a row up to this many tokens.

    Returns:
        One row per answer: question (index), answer (index), tokens (count), sum and mean of the
        token log-probabilities (natural logarithm), sorted by question and answer.

    Raises:
        TokenError: an empty prompt or answer, or more tokens than the context.
        ValueError: updates without owners, owners and questions that differ in number, or an owner
            without update.
    """
    owner_of = checked_owners(questions, updates, owners)
    moved = moved_where_used(updates or [], owner_of, language_model.device)
    table, rows = _pack_questions(language_model, questions, owner_of, row_tokens)
    sums = np.zeros(len(table))
    lengths = [len(row.forest) for row in rows]
    bar = tqdm(total=sum(lengths), unit="token", desc="scoring", disable=not progress)
    budget = token_budget or tokens_at_once(language_model, 4096, gradients=False)
    for batch in token_batches(lengths, budget):
        chosen = [rows[i] for i in batch]
        for part in run_halving(chosen, lambda c: _score_rows(language_model, c, moved)):
            np.add.at(sums, part[0], part[1])
        bar.update(sum(lengths[i] for i in batch))
    bar.close()
    table["sum"] = sums
    table["mean"] = sums / table["tokens"]
    return table[COLUMNS]


def packed_tokens(language_model: LanguageModel, questions: Sequence[Question]) -> int:
    """Distinct prefix-tree tokens of the questions, each alone: the lower bound of the work."""
    total = 0
    for question in questions:
        _, rows = _pack_questions(language_model, [question], [-1], 1)
        total += sum(len(row.forest) for row in rows)
    return total


def checked_owners(
    asked: Sequence[object], updates: Sequence[Update] | None, owners: Sequence[int] | None
) -> list[int]:
    """For each question or prompt the index of its update, -1 for the unedited model.

    Raises:
        ValueError: updates without owners, another number of owners, or an owner without update.
    """
    if updates and owners is None:
        raise ValueError("updates without owners: give for each prompt the index of its update")
    owner_of = [-1] * len(asked) if owners is None else [int(owner) for owner in owners]
    if len(owner_of) != len(asked):
        raise ValueError(f"{len(owner_of)} owners for {len(asked)} prompts")
    highest = len(updates or [])
    if owner_of and not (min(owner_of) >= -1 and max(owner_of) < highest):
        raise ValueError(f"owners must lie in -1 … {highest - 1} (there are {highest} updates)")
    return owner_of


def tokenised(
    language_model: LanguageModel, questions: Sequence[Question]
) -> list[tuple[Ids, list[Ids]]]:
    """Token ids of each question's prompt and of its answers.

    Raises:
        TokenError: a text that cannot be asked, or a prompt and an answer longer than the context.
    """
    prompts = ids_of_prompts(language_model, (q.prompt for q in questions))
    separators = {prompt: separator_after(prompt) for prompt in prompts}
    answers = {
        each: ids_of_answers(
            language_model,
            (a for q in questions if separators[q.prompt] == each for a in q.answers),
            each,
        )
        for each in set(separators.values())
    }
    limit, found = language_model.context_length, []
    for q in questions:
        prompt, own = prompts[q.prompt], [answers[separators[q.prompt]][a] for a in q.answers]
        longest = len(prompt) + max(map(len, own), default=1) - 1
        if longest > limit:
            raise TokenError(
                f"prompt {q.prompt[:60]!r} and its longest answer, {longest} tokens, exceed the context"
                f" of {limit}; shorten them"
            )
        found.append((prompt, own))
    return found


def _pack_questions(
    language_model: LanguageModel,
    questions: Sequence[Question],
    owners: Sequence[int],
    row_tokens: int,
) -> tuple[pd.DataFrame, list[_Row]]:
    """Tokenise each distinct text once and fill rows, longest questions first."""
    asked = tokenised(language_model, questions)
    first = np.cumsum([0, *(len(q.answers) for q in questions)])
    table = pd.DataFrame(
        [(i, j, len(ids)) for i, (_, own) in enumerate(asked) for j, ids in enumerate(own)],
        columns=["question", "answer", "tokens"],
    )
    sizes = [len(prompt) + sum(len(ids) - 1 for ids in own) for prompt, own in asked]
    open_rows: dict[int, list[_Row]] = {}
    answered = [index for index, question in enumerate(questions) if question.answers]
    for index in sorted(answered, key=lambda i: (owners[i], -sizes[i], i)):
        candidates = open_rows.setdefault(owners[index], [])
        fits = (r for r in candidates if len(r.forest) + sizes[index] <= row_tokens)
        row = next(fits, None)
        if row is None:
            row = _Row(owners[index])
            candidates.append(row)
        _add_question(row, *asked[index], int(first[index]))
    return table, [row for rows in open_rows.values() for row in rows]


def _add_question(row: _Row, prompt: Ids, answers: Sequence[Ids], first: int) -> None:
    for offset, ids in enumerate(answers):
        nodes = row.forest.add_answer(prompt, ids)
        row.predictions += [(n, t, first + offset) for n, t in zip(nodes, ids, strict=True)]


@torch.inference_mode()
def _score_rows(
    language_model: LanguageModel, rows: Sequence[_Row], updates: Sequence[Update]
) -> tuple[np.ndarray, np.ndarray]:
    """Table indices and log-probabilities of all predictions of a batch of rows."""
    packed = pack([row.forest for row in rows], language_model)
    owners = torch.tensor([row.owner for row in rows])
    with overlay(language_model, updates, owners):
        hidden = hidden_states(language_model, packed.ids, packed.positions, packed.visible)
    width = packed.ids.shape[1]
    flat = [(r * width + n, t, i) for r, row in enumerate(rows) for n, t, i in row.predictions]
    places, tokens, answers = torch.tensor(flat).unbind(1)
    scores = _predicted(language_model, hidden.flatten(0, 1), places, tokens)
    return answers.numpy(), scores.double().cpu().numpy()


def _predicted(
    language_model: LanguageModel, hidden: Tensor, places: Tensor, tokens: Tensor
) -> Tensor:
    """Log-probabilities of (place, token) pairs, the head run on bounded chunks of places."""
    distinct, place_of = places.unique(return_inverse=True)
    chunk = max(1, LOGITS_AT_A_TIME // language_model.model.config.vocab_size)
    scores = torch.empty(len(places), device=hidden.device)
    for start in range(0, len(distinct), chunk):
        here = ((place_of >= start) & (place_of < start + chunk)).nonzero()[:, 0]
        chosen = hidden[distinct[start : start + chunk].to(hidden.device)]
        place = (place_of[here] - start).to(hidden.device)
        scores[here.to(hidden.device)] = log_probabilities(
            language_model, chosen, place, tokens[here].to(hidden.device)
        )
    return scores
