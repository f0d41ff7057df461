"""Forward passes that end at the answer slot, and rows that branch off on the way.

Two savings, both exact: in a causal model the tokens left of what a method changes are constant and
run once, and a row that differs only from block l on is appended at block l (``branching``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from helpers.locating.query import Query
from helpers.models import LanguageModel
from helpers.models.forest import PackedRows, padded
from helpers.models.forward import Past, evaluated, hidden_states, prefill
from helpers.models.hooks import input_hooks, output_hooks
from helpers.models.state import in_own_state


@dataclass(frozen=True)
class SlotBatch(PackedRows):
    """Rows whose logits at the answer slot are wanted; visible [rows, tokens, past + tokens]."""

    slots: Tensor  # index of each row's slot among its tokens [rows]
    past: Past | None = None  # of the constant tokens before them

    def at_slots(self, tokens: Tensor) -> Tensor:
        """Values [rows, …] of ``tokens`` [rows, tokens, …] at the slots."""
        return tokens[torch.arange(len(self.slots), device=tokens.device), self.slots]


def slot_batch(
    lm: LanguageModel, queries: Sequence[Query], starts: Sequence[int] | None = None
) -> SlotBatch:
    """Batch queries; the tokens before ``starts`` are constant and run once, without gradients."""
    if starts is None or lm.masked:  # which has no constant tokens
        starts = [0] * len(queries)
    pairs = list(zip(queries, starts, strict=True))
    batch = padded(lm, [query.ids[start:] for query, start in pairs])
    width, device = batch.ids.shape[1], batch.ids.device
    everything = batch.real[:, None, :].expand(-1, width, -1)
    own = everything if lm.masked else batch.visible
    slots = torch.tensor([query.slot - start for query, start in pairs], device=device)
    positions = batch.positions + torch.tensor(list(starts), device=device)[:, None]
    if not any(starts):
        return SlotBatch(batch.ids, positions, own, slots)
    constant = padded(lm, [query.ids[:start] for query, start in pairs])
    with torch.no_grad():
        _, past = prefill(lm, constant.ids, constant.positions, constant.visible)
    seen = constant.real[:, None, :].expand(-1, width, -1)
    return SlotBatch(batch.ids, positions, torch.cat([seen, own], dim=2), slots, past)


def slot_logits(lm: LanguageModel, batch: SlotBatch, slots: Tensor | None = None) -> Tensor:
    """Next-token logits at the slots, or at others where rows branched off: fp32 [rows, vocabulary]."""
    texts = batch.ids, batch.positions
    if lm.masked:
        names = dict(zip(("input_ids", "position_ids"), texts, strict=True))
        mask = batch.visible[:, 0].long()
        with evaluated(lm):
            hidden = lm.network.base_model(**names, attention_mask=mask).last_hidden_state
    else:
        hidden = hidden_states(lm, *texts, batch.visible, batch.past)
    slots = batch.slots if slots is None else slots
    chosen = hidden[torch.arange(len(slots), device=hidden.device), slots]
    return lm.module(lm.layout.architecture.head)(chosen).float()


@in_own_state
@torch.inference_mode()
def own_answers(lm: LanguageModel, queries: Sequence[Query]) -> list[Query]:
    """The same queries, those without a target given the model's most probable next token."""
    done = list(queries)
    missing = [i for i, query in enumerate(done) if query.target is None]
    for start in range(0, len(missing), 32):
        chosen = missing[start : start + 32]
        batch = slot_batch(lm, [done[i] for i in chosen])
        best = slot_logits(lm, batch).argmax(-1).tolist()
        for i, token in zip(chosen, best, strict=True):
            done[i] = replace(done[i], target=token)
    return done


def greedy_tokens(
    lm: LanguageModel, prompts: Sequence[Sequence[int]], count: int
) -> list[tuple[int, ...]]:
    """The ``count`` most probable tokens after each prompt; for few, as whole texts run again."""
    texts = [tuple(prompt) for prompt in prompts]
    for _ in range(count):
        queries = [Query("", ids, len(ids) - 1, None, None) for ids in texts]
        answered = own_answers(lm, queries)
        texts = [(*query.ids, query.required_target) for query in answered]
    return [text[len(prompt) :] for text, prompt in zip(texts, prompts, strict=True)]


@contextmanager
def branching(
    lm: LanguageModel, batch: SlotBatch, *, layers: Sequence[int], copies: int
) -> Iterator[SlotBatch]:
    """Let each block in ``layers`` append ``copies`` times the batch's rows before it runs.

    All rows must share one mask and one set of positions (one sentence, repeated).
    """
    rows, grows = len(batch.ids), set(layers)

    def grow(hidden: Tensor) -> Tensor:
        return torch.cat([hidden, hidden[:rows].repeat(copies, 1, 1)])

    def repeated(cached: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(
            one[:1].expand(rows * (1 + copies * sum(i <= layer for i in grows)), *one.shape[1:])
            for layer, one in enumerate(cached)
        )

    past = batch.past
    if past is not None:
        past = Past(repeated(past.keys), repeated(past.values), past.positions[:1])
    with input_hooks(lm, {lm.layout.block(i): grow for i in grows}):
        # One row of positions and mask is broadcast over however many rows there are.
        yield replace(batch, positions=batch.positions[:1], visible=batch.visible[:1], past=past)


@contextmanager
def traced(lm: LanguageModel, names: Sequence[str]) -> Iterator[dict[str, tuple[Tensor, Tensor]]]:
    """Collect inputs and outputs of named modules with their graph, which starts at the embeddings."""
    seen: dict[str, tuple[Tensor, Tensor]] = {}

    def keep(name: str, entering: Tensor, output: Tensor) -> None:
        seen[name] = entering, output

    hooks = {name: partial(keep, name) for name in names}
    embedding = lm.layout.architecture.embedding
    start = {embedding: lambda _, output: output.detach().requires_grad_()}
    with output_hooks(lm, {**start, **hooks}), torch.enable_grad():
        yield seen
