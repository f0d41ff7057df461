"""Forward passes that end at the answer slot, and rows that branch off on the way.

Two savings, both exact: in a causal model the tokens left of what a method changes are constant and
run once, and a row that differs only from block l on is appended at block l (``branching``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from helpers.locating.query import Query
from helpers.models import LanguageModel
from helpers.models.forest import PackedRows, padded
from helpers.models.forward import Past, evaluated, hidden_states, prefill
from helpers.models.hooks import OnOutput, input_hooks, output_hooks
from helpers.models.state import in_own_state

AT_A_TIME = 32  # queries that are answered in one pass


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
    width = batch.ids.shape[1]
    device = batch.ids.device
    visible = batch.visible  # [rows, width, width]
    if lm.masked:
        visible = batch.real[:, None, :].expand(-1, width, -1)
    slots = torch.tensor([query.slot - start for query, start in pairs], device=device)
    positions = batch.positions + torch.tensor(list(starts), device=device)[:, None]
    if not any(starts):
        return SlotBatch(batch.ids, positions, visible, slots)
    constant = padded(lm, [query.ids[:start] for query, start in pairs])
    with torch.no_grad():
        _, past = prefill(lm, constant.ids, constant.positions, constant.visible)
    past_visible = constant.real[:, None, :].expand(-1, width, -1)
    visible = torch.cat([past_visible, visible], dim=2)  # [rows, width, past + width]
    return SlotBatch(batch.ids, positions, visible, slots, past)


def slot_logits(lm: LanguageModel, batch: SlotBatch, slots: Tensor | None = None) -> Tensor:
    """Next-token logits at the slots, or at others where rows branched off: fp32 [rows, vocabulary]."""
    if lm.masked:
        with evaluated(lm):
            output = lm.network.base_model(
                input_ids=batch.ids,
                position_ids=batch.positions,
                attention_mask=batch.visible[:, 0].long(),  # all tokens see the same ones
            )
        hidden = output.last_hidden_state
    else:
        hidden = hidden_states(lm, batch.ids, batch.positions, batch.visible, batch.past)
    if slots is None:
        slots = batch.slots
    rows = torch.arange(len(slots), device=hidden.device)
    hidden_at_slots = hidden[rows, slots]  # [rows, hidden]
    return lm.module(lm.layout.architecture.head)(hidden_at_slots).float()


@in_own_state
@torch.inference_mode()
def own_answers(lm: LanguageModel, queries: Sequence[Query]) -> list[Query]:
    """The queries; one without a target gets the model's most probable token as its target."""
    answered = list(queries)
    unanswered = [index for index, query in enumerate(queries) if query.target is None]
    for start in range(0, len(unanswered), AT_A_TIME):
        indices = unanswered[start : start + AT_A_TIME]
        batch = slot_batch(lm, [queries[index] for index in indices])
        tokens = slot_logits(lm, batch).argmax(-1).tolist()
        for index, token in zip(indices, tokens, strict=True):
            answered[index] = replace(queries[index], target=token)
    return answered


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
    row_count = len(batch.ids)
    branching_layers = set(layers)

    def append_copies(hidden: Tensor) -> Tensor:
        return torch.cat([hidden, hidden[:row_count].repeat(copies, 1, 1)])

    def for_rows_of_layers(cached: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The sentence's keys or values, in each layer for the rows that have branched off by then."""
        expanded = []
        for layer, tensor in enumerate(cached):  # tensor [rows, heads, tokens, size]
            branched = sum(branching_layer <= layer for branching_layer in branching_layers)
            rows_in_layer = row_count * (1 + copies * branched)
            expanded.append(tensor[:1].expand(rows_in_layer, *tensor.shape[1:]))
        return tuple(expanded)

    past = batch.past
    if past is not None:
        keys = for_rows_of_layers(past.keys)
        values = for_rows_of_layers(past.values)
        past = Past(keys, values, past.positions[:1])
    with input_hooks(lm, {lm.layout.block(layer): append_copies for layer in branching_layers}):
        # One row of positions and mask is broadcast over however many rows there are.
        yield replace(batch, positions=batch.positions[:1], visible=batch.visible[:1], past=past)


class Traced(NamedTuple):
    """What a module read and wrote in a forward pass, [rows, tokens, …] each, with its graph."""

    input: Tensor
    output: Tensor


@contextmanager
def traced(lm: LanguageModel, module_names: Sequence[str]) -> Iterator[dict[str, Traced]]:
    """Collect inputs and outputs of named modules with their graph, which starts at the embeddings."""
    by_module: dict[str, Traced] = {}

    def collect(name: str, module_input: Tensor, output: Tensor) -> None:
        by_module[name] = Traced(module_input, output)

    def start_graph(_: Tensor, output: Tensor) -> Tensor:
        return output.detach().requires_grad_()

    hooks: dict[str, OnOutput] = {lm.layout.architecture.embedding: start_graph}
    for name in module_names:
        hooks[name] = partial(collect, name)
    with output_hooks(lm, hooks), torch.enable_grad():
        yield by_module
