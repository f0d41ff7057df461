"""Running a model under edits: each row of a batch under its own, and no weight is written.

``under`` holds for forward passes: hooks on the edited modules change the rows of each edit. What an edit
puts before a prompt comes earlier, where prompts become tokens (``prefixes_of``). A gate is decided once for
each prompt, and its decision is kept for every token scored or generated after the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from helpers.editing.edit import Edit
from helpers.editing.interventions import Delta, Gate, Intervention, LowRank
from helpers.editing.weight_edit import WeightEdit
from helpers.models import LanguageModel
from helpers.models.forest import padded
from helpers.models.forward import hidden_states
from helpers.models.hooks import OnOutput, output_hooks
from helpers.models.tokens import ChatFrame, Ids, messages_of

# By module, owner and the gate's number there: the entry for each prompt [prompts], -1 for none.
GateDecisions = dict[tuple[str, int, int], Tensor]


@dataclass(frozen=True)
class PromptTokens:
    """Which prompt each token of a pass [rows, width] belongs to or follows.

    ``prompt`` is its number among all ``count`` prompts; -1 for padding, and where prompts share a row for
    the tokens before their last ones. ``is_last`` is true at the last tokens themselves, ``is_before`` at the
    tokens before them that have a number.
    """

    prompt: Tensor
    is_last: Tensor
    is_before: Tensor
    count: int

    @classmethod
    def of_rows(
        cls, real: Tensor, numbers: Sequence[int] | None = None, count: int = 0
    ) -> PromptTokens:
        """Of rows with a prompt each, where ``real`` [rows, width] is false at padding.

        ``numbers`` [rows] are the prompts', among ``count``; None: each row is a prompt of its own.
        """
        rows, width = real.shape
        columns = torch.arange(width, device=real.device)
        is_last = columns == real.sum(1, keepdim=True) - 1
        if numbers is None:
            numbers, count = range(rows), rows
        number_of_row = torch.tensor(list(numbers), device=real.device)[:, None]
        return cls(torch.where(real, number_of_row, -1), is_last, real & ~is_last, count)


@contextmanager
def under(
    lm: LanguageModel,
    edits: Sequence[Edit],
    owners: Tensor | Sequence[int],
    prompt_tokens: PromptTokens | None = None,
    decisions: GateDecisions | None = None,
) -> Iterator[None]:
    """Run forward passes inside the block with row i under ``edits[owners[i]]``; -1: unedited.

    Args:
        prompt_tokens: where prompts end, which gates must know; None: no gated edit is among them.
        decisions: of gates. A gate that has none here is decided by the pass, and its decision is put here
            for passes over the tokens that follow.

    Raises:
        EditError: an edit that does not fit the model.
    """
    owner_of_row = torch.as_tensor(owners).tolist()
    used = {owner: edits[owner] for owner in sorted(set(owner_of_row)) if owner >= 0}
    for edit in used.values():
        if (
            not edit.is_gated
        ):  # those are checked once a call (``prefixes_of``): by all of the weights
            edit.check(lm)
    by_module: dict[str, dict[int, Sequence[Intervention]]] = {}
    for owner, edit in used.items():
        for module_name, interventions in edit.interventions().items():
            by_module.setdefault(module_name, {})[owner] = interventions

    gates = _Gates(owner_of_row, prompt_tokens, {} if decisions is None else decisions)
    hooks: dict[str, OnOutput] = {}
    for module_name in sorted(by_module):
        deltas: dict[int, Delta] = {}
        gates_of_module: dict[tuple[str, int, int], Gate] = {}
        for owner, interventions in by_module[module_name].items():
            for number, intervention in enumerate(interventions):
                if isinstance(intervention, Gate):
                    gates_of_module[module_name, owner, number] = intervention
                elif isinstance(intervention, Delta):
                    earlier = deltas.get(owner)
                    deltas[owner] = earlier.plus(intervention) if earlier else intervention
        hooks[module_name] = _changing(lm, owner_of_row, deltas, gates, gates_of_module)
    with output_hooks(lm, hooks):
        yield


@contextmanager
def under_all(lm: LanguageModel, edit: WeightEdit) -> Iterator[None]:
    """Run forward passes inside the block with every row under ``edit``; ``under`` comes on top of it."""
    edit.check(lm)

    def adding(delta: Delta) -> OnOutput:
        return lambda x, output: output + delta.contribution(x.to(delta.dtype)).to(output.dtype)

    on_device = edit.to(lm.device)
    with output_hooks(lm, {name: adding(delta) for name, delta in on_device.items()}):
        yield


def _changing(
    lm: LanguageModel,
    owners: Sequence[int],
    deltas: Mapping[int, Delta],
    gates: _Gates,
    gates_of_module: Mapping[tuple[str, int, int], Gate],
) -> OnOutput:
    """First what the deltas add, then what the gates replace: a gate reads the module's input."""
    add = _adding_by_row(deltas, owners, lm.device) if deltas else None

    def on_output(x: Tensor, output: Tensor) -> Tensor:
        if x.shape[0] != len(owners):
            raise ValueError(f"{len(owners)} rows have owners, the batch has {x.shape[0]} rows")
        if add is not None:
            output = add(x, output)
        for key, gate in gates_of_module.items():
            output = gates.changed(key, gate, x, output)
        return output

    return on_output


