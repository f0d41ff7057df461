"""Sampled responses, many prompts and edits per forward pass; finished ones leave the batch.

A sample's random numbers depend on seed, prompt and sample alone, whatever the batch and the edit.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from helpers.editing.update import Update, overlay
from helpers.models import LanguageModel
from helpers.models.batching import run_halving
from helpers.models.forest import padded
from helpers.models.forward import Mask, hidden_states
from helpers.models.state import in_own_state
from helpers.models.tokens import Ids, Prompt, chat_text, check_length, prompt_ids, several
from helpers.scoring.answers import owned

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
    model: LanguageModel,
    prompts: Sequence[Prompt],
    updates: Sequence[Update] | None = None,
    owners: Sequence[int] | None = None,
    *,
    n: int = 5,
    greedy: bool = False,
    sampling: Sampling | None = None,
) -> list[list[str]]:
    """Draw ``n`` responses to every prompt, under ``updates`` if any (see ``score_answers``).

    ``greedy``: the first of them has the most probable tokens. A prompt is a text or the turns of a
    chat (``role``: system, user, assistant; ``content``): paragraphs for a model asked without template.
    """
    sampling = sampling or Sampling()
    drawn = sample_tokens(model, prompts, updates, owners, sampling, n=n, greedy=greedy)
    return [[response_text(model, ids, sampling) for ids in group] for group in drawn]


def response_text(model: LanguageModel, ids: Sequence[int], sampling: Sampling) -> str:
    """A response's tokens as text, up to ``stop`` and stripped of white space."""
    text = str(model.tokenizer.decode(ids, skip_special_tokens=True)).lstrip()
    return (re.split(sampling.stop, text, maxsplit=1)[0] if sampling.stop else text).strip()


@in_own_state
def sample_tokens(
    model: LanguageModel,
    prompts: Sequence[Prompt],
    updates: Sequence[Update] | None,
    owners: Sequence[int] | None,
    sampling: Sampling,
    *,
    n: int = 1,
    greedy: bool = False,
) -> list[list[Ids]]:
    """``sample_responses`` as token ids, as the model chose them (the stop's own among them)."""
    prompts = several(prompts)
    moved, owner_of = owned(model, len(prompts), updates, owners)
    ids = [_request_ids(model, prompt, sampling) for prompt in prompts]
    responses: list[list[Ids]] = [[] for _ in prompts]

    def draw(batch: Sequence[int]) -> None:
        texts = [zlib.crc32(_paragraphs(prompts[i]).encode()) for i in batch]
        seeds = ([sampling.seed, sample, text] for text in texts for sample in range(n))
        draws = [np.random.default_rng(seed).random(sampling.max_new_tokens) for seed in seeds]
        if greedy:
            draws[::n] = [np.full(sampling.max_new_tokens, np.nan)] * len(batch)
        asked, own = [ids[i] for i in batch], [owner_of[i] for i in batch]
        drawn = _generated(model, asked, np.stack(draws), moved, own, sampling)
        for place, index in enumerate(batch):
            responses[index] = drawn[place * n : (place + 1) * n]

    order = sorted(range(len(prompts)), key=lambda i: (-len(ids[i]), i))  # little padding
    together = max(1, ROWS // n)
    for start in range(0, len(order), together):
        run_halving(order[start : start + together], draw)
    return responses


def uses_chat(model: LanguageModel, sampling: Sampling) -> bool:
    """Whether prompts go through the chat template."""
    available = bool(getattr(model.tokenizer, "chat_template", None))
    return available if sampling.chat is None else sampling.chat


def _request_ids(model: LanguageModel, prompt: Prompt, sampling: Sampling) -> Ids:
    if uses_chat(model, sampling):  # the template writes its own special tokens
        text = chat_text(model, prompt)
        ids = tuple(model.tokenizer(text, add_special_tokens=False)["input_ids"])
    else:
        ids = prompt_ids(model, _paragraphs(prompt))
    check_length(model, _paragraphs(prompt), len(ids) + sampling.max_new_tokens)
    return ids


def _paragraphs(prompt: Prompt) -> str:
    """A chat as a text: a paragraph for each turn, a reply in the paragraph of its message."""
    if isinstance(prompt, str):
        return prompt
    ends = {"system": "\n\n", "user": "\n", "assistant": "\n\n"}
    return "".join(turn["content"] + ends[turn["role"]] for turn in prompt).rstrip()


@torch.inference_mode()
def _generated(
    model: LanguageModel,
    ids: Sequence[Ids],
    draws: np.ndarray,
    updates: Sequence[Update],
    owners: Sequence[int],
    sampling: Sampling,
) -> list[Ids]:
    """All responses, sample by sample within each prompt; ``draws`` are [prompts * n, tokens]."""
    ends = model.end_tokens

    def continues(response: list[int], token: int) -> bool:
        if token in ends:
            return False
        response.append(token)
        text = model.tokenizer.decode(response, skip_special_tokens=True).lstrip()
        return not (sampling.stop and re.search(sampling.stop, text))

    batch, cache, copies = padded(model, ids), DynamicCache(), len(draws) // len(ids)
    with overlay(model, updates, owners):
        hidden = hidden_states(model, batch.ids, batch.positions, batch.visible, cache)
    cache.batch_repeat_interleave(copies)
    read = batch.last(hidden), batch.real, batch.positions
    hidden, visible, keys_at = (each.repeat_interleave(copies, 0) for each in read)
    lengths, owner_of = visible.sum(1), torch.tensor(owners).repeat_interleave(copies)
    tokens: list[list[int]] = [[] for _ in draws]
    alive = np.arange(len(draws))
    for step in range(sampling.max_new_tokens):
        chosen = _chosen(model, hidden, draws[alive, step], sampling.temperature)
        drawn = zip(alive, chosen.tolist(), strict=True)  # one host transfer
        going = [continues(tokens[row], token) for row, token in drawn]
        if not any(going) or step + 1 == sampling.max_new_tokens:
            break
        if not all(going):
            keep = torch.tensor(going).nonzero()[:, 0]
            alive, owner_of, keep = alive[going], owner_of[keep], keep.to(hidden.device)
            cache.batch_select_indices(keep)
            left = (chosen, lengths, visible, keys_at)
            chosen, lengths, visible, keys_at = (each[keep] for each in left)
        positions = (lengths + step)[:, None]
        visible = torch.cat([visible, torch.ones_like(visible[:, :1])], dim=1)
        mask = Mask.of(model, positions, visible[:, None], keys_at)
        keys_at = torch.cat([keys_at, positions], dim=1)
        with overlay(model, updates, owner_of):
            hidden = hidden_states(model, chosen[:, None], positions, mask, cache)[:, -1]
    return [tuple(row) for row in tokens]


def _chosen(model: LanguageModel, hidden: Tensor, draws: np.ndarray, temperature: float) -> Tensor:
    """The next token of each row: where its number is in the cumulative distribution; NaN: likeliest."""
    logits = model.model.get_output_embeddings()(hidden).float()
    if temperature == 0:
        return logits.argmax(-1)
    cumulative = (logits / temperature).softmax(-1).double().cumsum(-1)
    level = torch.from_numpy(draws).to(cumulative.device)[:, None] * cumulative[:, -1:]
    drawn = torch.searchsorted(cumulative, level, right=True)[:, 0].clamp_max(logits.shape[-1] - 1)
    return torch.where(level[:, 0].isnan(), logits.argmax(-1), drawn)
