"""Sampled responses, many prompts and edits per forward pass; finished ones leave the batch.

A sample's random numbers depend on seed, prompt and sample alone, whatever the batch and the edit.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

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
from helpers.models.batching import run_halving
from helpers.models.forest import padded
from helpers.models.forward import Mask, hidden_states
from helpers.models.state import in_own_state
from helpers.models.tokens import (
    Ids,
    Prompt,
    chat_text,
    check_length,
    ids_of_prompts,
    tuple_of_texts,
)
from helpers.scoring.answers import resolve_owners, with_prefixes

ROWS = 80  # responses generated at the same time


@dataclass(frozen=True)
class Sampling:
    """How responses are drawn."""

    temperature: float = 0.7  # 0: the most probable token
    max_new_tokens: int = 32
    stop: str | None = None  # regular expression; ends a response with visible text, and is cut off
    chat: bool | None = None  # through the model's chat template; None: where it has one
    seed: int = 0

    version: ClassVar[int] = 1  # raise it when the same prompts and seed get other responses


def sample_responses(
    lm: LanguageModel,
    prompts: Sequence[Prompt],
    edits: Sequence[Edit] | None = None,
    owners: Sequence[int] | None = None,
    *,
    n: int = 5,
    greedy: bool = False,
    sampling: Sampling | None = None,
) -> list[list[str]]:
    """Draw ``n`` responses to every prompt, under ``edits`` if any.

    Args:
        prompts: texts, or the turns of a chat (``role``: system, user or assistant; ``content``), which
            become paragraphs for a model that is asked without its chat template.
        edits: of any kind; None: all prompts are put to the unedited model. In a chat, what an edit puts
            before a prompt goes into the last message.
        owners: for each prompt the index of its edit, or -1 for the unedited model.
        n: responses to each prompt.
        greedy: whether the first of them has the most probable tokens.
        sampling: how they are drawn; None: the defaults of ``Sampling``.

    Returns:
        For each prompt its responses, without white space around them.

    Raises:
        TokenError: a prompt that exceeds the context with its response, or a chat template that fails.
    """
    sampling = sampling or Sampling()
    ids_of_prompts = sample_tokens(lm, prompts, edits, owners, sampling, n=n, greedy=greedy)
    return [
        [response_text(lm, ids, sampling) for ids in ids_of_responses]
        for ids_of_responses in ids_of_prompts
    ]


def response_text(lm: LanguageModel, ids: Sequence[int], sampling: Sampling) -> str:
    """A response's tokens as text, up to ``stop`` and stripped of white space."""
    text = str(lm.tokenizer.decode(ids, skip_special_tokens=True)).lstrip()
    if sampling.stop:
        text = re.split(sampling.stop, text, maxsplit=1)[0]
    return text.strip()


@in_own_state
def sample_tokens(
    lm: LanguageModel,
    prompts: Sequence[Prompt],
    edits: Sequence[Edit] | None,
    owners: Sequence[int] | None,
    sampling: Sampling,
    *,
    n: int = 1,
    greedy: bool = False,
) -> list[list[Ids]]:
    """``sample_responses`` as token ids, as the model chose them (the stop's own among them)."""
    prompts = tuple_of_texts(prompts)
    owner_of_prompt = resolve_owners(len(prompts), edits, owners)
    on_device = [edit.to(lm.device) for edit in edits or ()]
    ids = _request_ids(lm, prompts, on_device, owner_of_prompt, sampling)
    texts = map(_paragraphs, prompts)
    requests = [_Request(*request) for request in zip(texts, ids, owner_of_prompt, strict=True)]
    return _responses(lm, requests, on_device, sampling, n=n, greedy=greedy)


@in_own_state
def continue_tokens(
    lm: LanguageModel,
    contexts: Sequence[Ids],
    edits: Sequence[Edit] | None,
    owners: Sequence[int] | None,
    sampling: Sampling,
) -> list[Ids]:
    """What the model writes after each context of token ids, as ``sample_tokens`` writes after prompts.

    A context holds its special tokens and goes through no chat template; for an edit it is the prompt
    (``scoring.answers.with_prefixes``).
    """
    owner_of_context = resolve_owners(len(contexts), edits, owners)
    on_device = [edit.to(lm.device) for edit in edits or ()]
    prefixed = with_prefixes(lm, contexts, on_device, owner_of_context)
    requests = []
    for context, owner, (_, ids) in zip(contexts, owner_of_context, prefixed, strict=True):
        text = lm.tokenizer.decode(context, skip_special_tokens=True)
        check_length(lm, text, len(ids) + sampling.max_new_tokens)
        requests.append(_Request(text, ids, owner))
    responses = _responses(lm, requests, on_device, sampling, n=1, greedy=False)
    return [response for (response,) in responses]


class _Request(NamedTuple):
    """A prompt to be answered."""

    text: str  # without what its edit puts before it
    ids: Ids  # as the model gets it
    owner: int


