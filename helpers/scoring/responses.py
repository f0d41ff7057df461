"""Sampled responses, many prompts and edits per forward pass, with cached keys and values.

Each prompt is read once and its cache shared by its ``n`` samples; finished responses leave the batch.
Every sample has its own stream of random numbers that depends on seed, prompt and sample alone, so
batching does not matter, and differences before and after an edit come from the edit.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from helpers.editing.overlay import overlay
from helpers.editing.update import Update
from helpers.models.batching import run_halving
from helpers.models.forest import padded
from helpers.models.forward import Mask, prefill, run_base
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import Ids, Prompt, TokenError, chat_text, prompt_ids, several
from helpers.scoring.answers import owned

ROWS = 80  # responses generated at the same time


@dataclass(frozen=True)
class Sampling:
    """How responses are drawn.

    ``temperature`` 0 takes the most probable token. A response ends at the end-of-text token, at
    ``stop`` (once it has visible text; the stop itself is cut off), or after ``max_new_tokens``.
    ``chat`` asks through the model's chat template; None does so where it has one.
    """

    temperature: float = 0.7
    max_new_tokens: int = 32
    stop: str | None = None
    chat: bool | None = None
    seed: int = 0

    version: ClassVar[int] = 1  # raise it when the same prompts and seed get other responses

    def __post_init__(self) -> None:
        if self.temperature < 0 or self.max_new_tokens < 1:
            raise ValueError("temperature must not be negative, max_new_tokens at least 1")
        if self.stop == "":
            raise ValueError("an empty stop would end every response at once; use None")


def sample_responses(
    language_model: LanguageModel,
    prompts: Sequence[Prompt],
    updates: Sequence[Update] | None = None,
    owners: Sequence[int] | None = None,
    *,
    n: int = 5,
    sampling: Sampling | None = None,
    progress: bool = False,
) -> list[list[str]]:
    """Draw ``n`` responses to every prompt, under ``updates`` if any; no weight is touched.

    Args:
        prompts: a text each, or the turns of a chat (``role``: system, user, assistant; ``content``).
            A model asked without a chat template reads the turns as paragraphs.
        owners: for each prompt the index of its update, -1 for the unedited model; needed with updates.

    Returns:
        For each prompt its ``n`` responses, up to ``stop`` and stripped of white space.

    Raises:
        ValueError: wrong owners, ``n`` below 1, or ``chat=True`` for a model without a chat template.
        TokenError: an empty prompt, one that ends with a blank, or one too long for the context.
    """
    sampling = sampling or Sampling()
    asked = (language_model, prompts, updates, owners, sampling)
    drawn = sample_tokens(*asked, n=n, progress=progress)
    return [[response_text(language_model, ids, sampling) for ids in group] for group in drawn]


def response_text(language_model: LanguageModel, ids: Sequence[int], sampling: Sampling) -> str:
    """A response's tokens as text, up to ``stop`` and stripped of white space."""
    text = _decoded(language_model, ids)
    return (text if sampling.stop is None else text.split(sampling.stop)[0]).strip()