def _adding_by_row(
    deltas: Mapping[int, Delta], owners: Sequence[int], device: torch.device
) -> Callable[[Tensor, Tensor], Tensor]:
    """Each row's contribution in its delta's precision; rank-one deltas share one batched product."""

    def rows_of(wanted_owners: Collection[int]) -> Tensor:
        rows = [row for row, owner in enumerate(owners) if owner in wanted_owners]
        return torch.tensor(rows, dtype=torch.long, device=device)

    rank_one_deltas = {
        owner: delta
        for owner, delta in deltas.items()
        if isinstance(delta, LowRank) and delta.left.shape[1] == 1
    }
    other_deltas = [
        (rows_of({owner}), delta.to(device))
        for owner, delta in deltas.items()
        if owner not in rank_one_deltas
    ]
    rank_one_rows = rows_of(rank_one_deltas)
    if rank_one_deltas:
        rank_one_delta_of_row = [
            rank_one_deltas[owner] for owner in owners if owner in rank_one_deltas
        ]
        left = torch.stack([delta.left[:, 0] for delta in rank_one_delta_of_row]).to(
            device
        )  # [rows, out]
        right = torch.stack([delta.right[:, 0] for delta in rank_one_delta_of_row]).to(
            device
        )  # [rows, in]

    def on_output(entering: Tensor, output: Tensor) -> Tensor:
        output = output.clone()
        if rank_one_deltas:
            coefficients = torch.einsum(
                "btf,bf->bt", entering[rank_one_rows].to(right.dtype), right
            )
            added = coefficients[:, :, None] * left[:, None, :]  # [rows, tokens, out]
            output[rank_one_rows] += added.to(output.dtype)
        for rows, delta in other_deltas:
            output[rows] += delta.contribution(entering[rows].to(delta.dtype)).to(output.dtype)
        return output

    return on_output


@dataclass
class _Gates:
    """The gates of a pass: where they are decided and which tokens they change."""

    owners: Sequence[int]  # of the rows
    prompt_tokens: PromptTokens | None
    decisions: GateDecisions

    def changed(
        self, key: tuple[str, int, int], gate: Gate, entering: Tensor, output: Tensor
    ) -> Tensor:
        """A module's output [rows, width, out], given its input, as the gate leaves it."""
        if self.prompt_tokens is None:
            raise ValueError("a gated edit must be told where prompts end")
        _, owner, _ = key
        is_of_owner = torch.tensor([o == owner for o in self.owners], device=output.device)
        is_last = self.prompt_tokens.is_last & is_of_owner[:, None]  # [rows, width]
        if key not in self.decisions:
            entry_of_prompt = output.new_full((self.prompt_tokens.count,), -1, dtype=torch.long)
            queries = self._queries(gate, entering, is_last)
            entry_of_prompt[self.prompt_tokens.prompt[is_last]] = gate.decide(queries)
            self.decisions[key] = entry_of_prompt
        prompt = self.prompt_tokens.prompt
        entries = self.decisions[key][prompt.clamp_min(0)]  # [rows, width]
        is_changed = (prompt >= 0) & is_of_owner[:, None] & (entries >= 0)
        if gate.reach == "last":
            is_changed &= is_last
        elif gate.reach == "after":
            is_changed &= ~self.prompt_tokens.is_before
        if not is_changed.any():
            return output
        output = output.clone()
        output[is_changed] = gate.change(
            entering[is_changed], output[is_changed], entries[is_changed]
        ).to(output.dtype)
        return output

    def _queries(self, gate: Gate, entering: Tensor, is_last: Tensor) -> Tensor:
        """What the gate is asked with about each prompt whose last token ``is_last`` [prompts, in]."""
        assert self.prompt_tokens is not None
        if gate.reads == "last":
            return entering[is_last]
        has_prompt = is_last.any(1)  # [rows]; each has a row of its own
        in_prompt = (is_last | self.prompt_tokens.is_before)[has_prompt].float()
        weights = in_prompt / in_prompt.sum(1, keepdim=True)
        return torch.einsum("rw,rwf->rf", weights, entering[has_prompt].float())


