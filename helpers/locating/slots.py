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

    def columns(self, positions: Sequence[int]) -> Tensor:
        """Where a token of each row is among the row's tokens here, by its index in the sentence [rows]."""
        starts = self.positions[:, 0]
        return torch.tensor(list(positions), device=starts.device) - starts


def at_columns(tokens: Tensor, columns: Tensor) -> Tensor:
    """Values [rows, …] of ``tokens`` [rows, tokens, …] at one column of each row."""
    return tokens[torch.arange(len(columns), device=tokens.device), columns]


def slot_batch(
    lm: LanguageModel, queries: Sequence[Query], starts: Sequence[int] | None = None
) -> SlotBatch:
    """Batch queries; the tokens before ``starts`` are constant and run once, without gradients."""
    if starts is None or lm.masked:  # which has no constant tokens
        starts = [0] * len(queries)
    queries_and_starts = list(zip(queries, starts, strict=True))
    later_tokens = padded(lm, [query.ids[start:] for query, start in queries_and_starts])
    width = later_tokens.ids.shape[1]
    device = later_tokens.ids.device
    visible = later_tokens.visible  # [rows, width, width]
    if lm.masked:
        visible = later_tokens.real[:, None, :].expand(-1, width, -1)
    slot_columns = torch.tensor(
        [query.slot - start for query, start in queries_and_starts], device=device
    )
    positions = later_tokens.positions + torch.tensor(list(starts), device=device)[:, None]
    if not any(starts):
        return SlotBatch(later_tokens.ids, positions, visible, slot_columns)
    constant_tokens = padded(lm, [query.ids[:start] for query, start in queries_and_starts])
    with torch.no_grad():
        _, past = prefill(
            lm, constant_tokens.ids, constant_tokens.positions, constant_tokens.visible
        )
    past_visible = constant_tokens.real[:, None, :].expand(-1, width, -1)
    visible = torch.cat([past_visible, visible], dim=2)  # [rows, width, past + width]
    return SlotBatch(later_tokens.ids, positions, visible, slot_columns, past)


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
    return lm.logits(hidden_at_slots).float()


@in_own_state
@torch.inference_mode()
def own_answers(lm: LanguageModel, queries: Sequence[Query]) -> list[Query]:
    """The queries; one without a target gets the model's most probable token as its target."""
    answered_queries = list(queries)
    unanswered_indices = [index for index, query in enumerate(queries) if query.target is None]
    for start in range(0, len(unanswered_indices), AT_A_TIME):
        batch_indices = unanswered_indices[start : start + AT_A_TIME]
        batch = slot_batch(lm, [queries[index] for index in batch_indices])
        tokens = slot_logits(lm, batch).argmax(-1).tolist()
        for index, token in zip(batch_indices, tokens, strict=True):
            answered_queries[index] = replace(queries[index], target=token)
    return answered_queries


def greedy_tokens(
    lm: LanguageModel, prompts: Sequence[Sequence[int]], count: int
) -> list[tuple[int, ...]]:
    """The ``count`` most probable tokens after each prompt; for few, as whole texts run again."""
    text_ids = [tuple(prompt) for prompt in prompts]
    for _ in range(count):
        queries = [Query("", ids, len(ids) - 1, None, None) for ids in text_ids]
        answered_queries = own_answers(lm, queries)
        text_ids = [(*query.ids, query.required_target) for query in answered_queries]
    return [
        ids_of_text[len(prompt) :] for ids_of_text, prompt in zip(text_ids, prompts, strict=True)
    ]


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

    def past_of_branched_rows(cached: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The sentence's keys or values, in each layer for the rows that have branched off by then."""
        expanded = []
        for layer, tensor in enumerate(cached):  # tensor [rows, heads, tokens, size]
            branched_count = sum(branching_layer <= layer for branching_layer in branching_layers)
            rows_in_layer = row_count * (1 + copies * branched_count)
            expanded.append(tensor[:1].expand(rows_in_layer, *tensor.shape[1:]))
        return tuple(expanded)

    past = batch.past
    if past is not None:
        keys = past_of_branched_rows(past.keys)
        values = past_of_branched_rows(past.values)
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
    traced_by_module: dict[str, Traced] = {}

    def collect(module_name: str, module_input: Tensor, output: Tensor) -> None:
        traced_by_module[module_name] = Traced(module_input, output)

    def start_graph(_: Tensor, output: Tensor) -> Tensor:
        return output.detach().requires_grad_()

    hooks_by_module: dict[str, OnOutput] = {lm.layout.architecture.embedding: start_graph}
    for module_name in module_names:
        hooks_by_module[module_name] = partial(collect, module_name)
    with output_hooks(lm, hooks_by_module), torch.enable_grad():
        yield traced_by_module
