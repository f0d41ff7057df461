"""Sampled responses, many prompts and edits per forward pass, with cached keys and values.

Each prompt is read once and its cache shared out to its ``n`` samples; finished responses leave the
batch. Every sample has its own stream of random numbers that depends on seed, prompt and sample alone.
So batching does not matter. One prompt meets the same stream before and after an edit: differences
between the two come from the edit.
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
from transformers import DynamicCache

from helpers.editing.overlay import overlay
from helpers.editing.update import Update, moved_where_used
from helpers.models.batching import padded, run_halving
from helpers.models.forward import Past, additive_mask, prefill
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import Prompt, TokenError, chat_text, end_tokens, prompt_ids, several
from helpers.scoring.answers import checked_owners


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
    rows: int = 80,
    progress: bool = False,
) -> list[list[str]]:
    """Draw ``n`` responses to every prompt.

    Args:
        language_model: the model; its weights are not touched.
        prompts: a text each, or the turns of a chat (``role``: system, user, assistant; ``content``).
            A model asked without a chat template reads the turns as paragraphs.
        owners: for each prompt the index of its update, -1 for the unedited model; needed with updates.
        rows: responses generated at the same time.

    Returns:
        For each prompt its ``n`` responses, up to ``stop`` and stripped of white space.

    Raises: see ``sample_tokens``.
    """
    sampling = sampling or Sampling()
    drawn = sample_tokens(
        language_model,
        prompts,
        updates,
        owners,
        n=n,
        sampling=sampling,
        rows=rows,
        progress=progress,
    )
    return [[response_text(language_model, ids, sampling) for ids in group] for group in drawn]


def response_text(language_model: LanguageModel, ids: Sequence[int], sampling: Sampling) -> str:
    """A response's tokens as text, up to ``stop`` and stripped of white space."""
    text = str(language_model.tokenizer.decode(ids, skip_special_tokens=True)).lstrip()
    return (text if sampling.stop is None else text.split(sampling.stop)[0]).strip()


