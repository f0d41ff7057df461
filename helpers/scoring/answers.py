"""Teacher-forced log-probabilities of given answers, many questions and edits per forward pass.

``score_answers`` takes texts and ``score_continuations`` token ids. Questions of one owner are packed into
prefix forests, so that prompts and shared answer beginnings are computed once, and the vocabulary head runs
only where an answer's token is predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
import pandas as pd
import torch
from tqdm.auto import tqdm

from helpers.editing.edit import Edit
from helpers.editing.running import (
    GateDecisions,
    PromptTokens,
    decided_beforehand,
    prefixes_of,
    under,
    with_prefix_texts,
)
from helpers.models import LanguageModel
from helpers.models.batching import run_halving, token_batches, tokens_at_once
from helpers.models.forest import Forest, pack
from helpers.models.forward import hidden_states, vocabulary_scores
from helpers.models.state import in_own_state
from helpers.models.tokens import (
    Ids,
    TokenError,
    answer_ids,
    check_length,
    ids_of_questions,
    tuple_of_texts,
)

ROW_TOKENS = 192  # of a row that questions of one owner share, without their common prefix
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
class _QuestionRow:
    """Questions of one owner in one prefix forest."""

    owner: int
    prefix: str  # that its prompts begin with
    prefix_tokens: int
    is_of_one_prompt: bool  # whose tokens are its first nodes
    forest: Forest = field(default_factory=Forest)
    predictions: list[_ScoredToken] = field(default_factory=list)
    question_of_end: dict[int, int] = field(default_factory=dict)  # by a prompt's last node

    @property
    def room(self) -> int:
        """Tokens that it can still take."""
        return self.prefix_tokens + max(ROW_TOKENS, self.prefix_tokens) - len(self.forest)


class _Asked(NamedTuple):
    """A question as the model gets it under its edit."""

    owner: int
    prompt: Ids  # after what the edit puts before it
    answers: list[Ids]
    prefix: str  # what the edit puts there; empty: nothing
    prefix_tokens: int  # by which that makes the prompt longer
    is_gated: bool  # whether the edit must know where the prompt ends
    is_seen_whole: bool  # and whether it reads or changes the prompt's earlier tokens

    @property
    def size(self) -> int:
        """Tokens that it adds to a row, at most."""
        answer_tokens = sum(len(ids) - 1 for ids in self.answers)
        return len(self.prompt) - self.prefix_tokens + answer_tokens


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
    edits: Sequence[Edit] | None = None,
    owners: Sequence[int] | None = None,
    *,
    progress: bool = False,
) -> pd.DataFrame:
    """Score every answer of every question, under ``edits`` if any; no weight is touched.

    Args:
        questions: prompts with the answers that are scored after each.
        edits: of any kind; None: all questions are asked of the unedited model.
        owners: for each question the index of its edit, or -1 for the unedited model.
        progress: show a bar.

    Returns:
        A row per answer, in the order of the questions: ``question`` and ``answer`` (indices), ``tokens``
        (how many it has), ``sum`` and ``mean`` (of the tokens' log-probabilities, natural logarithm), and
        ``top`` (how many of its tokens are such that no other token is more probable).

    Raises:
        TokenError: an empty text, a prompt that ends with a blank, or one that exceeds the context, with
            what its edit puts before it.
        EditError: an edit that does not fit the model.
    """
    owner_of_question = resolve_owners(len(questions), edits, owners)
    on_device = [edit.to(lm.device) for edit in edits or ()]
    token_questions = _asked(lm, questions, on_device, owner_of_question)
    return _scores(lm, token_questions, on_device, progress=progress)


@in_own_state
def score_continuations(
    lm: LanguageModel,
    continuations: Sequence[tuple[Sequence[int], Sequence[int]]],
    edits: Sequence[Edit] | None = None,
    owners: Sequence[int] | None = None,
    *,
    progress: bool = False,
) -> pd.DataFrame:
    """Score continuations of contexts, both token ids, as ``score_answers`` scores texts.

    Args:
        continuations: pairs of a context, with its special tokens, and what follows it. For an edit the
            context is the prompt (``with_prefixes``).
        edits: of any kind; None: everything is scored by the unedited model.
        owners: for each pair the index of its edit, or -1 for the unedited model.
        progress: show a bar.

    Returns:
        A row per pair: ``tokens``, ``sum``, ``mean`` and ``top``, as ``score_answers`` has them.

    Raises:
        TokenError: a context or a continuation without tokens, or a pair that exceeds the context.
        EditError: an edit that does not fit the model.
    """
    owner_of_pair = resolve_owners(len(continuations), edits, owners)
    on_device = [edit.to(lm.device) for edit in edits or ()]
    pairs_of_context: dict[tuple[int, Ids], list[int]] = {}  # by owner and context
    for number, (context, continuation) in enumerate(continuations):
        if len(context) == 0 or len(continuation) == 0:
            raise TokenError(
                f"continuation {number}: it and its context need a token each; begin the context with"
                " the tokenizer's first special token"
            )
        key = (owner_of_pair[number], tuple(context))
        pairs_of_context.setdefault(key, []).append(number)
    scored_contexts = []
    contexts = [context for _, context in pairs_of_context]
    owners_of_contexts = [owner for owner, _ in pairs_of_context]
    prefixed = with_prefixes(lm, contexts, on_device, owners_of_contexts)
    for (owner, context), (prefix, prompt) in zip(pairs_of_context, prefixed, strict=True):
        answers = [tuple(continuations[n][1]) for n in pairs_of_context[owner, context]]
        longest = max(len(ids) for ids in answers)
        check_length(lm, lm.tokenizer.decode(prompt[:60]), len(prompt) + longest - 1)
        scored_contexts.append(
            _Asked(
                owner=owner,
                prompt=prompt,
                answers=answers,
                prefix=prefix,
                prefix_tokens=len(prompt) - len(context),
                is_gated=owner >= 0 and on_device[owner].is_gated,
                is_seen_whole=owner >= 0 and on_device[owner].sees_whole_prompts,
            )
        )
    table = _scores(lm, scored_contexts, on_device, progress=progress)
    pair_of_row = [number for numbers in pairs_of_context.values() for number in numbers]
    table.index = pd.Index(pair_of_row, dtype=int)
    return table.drop(columns=["question", "answer"]).sort_index()


def with_prefixes(
    lm: LanguageModel, contexts: Sequence[Ids], edits: Sequence[Edit], owners: Sequence[int]
) -> list[tuple[str, Ids]]:
    """The text that each context's edit puts before it, and the context's token ids with it.

    It comes after the special tokens that the context begins with. The edit is asked about the context's
    text. Ids are put together, so that the context keeps its own tokens.
    """
    special_tokens = frozenset(lm.tokenizer.all_special_ids)
    texts = [lm.tokenizer.decode(ids, skip_special_tokens=True) for ids in contexts]
    prefixed = []
    for prefix, ids in zip(prefixes_of(lm, edits, owners, texts), contexts, strict=True):
        start = 0
        while prefix and start < len(ids) and ids[start] in special_tokens:
            start += 1
        prefix_ids = lm.tokenizer(prefix, add_special_tokens=False)["input_ids"] if prefix else []
        prefixed.append((prefix, (*ids[:start], *prefix_ids, *ids[start:])))
    return prefixed


def _scores(
    lm: LanguageModel, questions: Sequence[_Asked], edits: Sequence[Edit], *, progress: bool
) -> pd.DataFrame:
    """The table that ``score_answers`` returns."""
    table = pd.DataFrame(
        [
            (number, answer, len(ids))
            for number, question in enumerate(questions)
            for answer, ids in enumerate(question.answers)
        ],
        columns=["question", "answer", "tokens"],
    )
    packed_rows = _packed_rows(questions)
    prompts = [question.prompt for question in questions]
    owners = [question.owner for question in questions]
    beforehand = decided_beforehand(lm, edits, owners, prompts)
    sums = np.zeros(len(table))
    top_counts = np.zeros(len(table))

    def score(row_indices: Sequence[int]) -> None:
        batch = [packed_rows[row_index] for row_index in row_indices]
        decisions = {} if beforehand is None else beforehand
        scores = _score_rows(lm, batch, edits, len(questions), decisions)
        np.add.at(sums, scores.answers, scores.log_probabilities)
        np.add.at(top_counts, scores.answers, scores.is_top)

    budget = tokens_at_once(lm, 4096, gradients=False)
    batches = list(token_batches([len(row.forest) for row in packed_rows], budget))
    for batch in tqdm(batches, unit="batch", desc="scoring", disable=not progress):
        run_halving(batch, score)
    return table.assign(sum=sums, mean=sums / table["tokens"], top=top_counts)


def _asked(
    lm: LanguageModel, questions: Sequence[Question], edits: Sequence[Edit], owners: Sequence[int]
) -> list[_Asked]:
    """The questions' token ids, each prompt with the text that its edit puts before it."""
    prompts = [question.prompt for question in questions]
    prefixes = prefixes_of(lm, edits, owners, prompts)
    bare_ids = prefixed_ids = tokenised(lm, questions)
    if any(prefixes):
        prefixed_questions = [
            Question(prompt, question.answers)
            for prompt, question in zip(
                with_prefix_texts(lm, prefixes, prompts), questions, strict=True
            )
        ]
        prefixed_ids = tokenised(lm, prefixed_questions)
    is_gated = [edit.is_gated for edit in edits]
    is_seen_whole = [edit.sees_whole_prompts for edit in edits]
    token_questions = []
    for number, (prompt, answers) in enumerate(prefixed_ids):
        bare_prompt, _ = bare_ids[number]
        owner = owners[number]
        token_questions.append(
            _Asked(
                owner=owner,
                prompt=prompt,
                answers=answers,
                prefix=prefixes[number],
                prefix_tokens=len(prompt) - len(bare_prompt),
                is_gated=owner >= 0 and is_gated[owner],
                is_seen_whole=owner >= 0 and is_seen_whole[owner],
            )
        )
    return token_questions


def resolve_owners(
    count: int, edits: Sequence[Edit] | None, owners: Sequence[int] | None
) -> list[int]:
    """For each of ``count`` prompts the index of its edit; without ``owners`` -1, the unedited model."""
    number_of_edits = len(edits or ())
    if number_of_edits and owners is None:
        raise ValueError("edits without owners: give for each prompt the index of its edit")
    resolved = [-1] * count if owners is None else [int(owner) for owner in owners]
    if len(resolved) != count or not all(-1 <= owner < number_of_edits for owner in resolved):
        raise ValueError(
            f"{count} prompts need owners in -1 … {number_of_edits - 1}, not {resolved}"
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


def _packed_rows(asked: Sequence[_Asked]) -> list[_QuestionRow]:
    """Rows of up to ``ROW_TOKENS``, first fit, longest questions first.

    Neither owners nor prefixes share a row, nor do prompts that a gate sees whole.
    """
    first_answers = np.cumsum([0, *(len(question.answers) for question in asked)]).tolist()
    with_answers = [index for index, question in enumerate(asked) if question.answers]
    rows_of: dict[tuple[int, str, Ids], list[_QuestionRow]] = {}
    for index in sorted(with_answers, key=lambda i: (asked[i].owner, -asked[i].size, i)):
        question = asked[index]
        prompt_of_row = question.prompt if question.is_seen_whole else ()
        rows = rows_of.setdefault((question.owner, question.prefix, prompt_of_row), [])
        row = _with_room(rows, question.size)
        if row is None:
            row = _QuestionRow(
                question.owner, question.prefix, question.prefix_tokens, question.is_seen_whole
            )
            rows.append(row)
        # A gate acts at the prompt's last token: a longer prompt that begins alike gets a node of its own.
        last_token = len(question.prompt) - 1 if question.is_gated else None
        for answer, ids in enumerate(question.answers, start=first_answers[index]):
            nodes = row.forest.add_answer(question.prompt, ids, last_token)
            row.question_of_end[nodes[0]] = index
            for node, token in zip(nodes, ids, strict=True):
                row.predictions.append(_ScoredToken(node, token, answer))
    return [row for rows in rows_of.values() for row in rows]


def _with_room(rows: Sequence[_QuestionRow], size: int) -> _QuestionRow | None:
    for row in rows:
        if size <= row.room:
            return row
    return None


def _prompt_tokens(
    rows: Sequence[_QuestionRow],
    edits: Sequence[Edit],
    width: int,
    count: int,
    device: torch.device,
) -> PromptTokens | None:
    """Where prompts are in the packed rows; None where no edit asks for it."""
    is_gated = [row.owner >= 0 and edits[row.owner].is_gated for row in rows]
    if not any(is_gated):
        return None
    prompt = np.full((len(rows), width), -1, dtype=np.int64)
    is_last = np.zeros((len(rows), width), dtype=bool)
    is_before = np.zeros((len(rows), width), dtype=bool)
    for row_index, row in enumerate(rows):
        if is_gated[row_index]:
            prompt[row_index, : len(row.forest)] = row.forest.following(row.question_of_end)
            is_last[row_index, list(row.question_of_end)] = True
        if row.is_of_one_prompt:
            ((last_node, question),) = row.question_of_end.items()
            prompt[row_index, :last_node] = question
            is_before[row_index, :last_node] = True
    return PromptTokens(
        prompt=torch.from_numpy(prompt).to(device),
        is_last=torch.from_numpy(is_last).to(device),
        is_before=torch.from_numpy(is_before).to(device),
        count=count,
    )


@torch.inference_mode()
def _score_rows(
    lm: LanguageModel,
    rows: Sequence[_QuestionRow],
    edits: Sequence[Edit],
    number_of_questions: int,
    decisions: GateDecisions,
) -> _TokenScores:
    """Score all predicted tokens of a batch; the head runs once per distinct position."""
    packed = pack([row.forest for row in rows], lm)
    width = packed.ids.shape[1]
    prompt_tokens = _prompt_tokens(rows, edits, width, number_of_questions, lm.device)
    with under(lm, edits, [row.owner for row in rows], prompt_tokens, decisions):
        hidden = hidden_states(lm, packed.ids, packed.positions, packed.visible)
    device = hidden.device
    predictions = [
        (row_index * width + prediction.node, prediction.token, prediction.answer)
        for row_index, row in enumerate(rows)
        for prediction in row.predictions
    ]
    positions, tokens, answer_rows = torch.tensor(predictions).unbind(1)  # [n] each
    distinct_positions, state_of_prediction = positions.unique(return_inverse=True)
    states = hidden.flatten(0, 1)[distinct_positions.to(device)]  # [distinct, hidden]

    log_probabilities = torch.empty(len(positions), dtype=torch.float64)
    is_top = torch.empty(len(positions), dtype=torch.bool)
    states_at_a_time = max(1, LOGITS_AT_A_TIME // lm.network.config.vocab_size)
    for first_state in range(0, len(distinct_positions), states_at_a_time):
        in_chunk = (state_of_prediction >= first_state) & (
            state_of_prediction < first_state + states_at_a_time
        )
        state_in_chunk = (state_of_prediction[in_chunk] - first_state).to(device)
        scores, distributions = vocabulary_scores(
            lm,
            states[first_state : first_state + states_at_a_time],
            state_in_chunk,
            tokens[in_chunk].to(device),
            distribution_rows=slice(None),
        )
        highest = distributions.amax(-1)[state_in_chunk]
        log_probabilities[in_chunk] = scores.to(log_probabilities)
        is_top[in_chunk] = (scores == highest).cpu()
    return _TokenScores(answer_rows.numpy(), log_probabilities.numpy(), is_top.numpy())