def prefixes_of(
    lm: LanguageModel, edits: Sequence[Edit], owners: Sequence[int], prompts: Sequence[str]
) -> list[str]:
    """The text that each prompt's edit puts before it; empty: none.

    Of a prompt in a chat template (``chat_prompt``) the edit is asked about the message.

    Raises:
        EditError: an edit that was made for another model.
    """
    prefixes = [""] * len(prompts)
    used_owners = sorted(set(owners) - {-1})
    messages = messages_of(lm, prompts) if used_owners else []
    for owner in used_owners:
        edits[owner].check(lm)
        indices = [index for index, of_prompt in enumerate(owners) if of_prompt == owner]
        texts = edits[owner].prefixes(lm, [messages[index] for index in indices])
        for index, text in zip(indices, texts, strict=True):
            prefixes[index] = text
    return prefixes


def with_prefix_texts(
    lm: LanguageModel, prefixes: Sequence[str], prompts: Sequence[str]
) -> list[str]:
    """Each prompt with its prefix before it: in a chat template, before the message."""
    frame = ChatFrame.of(lm) if any(prefixes) else ChatFrame()
    return [
        frame.with_text(prefix, prompt) for prefix, prompt in zip(prefixes, prompts, strict=True)
    ]


def decided_beforehand(
    lm: LanguageModel, edits: Sequence[Edit], owners: Sequence[int], prompts: Sequence[Ids]
) -> GateDecisions | None:
    """Gates' decisions where each prompt is run alone for them; None: each pass decides for itself."""
    return decisions_of_gates(lm, edits, owners, prompts) if decides_alone(lm) else None


def decides_alone(lm: LanguageModel) -> bool:
    """Whether gates are asked about each prompt alone: in half precision.

    There what enters a module differs between the layouts of a batch by more than a radius may be.
    """
    return lm.dtype.itemsize < 4


@torch.inference_mode()
def decisions_of_gates(
    lm: LanguageModel, edits: Sequence[Edit], owners: Sequence[int], prompts: Sequence[Ids]
) -> GateDecisions:
    """What each gate decides about its own prompts, each run alone: no batch has any influence.

    ``prompts`` are token ids, edits' prefixes among them.
    """
    decisions: GateDecisions = {}
    entries_of_prompt: dict[tuple[int, Ids], dict[tuple[str, int], int]] = {}
    for number, (owner, ids) in enumerate(zip(owners, prompts, strict=True)):
        if owner < 0 or not edits[owner].is_gated:
            continue
        if (owner, ids) not in entries_of_prompt:
            entries_of_prompt[owner, ids] = _decided_alone(lm, edits[owner], ids)
        for (module_name, gate_number), entry in entries_of_prompt[owner, ids].items():
            nothing = torch.full((len(prompts),), -1, device=lm.device)
            decision = decisions.setdefault((module_name, owner, gate_number), nothing)
            decision[number] = entry
    return decisions


def _decided_alone(lm: LanguageModel, edit: Edit, ids: Ids) -> dict[tuple[str, int], int]:
    alone = padded(lm, [ids])
    decisions: GateDecisions = {}
    with under(lm, [edit], [0], PromptTokens.of_rows(alone.real), decisions):
        hidden_states(lm, alone.ids, alone.positions, alone.visible)
    return {(name, number): int(entries[0]) for (name, _, number), entries in decisions.items()}