def sample_tokens(
    language_model: LanguageModel,
    prompts: Sequence[Prompt],
    updates: Sequence[Update] | None = None,
    owners: Sequence[int] | None = None,
    *,
    n: int = 5,
    sampling: Sampling | None = None,
    rows: int = 80,
    progress: bool = False,
) -> list[list[tuple[int, ...]]]:
    """``sample_responses`` as token ids, as the model chose them (the stop's own among them).

    Raises:
        ValueError: wrong owners (see ``checked_owners``), ``n`` below 1, or ``chat=True`` for a
            model without a chat template.
        TokenError: an empty prompt, one that ends with a blank, or one too long for the context.
        TypeError: a single prompt, which would be taken for its letters.
    """
    sampling, prompts = sampling or Sampling(), several(prompts)
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}")
    owner_of = checked_owners(prompts, updates, owners)
    ids = [_request_ids(language_model, prompt, sampling) for prompt in prompts]
    _check_lengths(language_model, prompts, ids, sampling)
    moved = moved_where_used(updates or [], owner_of, language_model.device)
    responses: list[list[tuple[int, ...]]] = [[] for _ in prompts]
    bar = tqdm(total=len(prompts) * n, unit="response", desc="sampling", disable=not progress)
    order = sorted(range(len(prompts)), key=lambda i: (-len(ids[i]), i))  # little padding
    together = max(1, rows // n)

    def draw(batch: Sequence[int]) -> list[list[tuple[int, ...]]]:
        drawn = _Batch(
            language_model,
            [ids[i] for i in batch],
            np.stack([_draws(prompts[i], k, sampling) for i in batch for k in range(n)]),
            [owner_of[i] for i in batch],
            moved,
            sampling,
        ).run()
        return [drawn[start : start + n] for start in range(0, len(drawn), n)]

    for start in range(0, len(order), together):
        batch = order[start : start + together]
        drawn = [each for part in run_halving(batch, draw) for each in part]
        for index, own in zip(batch, drawn, strict=True):
            responses[index] = own
        bar.update(len(batch) * n)
    bar.close()
    return responses


def uses_chat(language_model: LanguageModel, sampling: Sampling) -> bool:
    """Whether prompts go through the chat template."""
    available = bool(getattr(language_model.tokenizer, "chat_template", None))
    if sampling.chat and not available:
        raise ValueError(f"{language_model.name} has no chat template; use chat=None or False")
    return available if sampling.chat is None else sampling.chat


def _request_ids(
    language_model: LanguageModel, prompt: Prompt, sampling: Sampling
) -> tuple[int, ...]:
    if not uses_chat(language_model, sampling):
        return prompt_ids(language_model, _paragraphs(prompt))
    text = chat_text(language_model, prompt)
    # The template writes its own special tokens.
    return tuple(language_model.tokenizer(text, add_special_tokens=False)["input_ids"])


def _paragraphs(prompt: Prompt) -> str:
    """A chat as a text: a paragraph for each turn, a reply in the paragraph of its message."""
    if isinstance(prompt, str):
        return prompt
    ends = {"system": "\n\n", "user": "\n", "assistant": "\n\n"}
    return "".join(turn["content"] + ends[turn["role"]] for turn in prompt).rstrip()


def _check_lengths(
    language_model: LanguageModel,
    prompts: Sequence[Prompt],
    ids: Sequence[tuple[int, ...]],
    sampling: Sampling,
) -> None:
    limit = language_model.context_length
    for prompt, tokens in zip(prompts, ids, strict=True):
        if len(tokens) + sampling.max_new_tokens > limit:
            raise TokenError(
                f"prompt {_paragraphs(prompt)[:60]!r} of {len(tokens)} tokens and"
                f" {sampling.max_new_tokens} new ones exceed the context of {limit}; shorten it,"
                " or lower max_new_tokens"
            )


def _draws(prompt: Prompt, sample: int, sampling: Sampling) -> np.ndarray:
    """One uniform number per token to come, [max_new_tokens]."""
    seed = [sampling.seed, sample, zlib.crc32(_paragraphs(prompt).encode())]
    return np.random.default_rng(seed).random(sampling.max_new_tokens)


@dataclass
class _Batch:
    """Prompts of one batch with the random numbers of their samples, [prompts * n, tokens]."""

    language_model: LanguageModel
    ids: Sequence[tuple[int, ...]]
    draws: np.ndarray
    owners: Sequence[int]
    updates: Sequence[Update]
    sampling: Sampling

    @torch.inference_mode()
    def run(self) -> list[tuple[int, ...]]:
        """All responses, sample by sample within each prompt."""
        copies = len(self.draws) // len(self.ids)
        hidden, past = self._read()
        shared = torch.arange(len(self.ids), device=hidden.device).repeat_interleave(copies)
        hidden, past = hidden[shared], past.rows(shared)
        cache, key_positions = past.cache(), past.positions
        del past  # the cache holds copies
        lengths = torch.tensor([len(i) for i in self.ids], device=hidden.device)[shared]
        visible = key_positions < lengths[:, None]
        owners = torch.tensor(self.owners).repeat_interleave(copies)
        tokens: list[list[int]] = [[] for _ in self.draws]
        alive = np.arange(len(self.draws))
        for step in range(self.sampling.max_new_tokens):
            chosen = self._choose(hidden, self.draws[alive, step])
            drawn = zip(alive, chosen.tolist(), strict=True)  # one host transfer
            going = np.array([self._continues(tokens[row], token) for row, token in drawn])
            if not going.any() or step + 1 == self.sampling.max_new_tokens:
                break
            if not going.all():
                keep = torch.from_numpy(np.flatnonzero(going))
                alive, owners = alive[going], owners[keep]
                cache.batch_select_indices(keep := keep.to(hidden.device))
                left = (chosen, lengths, visible, key_positions)
                chosen, lengths, visible, key_positions = (each[keep] for each in left)
            positions = (lengths + step)[:, None]
            visible = torch.cat([visible, torch.ones_like(visible[:, :1])], dim=1)
            hidden = self._step(chosen, positions, visible, key_positions, cache, owners)
            key_positions = torch.cat([key_positions, positions], dim=1)
        return [tuple(row) for row in tokens]

    def _read(self) -> tuple[Tensor, Past]:
        """Last hidden state [prompts, hidden] and cache of all prompts, padded on the right."""
        batch = padded(self.language_model, self.ids)
        with overlay(self.language_model, self.updates, self.owners):
            hidden, past = prefill(self.language_model, batch.ids, batch.positions, batch.visible)
        return batch.last(hidden), past

    def _step(
        self,
        tokens: Tensor,
        positions: Tensor,
        visible: Tensor,
        key_positions: Tensor,
        cache: DynamicCache,
        owners: Tensor,
    ) -> Tensor:
        """Read one more token per row; its hidden state [rows, hidden]."""
        mask = additive_mask(self.language_model, positions, visible[:, None], key_positions)
        with overlay(self.language_model, self.updates, owners):
            output = self.language_model.model.base_model(
                input_ids=tokens[:, None],
                position_ids=positions,
                attention_mask=mask,
                past_key_values=cache,
                use_cache=True,
            )
        return output.last_hidden_state[:, -1]

    def _choose(self, hidden: Tensor, draws: np.ndarray) -> Tensor:
        """The next token of each row: where the cumulative distribution passes the row's number."""
        logits = self.language_model.model.get_output_embeddings()(hidden).float()
        if self.sampling.temperature == 0:
            return logits.argmax(-1)
        cumulative = (logits / self.sampling.temperature).softmax(-1).double().cumsum(-1)
        level = torch.from_numpy(draws).to(cumulative.device)[:, None] * cumulative[:, -1:]
        last = logits.shape[-1] - 1
        return torch.searchsorted(cumulative, level, right=True)[:, 0].clamp_max(last)

    def _continues(self, tokens: list[int], token: int) -> bool:
        """Append the token unless it ends the response; whether the response goes on."""
        if token in end_tokens(self.language_model):
            return False
        tokens.append(token)
        if (stop := self.sampling.stop) is None:
            return True
        text = self.language_model.tokenizer.decode(tokens, skip_special_tokens=True)
        return stop not in str(text).lstrip()
