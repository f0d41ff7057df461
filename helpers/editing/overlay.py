"""One forward pass, many edits: each batch row runs under its own update.

The weights are never written. A forward hook on every edited module adds each row's own
contribution to the module's output, so nothing has to be restored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from helpers.editing.update import Delta, LowRank, Update, check_update
from helpers.models.hooks import OnOutput, output_hooks
from helpers.models.language_model import LanguageModel


@contextmanager
def overlay(
    language_model: LanguageModel, updates: Sequence[Update], owners: Tensor | Sequence[int]
) -> Iterator[None]:
    """Run forward passes inside the block with row i under ``updates[owners[i]]``; -1: unedited.

    Raises:
        UpdateError: an update does not fit the model.
        ValueError: inside the block, a batch has another number of rows than ``owners``.
    """
    owners = torch.as_tensor(owners)
    used = {int(i): updates[int(i)] for i in owners.unique() if i >= 0}
    for update in used.values():
        check_update(language_model, update)
    hooks = {}
    for name in sorted({name for update in used.values() for name in update}):
        deltas = {i: update[name] for i, update in used.items() if name in update}
        hooks[name] = _adding_by_row(deltas, owners.tolist(), language_model.device)
    with output_hooks(language_model, hooks):
        yield


@contextmanager
def overlay_all(language_model: LanguageModel, update: Update) -> Iterator[None]:
    """Run forward passes inside the block with every row of any batch under ``update``.

    Contributions add up, so ``overlay`` inside the block puts further edits on top of it.

    >>> with overlay_all(language_model, earlier):
    ...     scores = score_answers(language_model, questions)
    """
    check_update(language_model, update)
    device = language_model.device
    hooks = {name: _adding(delta.to(device)) for name, delta in update.items()}
    with output_hooks(language_model, hooks):
        yield


def _adding(delta: Delta) -> OnOutput:
    def on_output(x: Tensor, output: Tensor) -> Tensor:
        return output + delta.rows(x.to(delta.dtype)).to(output.dtype)

    return on_output


def _adding_by_row(
    deltas: Mapping[int, Delta], owners: Sequence[int], device: torch.device
) -> OnOutput:
    """Each row's contribution in its delta's precision; rank-one deltas share one batched product."""
    thin = {i: d for i, d in deltas.items() if isinstance(d, LowRank) and d.rank == 1}
    others = [
        (_places(owners, {i}, device), d.to(device)) for i, d in deltas.items() if i not in thin
    ]
    thin_rows = _places(owners, thin.keys(), device)
    if thin:
        own = [thin[owner] for owner in owners if owner in thin]
        left = torch.stack([delta.left[:, 0] for delta in own]).to(device)
        right = torch.stack([delta.right[:, 0] for delta in own]).to(device)

    def on_output(x: Tensor, output: Tensor) -> Tensor:
        if x.shape[0] != len(owners):
            raise ValueError(f"overlay has {len(owners)} owners, the batch has {x.shape[0]} rows")
        output = output.clone()
        if thin:
            strength = torch.einsum("btf,bf->bt", x[thin_rows].to(right.dtype), right)
            added = strength[:, :, None] * left[:, None, :]
            output[thin_rows] += added.to(output.dtype)
        for rows, delta in others:
            output[rows] += delta.rows(x[rows].to(delta.dtype)).to(output.dtype)
        return output

    return on_output


def _places(owners: Sequence[int], chosen: Collection[int], device: torch.device) -> Tensor:
    rows = [row for row, owner in enumerate(owners) if owner in chosen]
    return torch.tensor(rows, dtype=torch.long, device=device)