def sample_tokens(
    language_model: LanguageModel,
    prompts: Sequence[Prompt],
    updates: Sequence[Update] | None,
    owners: Sequence[int] | None,
    sampling: Sampling,
    *,
    n: int = 1,
    progress: bool = False,
) -> list[list[Ids]]:
    """``sample_responses`` as token ids, as the model chose them (the stop's own among them)."""
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}")
    prompts = several(prompts)
    moved, owner_of = owned(language_model, len(prompts), updates, owners)
    ids = [_request_ids(language_model, prompt, sampling) for prompt in prompts]
    responses: list[list[Ids]] = [[] for _ in prompts]

    def uniforms(index: int, sample: int) -> np.ndarray:
        """One number per token to come."""
        text = zlib.crc32(_paragraphs(prompts[index]).encode())
        return np.random.default_rng([sampling.seed, sample, text]).random(sampling.max_new_tokens)

    def draw(batch: Sequence[int]) -> None:
        draws = np.stack([uniforms(i, k) for i in batch for k in range(n)])
        asked, own = [ids[i] for i in batch], [owner_of[i] for i in batch]
        drawn = _generated(language_model, asked, draws, moved, own, sampling)
        for place, index in enumerate(batch):
            responses[index] = drawn[place * n : (place + 1) * n]

    bar = tqdm(total=len(prompts) * n, unit="response", desc="sampling", disable=not progress)
    order = sorted(range(len(prompts)), key=lambda i: (-len(ids[i]), i))  # little padding
    together = max(1, ROWS // n)
    for start in range(0, len(order), together):
        batch = order[start : start + together]
        run_halving(batch, draw)
        bar.update(len(batch) * n)
    bar.close()
    return responses


def uses_chat(language_model: LanguageModel, sampling: Sampling) -> bool:
    """Whether prompts go through the chat template."""
    available = bool(getattr(language_model.tokenizer, "chat_template", None))
    return available if sampling.chat is None else sampling.chat


def _request_ids(language_model: LanguageModel, prompt: Prompt, sampling: Sampling) -> Ids:
    if uses_chat(language_model, sampling):
        text = chat_text(language_model, prompt)
        # The template writes its own special tokens.
        ids = tuple(language_model.tokenizer(text, add_special_tokens=False)["input_ids"])
    else:
        ids = prompt_ids(language_model, _paragraphs(prompt))
    limit, new = language_model.context_length, sampling.max_new_tokens
    if len(ids) + new > limit:
        raise TokenError(
            f"prompt {_paragraphs(prompt)[:60]!r} of {len(ids)} tokens and {new} new ones exceed the"
            f" context of {limit}; shorten it, or lower max_new_tokens"
        )
    return ids


def _paragraphs(prompt: Prompt) -> str:
    """A chat as a text: a paragraph for each turn, a reply in the paragraph of its message."""
    if isinstance(prompt, str):
        return prompt
    ends = {"system": "\n\n", "user": "\n", "assistant": "\n\n"}
    return "".join(turn["content"] + ends[turn["role"]] for turn in prompt).rstrip()


def _decoded(language_model: LanguageModel, ids: Sequence[int]) -> str:
    return str(language_model.tokenizer.decode(ids, skip_special_tokens=True)).lstrip()


@torch.inference_mode()
def _generated(
    language_model: LanguageModel,
    ids: Sequence[Ids],
    draws: np.ndarray,
    updates: Sequence[Update],
    owners: Sequence[int],
    sampling: Sampling,
) -> list[Ids]:
    """All responses, sample by sample within each prompt; ``draws`` are [prompts * n, tokens]."""
    configured = getattr(language_model.model.generation_config, "eos_token_id", None)
    listed = configured if isinstance(configured, list) else [configured]
    ends = {language_model.tokenizer.eos_token_id, *listed}

    def continues(response: list[int], token: int) -> bool:
        if token in ends:
            return False
        response.append(token)
        return sampling.stop is None or sampling.stop not in _decoded(language_model, response)

    batch = padded(language_model, ids)
    with overlay(language_model, updates, owners):
        hidden, past = prefill(language_model, batch.ids, batch.positions, batch.visible)
    copies = len(draws) // len(ids)
    shared = torch.arange(len(ids), device=hidden.device).repeat_interleave(copies)
    hidden, past, visible = batch.last(hidden)[shared], past.rows(shared), batch.real[shared]
    cache, key_positions = past.cache(), past.positions
    del past  # the cache holds copies
    lengths, owner_of = visible.sum(1), torch.tensor(owners).repeat_interleave(copies)
    tokens: list[list[int]] = [[] for _ in draws]
    alive = np.arange(len(draws))
    for step in range(sampling.max_new_tokens):
        chosen = _chosen(language_model, hidden, draws[alive, step], sampling.temperature)
        drawn = zip(alive, chosen.tolist(), strict=True)  # one host transfer
        going = [continues(tokens[row], token) for row, token in drawn]
        if not any(going) or step + 1 == sampling.max_new_tokens:
            break
        if not all(going):
            keep = torch.tensor(going).nonzero()[:, 0]
            alive, owner_of, keep = alive[going], owner_of[keep], keep.to(hidden.device)
            cache.batch_select_indices(keep)
            left = (chosen, lengths, visible, key_positions)
            chosen, lengths, visible, key_positions = (each[keep] for each in left)
        positions = (lengths + step)[:, None]
        visible = torch.cat([visible, torch.ones_like(visible[:, :1])], dim=1)
        mask = Mask.of(language_model, positions, visible[:, None], key_positions)
        key_positions = torch.cat([key_positions, positions], dim=1)
        with overlay(language_model, updates, owner_of):
            hidden = run_base(language_model, chosen[:, None], positions, mask, cache)[:, -1]
    return [tuple(row) for row in tokens]


def _chosen(
    language_model: LanguageModel, hidden: Tensor, draws: np.ndarray, temperature: float
) -> Tensor:
    """The next token of each row: where the cumulative distribution passes the row's number."""
    logits = language_model.model.get_output_embeddings()(hidden).float()
    if temperature == 0:
        return logits.argmax(-1)
    cumulative = (logits / temperature).softmax(-1).double().cumsum(-1)
    level = torch.from_numpy(draws).to(cumulative.device)[:, None] * cumulative[:, -1:]
    found = torch.searchsorted(cumulative, level, right=True)[:, 0]
    return found.clamp_max(logits.shape[-1] - 1)
