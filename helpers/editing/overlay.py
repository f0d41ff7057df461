"""One forward pass, many edits: each batch row runs under its own update.

The weights are never written. A forward hook on every edited module adds each row's own
contribution to the module's output, so nothing has to be restored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from helpers.editing.update import Delta, LowRank, Update, check_update
from helpers.models.hooks import OnOutput, output_hooks
from helpers.models.language_model import LanguageModel


@contextmanager
def overlay(
    language_model: LanguageModel, updates: Sequence[Update], owners: Tensor | Sequence[int]
) -> Iterator[None]:
    """Run forward passes inside the block with row i under ``updates[owners[i]]``.

    Args:
        language_model: the model; its weights stay as they are.
        owners: for each batch row the index of its update, -1 for the unedited model.

    Raises:
        UpdateError: an update does not fit the model.
        ValueError: inside the block, a batch has another number of rows than ``owners``.
    """
    owners = torch.as_tensor(owners)
    used = {int(i): updates[int(i)] for i in owners.unique() if i >= 0}
    for update in used.values():
        check_update(language_model, update)
    modules = sorted({name for update in used.values() for name in update})
    hooks = {}
    for name in modules:
        deltas = {i: update[name] for i, update in used.items() if name in update}
        hooks[name] = _RowContributions(deltas, owners, language_model.device).added
    with output_hooks(language_model, hooks):
        yield


@contextmanager
def overlay_all(language_model: LanguageModel, update: Update) -> Iterator[None]:
    """Run forward passes inside the block with every row of any batch under ``update``.

    Contributions add up, so ``overlay`` inside the block puts further edits on top of it. An edit of
    a model that was edited before is ``Editor.edit_after``, which uses this.

    >>> with overlay_all(language_model, earlier):
    ...     scores = score_answers(language_model, questions)

    Raises:
        UpdateError: the update does not fit the model.
    """
    check_update(language_model, update)
    device = language_model.device
    hooks = {name: _adding(delta.to(device)) for name, delta in update.items()}
    with output_hooks(language_model, hooks):
        yield


def _adding(delta: Delta) -> OnOutput:
    def on_output(x: Tensor, output: Tensor) -> Tensor:
        added = delta.rows(x.to(_precision(delta)))
        return output + added.to(output.dtype)

    return on_output


class _RowContributions:
    """The deltas of one module, grouped so that rank-one edits share one batched product."""

    def __init__(self, deltas: dict[int, Delta], owners: Tensor, device: torch.device) -> None:
        self.count = len(owners)
        thin = {o: d for o, d in deltas.items() if isinstance(d, LowRank) and d.rank == 1}
        self.thin_rows = _rows_of(owners, thin, device)
        self.left = self.right = None
        if thin:
            index = [o for o in owners.tolist() if o in thin]
            self.left = torch.stack([thin[o].left[:, 0] for o in index]).to(device)
            self.right = torch.stack([thin[o].right[:, 0] for o in index]).to(device)
        self.others = [
            (_rows_of(owners, {owner: delta}, device), delta.to(device))
            for owner, delta in deltas.items()
            if owner not in thin
        ]

    def added(self, x: Tensor, output: Tensor) -> Tensor:
        """The output with each row's contribution, computed in the delta's own precision."""
        if x.shape[0] != self.count:
            raise ValueError(f"overlay has {self.count} owners, the batch has {x.shape[0]} rows")
        output = output.clone()
        if self.left is not None and self.right is not None:
            chosen = x[self.thin_rows].to(self.right.dtype)
            strength = torch.einsum("btf,bf->bt", chosen, self.right)
            added = strength[:, :, None] * self.left[:, None, :]
            output[self.thin_rows] += added.to(output.dtype)
        for rows, delta in self.others:
            added = delta.rows(x[rows].to(_precision(delta)))
            output[rows] += added.to(output.dtype)
        return output


def _rows_of(owners: Tensor, deltas: dict[int, Any], device: torch.device) -> Tensor:
    chosen = torch.isin(owners.cpu(), torch.tensor(sorted(deltas), dtype=owners.dtype))
    return chosen.nonzero()[:, 0].to(device)


def _precision(delta: Delta) -> torch.dtype:
    return next(t.dtype for t in delta.tensors().values() if t.is_floating_point())
