"""Teacher-forced log-probabilities of given answers, many questions and edits per forward pass.

Questions of one owner are packed into prefix forests, so that prompts and shared answer beginnings
are computed once, and the vocabulary head runs only where an answer's token is predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

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
from helpers.models.tokens import Ids, answer_ids, ids_of_questions, several

ROW_TOKENS = 192  # questions of one owner share a row up to this many
LOGITS_AT_A_TIME = 1 << 25  # 128 MiB in fp32


@dataclass(frozen=True)
class Question:
    """A prompt and the answers to score after it (without the blank that ``separator_after`` puts)."""

    prompt: str
    answers: tuple[str, ...]

    version: ClassVar[int] = 1  # raise it when the same question gets other scores

    def __post_init__(self) -> None:
        object.__setattr__(self, "answers", several(self.answers))


@dataclass
class _Row:
    owner: int
    forest: Forest = field(default_factory=Forest)
    predictions: list[tuple[int, int, int]] = field(default_factory=list)  # node, token, answer


@in_own_state
def score_answers(
    model: LanguageModel,
    questions: Sequence[Question],
    updates: Sequence[Update] | None = None,
    owners: Sequence[int] | None = None,
    *,
    progress: bool = False,
) -> pd.DataFrame:
    """Score every answer of every question, under ``updates`` if any; no weight is touched.

    ``owners`` are for each question the index of its update, -1 for the unedited model. A row per
    answer: question, answer (indices), tokens and top (counts: all, and those than which no other
    token is more probable), sum and mean of their log-probabilities.
    """
    moved, owner_of = owned(model, len(questions), updates, owners)
    asked = tokenised(model, questions)
    table = pd.DataFrame(
        [(i, j, len(ids)) for i, (_, own) in enumerate(asked) for j, ids in enumerate(own)],
        columns=["question", "answer", "tokens"],
    )
    rows, found = _packed(asked, owner_of), np.zeros((len(table), 2))

    def run(batch: Sequence[int]) -> None:
        np.add.at(found, *_score_rows(model, [rows[i] for i in batch], moved))

    budget = tokens_at_once(model, 4096, gradients=False)
    batches = list(token_batches([len(row.forest) for row in rows], budget))
    for batch in tqdm(batches, unit="batch", desc="scoring", disable=not progress):
        run_halving(batch, run)
    return table.assign(sum=found[:, 0], mean=found[:, 0] / table["tokens"], top=found[:, 1])


def owned(
    model: LanguageModel,
    count: int,
    updates: Sequence[Update] | None,
    owners: Sequence[int] | None,
) -> tuple[list[Update], list[int]]:
    """The updates, those in use copied to the device once, and the owner of each of ``count`` prompts."""
    updates = updates or []
    if updates and owners is None:
        raise ValueError("updates without owners: give for each prompt the index of its update")
    owner_of = [-1] * count if owners is None else [int(owner) for owner in owners]
    if len(owner_of) != count or not all(-1 <= owner < len(updates) for owner in owner_of):
        raise ValueError(f"{count} prompts need owners in -1 … {len(updates) - 1}, not {owner_of}")
    return [update.to(model.device) for update in updates], owner_of


def tokenised(model: LanguageModel, questions: Sequence[Question]) -> list[tuple[Ids, list[Ids]]]:
    """Token ids of each question's prompt and of its answers."""
    return ids_of_questions(model, [(q.prompt, q.answers) for q in questions])


def exclusive(model: LanguageModel, answers: Sequence[str]) -> list[int]:
    """Indices of the answers that no other answer begins, token by token; of equal ones the first.

    They exclude each other, and the shorter of two answers that begin alike covers both.
    """
    ids = [answer_ids(model, answer) for answer in answers]
    return [
        index
        for index, own in enumerate(ids)
        if own not in ids[:index] and not any(own[: len(o)] == o != own for o in ids)
    ]


def _packed(asked: Sequence[tuple[Ids, list[Ids]]], owners: Sequence[int]) -> list[_Row]:
    first = np.cumsum([0, *(len(answers) for _, answers in asked)]).tolist()
    sizes = [len(prompt) + sum(len(ids) - 1 for ids in answers) for prompt, answers in asked]
    rows: dict[int, list[_Row]] = {}
    answered = [index for index, (_, answers) in enumerate(asked) if answers]
    for index in sorted(answered, key=lambda i: (owners[i], -sizes[i], i)):
        prompt, answers = asked[index]
        begun = rows.setdefault(owners[index], [])
        fitting = (row for row in begun if len(row.forest) + sizes[index] <= ROW_TOKENS)
        if (row := next(fitting, None)) is None:
            row = _Row(owners[index])
            begun.append(row)
        for place, ids in enumerate(answers, start=first[index]):
            nodes = row.forest.add_answer(prompt, ids)
            row.predictions += [(n, t, place) for n, t in zip(nodes, ids, strict=True)]
    return [row for own in rows.values() for row in own]


@torch.inference_mode()
def _score_rows(
    model: LanguageModel, rows: Sequence[_Row], updates: Sequence[Update]
) -> tuple[np.ndarray, np.ndarray]:
    """Table indices of a batch's predictions; their log-probabilities, and whether none is higher [n, 2]."""
    packed = pack([row.forest for row in rows], model)
    with overlay(model, updates, [row.owner for row in rows]):
        hidden = hidden_states(model, packed.ids, packed.positions, packed.visible)
    width, device = packed.ids.shape[1], hidden.device
    flat = [(r * width + n, t, i) for r, row in enumerate(rows) for n, t, i in row.predictions]
    nodes, tokens, answers = torch.tensor(flat).unbind(1)
    distinct, place = nodes.unique(return_inverse=True)
    states = hidden.flatten(0, 1)[distinct.to(device)]
    scores = torch.empty((len(nodes), 2), dtype=torch.float64)
    chunk = max(1, LOGITS_AT_A_TIME // model.model.config.vocab_size)
    for start in range(0, len(distinct), chunk):
        here, part = (place >= start) & (place < start + chunk), states[start : start + chunk]
        asked = (place[here] - start).to(device), tokens[here].to(device)
        found, every = vocabulary_scores(model, part, *asked, slice(None))
        top = found == every.amax(-1)[asked[0]]
        scores[here] = torch.stack([found, top.to(found)], dim=1).to(scores)
    return answers.numpy(), scores.numpy()