def _responses(
    lm: LanguageModel,
    requests: Sequence[_Request],
    edits: Sequence[Edit],
    sampling: Sampling,
    *,
    n: int,
    greedy: bool,
) -> list[list[Ids]]:
    """``n`` responses to each request."""
    ids = [request.ids for request in requests]
    owners = [request.owner for request in requests]
    beforehand = decided_beforehand(lm, edits, owners, ids)
    responses: list[list[Ids]] = [[] for _ in requests]

    def draw(indices: Sequence[int]) -> None:
        # Seeded by the bare prompt, so that draws under different edits are paired.
        draws = [
            draw
            for index in indices
            for draw in _random_numbers(requests[index].text, sampling, n, greedy)
        ]
        decisions = {} if beforehand is None else beforehand
        batch = _PromptBatch(indices, ids, edits, owners, decisions)
        generated = _generated(lm, batch, np.stack(draws), sampling)
        for number, index in enumerate(indices):
            responses[index] = generated[number * n : (number + 1) * n]

    # Prompts of like length together: little padding.
    longest_first = sorted(range(len(requests)), key=lambda i: (-len(ids[i]), i))
    prompts_at_a_time = max(1, ROWS // n)
    for first in range(0, len(longest_first), prompts_at_a_time):
        run_halving(longest_first[first : first + prompts_at_a_time], draw)
    return responses


def _random_numbers(text: str, sampling: Sampling, n: int, greedy: bool) -> list[np.ndarray]:
    """A number in [0, 1) for every token of each of ``n`` samples; NaN throughout for a greedy one."""
    samples = [
        np.random.default_rng([sampling.seed, sample, zlib.crc32(text.encode())])
        for sample in range(n)
    ]
    numbers = [generator.random(sampling.max_new_tokens) for generator in samples]
    if greedy:
        numbers[0] = np.full(sampling.max_new_tokens, np.nan)
    return numbers


def uses_chat(lm: LanguageModel, sampling: Sampling) -> bool:
    """Whether prompts go through the chat template."""
    available = bool(getattr(lm.tokenizer, "chat_template", None))
    return available if sampling.chat is None else sampling.chat


def _request_ids(
    lm: LanguageModel,
    prompts: Sequence[Prompt],
    edits: Sequence[Edit],
    owners: Sequence[int],
    sampling: Sampling,
) -> list[Ids]:
    """The prompts' token ids, in the chat template where there is one, after what their edits put there."""
    in_chat = uses_chat(lm, sampling)
    # An edit is asked about a chat's last message.
    messages = [_last_message(prompt) if in_chat else _paragraphs(prompt) for prompt in prompts]
    prefixes = prefixes_of(lm, edits, owners, messages)
    if in_chat:  # the template writes its own special tokens
        texts = [
            chat_text(lm, _with_prefix(prompt, prefix))
            for prompt, prefix in zip(prompts, prefixes, strict=True)
        ]
        ids = [tuple(lm.tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
    else:
        texts = with_prefix_texts(lm, prefixes, messages)
        ids_of_text = ids_of_prompts(lm, texts)
        ids = [ids_of_text[text] for text in texts]
    for prompt, prefix, ids_of_prompt in zip(prompts, prefixes, ids, strict=True):
        length = len(ids_of_prompt) + sampling.max_new_tokens
        check_length(lm, prefix + _paragraphs(prompt), length)
    return ids


def _last_message(prompt: Prompt) -> str:
    return prompt if isinstance(prompt, str) else prompt[-1]["content"]


def _with_prefix(prompt: Prompt, prefix: str) -> Prompt:
    """The prompt with a text before its last message."""
    if isinstance(prompt, str):
        return prefix + prompt
    *earlier, last = prompt
    return [*earlier, {**last, "content": prefix + last["content"]}]


def _paragraphs(prompt: Prompt) -> str:
    """A chat as a text: a paragraph for each turn, a reply in the paragraph of its message."""
    if isinstance(prompt, str):
        return prompt
    ends = {"system": "\n\n", "user": "\n", "assistant": "\n\n"}
    return "".join(turn["content"] + ends[turn["role"]] for turn in prompt).rstrip()


@dataclass(frozen=True)
class _PromptBatch:
    """Some of all prompts, with what holds for them all."""

    numbers: Sequence[int]  # of the batch's prompts
    ids: Sequence[Ids]  # of every prompt, as are the owners
    edits: Sequence[Edit]
    owners: Sequence[int]
    decisions: GateDecisions


@torch.inference_mode()
def _generated(
    lm: LanguageModel, prompts: _PromptBatch, draws: np.ndarray, sampling: Sampling
) -> list[Ids]:
    """All responses, sample by sample within each prompt; ``draws`` are [prompts * n, tokens]."""
    batch = _GrowingTexts.after_prompts(lm, prompts, copies=len(draws) // len(prompts.numbers))
    responses: list[list[int]] = [[] for _ in draws]
    unfinished = np.arange(len(draws))  # of the responses, those that are still in the batch
    for step in range(sampling.max_new_tokens):
        next_tokens = _next_tokens(
            lm, batch.last_hidden, draws[unfinished, step], sampling.temperature
        )
        goes_on = [
            _append(lm, responses[index], token, sampling)
            for index, token in zip(unfinished, next_tokens.tolist(), strict=True)
        ]
        if not any(goes_on) or step + 1 == sampling.max_new_tokens:
            break
        if not all(goes_on):
            kept_rows = torch.tensor(goes_on).nonzero()[:, 0]
            unfinished = unfinished[goes_on]
            next_tokens = next_tokens[kept_rows.to(next_tokens.device)]
            batch.keep(kept_rows)
        batch.extend(next_tokens, step)
    return [tuple(response) for response in responses]


def _append(lm: LanguageModel, response: list[int], token: int, sampling: Sampling) -> bool:
    """Add a token to a response unless the token ends it; whether the response continues."""
    if token in lm.end_tokens:
        return False
    response.append(token)
    if not sampling.stop:
        return True
    text = lm.tokenizer.decode(response, skip_special_tokens=True).lstrip()
    return not re.search(sampling.stop, text)


@dataclass
class _GrowingTexts:
    """A batch of texts that grow by one token at a time, each row under its owner's edit."""

    lm: LanguageModel
    prompts: _PromptBatch
    prompt_of_row: Tensor  # [rows], its number among all prompts
    cache: DynamicCache
    prompt_lengths: Tensor  # [rows], tokens
    visible: Tensor  # [rows, keys], boolean; false for the prompts' padding
    key_positions: Tensor  # [rows, keys]
    last_hidden: Tensor  # [rows, hidden], at each text's last token

    @classmethod
    def after_prompts(cls, lm: LanguageModel, prompts: _PromptBatch, copies: int) -> _GrowingTexts:
        """The prompts, each run once and then repeated."""
        texts = padded(lm, [prompts.ids[number] for number in prompts.numbers])
        owners = [prompts.owners[number] for number in prompts.numbers]
        prompt_tokens = PromptTokens.of_rows(texts.real, prompts.numbers, len(prompts.ids))
        cache = DynamicCache()
        with under(lm, prompts.edits, owners, prompt_tokens, prompts.decisions):
            hidden = hidden_states(lm, texts.ids, texts.positions, texts.visible, cache)
        cache.batch_repeat_interleave(copies)
        visible = texts.real.repeat_interleave(copies, 0)
        return cls(
            lm=lm,
            prompts=prompts,
            prompt_of_row=torch.tensor(prompts.numbers).repeat_interleave(copies),
            cache=cache,
            prompt_lengths=visible.sum(1),
            visible=visible,
            key_positions=texts.positions.repeat_interleave(copies, 0),
            last_hidden=texts.last(hidden).repeat_interleave(copies, 0),
        )

    def extend(self, tokens: Tensor, step: int) -> None:
        """Append one token [rows] to each text, the one after ``step`` others."""
        positions = (self.prompt_lengths + step)[:, None]  # [rows, 1]
        self.visible = torch.cat([self.visible, torch.ones_like(self.visible[:, :1])], dim=1)
        mask = Mask.of(self.lm, positions, self.visible[:, None], self.key_positions)
        self.key_positions = torch.cat([self.key_positions, positions], dim=1)
        owners = [self.prompts.owners[number] for number in self.prompt_of_row.tolist()]
        following = PromptTokens(
            prompt=self.prompt_of_row[:, None].to(tokens.device),
            is_last=torch.zeros_like(tokens[:, None], dtype=torch.bool),
            is_before=torch.zeros_like(tokens[:, None], dtype=torch.bool),
            count=len(self.prompts.ids),
        )
        with under(self.lm, self.prompts.edits, owners, following, self.prompts.decisions):
            hidden = hidden_states(self.lm, tokens[:, None], positions, mask, self.cache)
        self.last_hidden = hidden[:, -1]

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these."""
        self.prompt_of_row = self.prompt_of_row[rows]
        rows = rows.to(self.visible.device)
        self.cache.batch_select_indices(rows)
        self.prompt_lengths = self.prompt_lengths[rows]
        self.visible = self.visible[rows]
        self.key_positions = self.key_positions[rows]


def _next_tokens(
    lm: LanguageModel, hidden: Tensor, draws: np.ndarray, temperature: float
) -> Tensor:
    """The next token of each row: where its number is in the cumulative distribution; NaN: likeliest."""
    logits = lm.logits(hidden).float()  # [rows, vocabulary]
    if temperature == 0:
        return logits.argmax(-1)
    cumulative = (logits / temperature).softmax(-1).double().cumsum(-1)
    level = torch.from_numpy(draws).to(cumulative.device)[:, None] * cumulative[:, -1:]
    last_token = logits.shape[-1] - 1
    sampled = torch.searchsorted(cumulative, level, right=True)[:, 0].clamp_max(last_token)
    return torch.where(level[:, 0].isnan(), logits.argmax(-1), sampled)
