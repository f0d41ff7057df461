"""Readers: weighted sums of log-probabilities of predicted tokens, taken from hidden states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from helpers.editing.rows import Prediction
from helpers.models.forward import vocabulary_scores
from helpers.models.language_model import LanguageModel


@dataclass
class Reader:
    """Weighted sums of log-probabilities: predictions at (row, column), summed into (row, slot)."""

    row: Tensor
    column: Tensor
    token: Tensor
    weight: Tensor
    slot: Tensor
    slots: int

    @classmethod
    def build(cls, groups: Sequence[Sequence[Sequence[Prediction]]], columns: np.ndarray) -> Reader:
        """``groups[row][slot]`` are predictions; ``columns[row, node]`` is the node's column."""
        flat = [
            (row, int(columns[row, p.node]), p.token, p.weight, slot)
            for row, slots in enumerate(groups)
            for slot, predictions in enumerate(slots)
            for p in predictions
        ]
        parts = list(zip(*flat, strict=True)) or [()] * 5
        row, column, token, slot = (torch.tensor(parts[i], dtype=torch.long) for i in (0, 1, 2, 4))
        weight = torch.tensor(parts[3], dtype=torch.float32)
        return cls(row, column, token, weight, slot, max((len(g) for g in groups), default=0))

    def to(self, device: torch.device) -> Reader:
        """The same reader with its index tensors on another device."""
        return self._map(lambda field: field.to(device))

    def keep(self, new_row: Tensor) -> Reader:
        """Follow a selection of rows; ``new_row`` [rows] is -1 for those that left."""
        moved = replace(self, row=new_row[self.row])
        stays = moved.row >= 0
        return moved._map(lambda field: field[stays])

    def _map(self, change: Callable[[Tensor], Tensor]) -> Reader:
        return Reader(
            change(self.row),
            change(self.column),
            change(self.token),
            change(self.weight),
            change(self.slot),
            self.slots,
        )

    def sums(self, scores: Tensor, rows: int) -> Tensor:
        """Weighted sums [rows, slots] of the predictions' scores [n]."""
        empty = scores.new_zeros(rows, self.slots)
        return empty.index_put((self.row, self.slot), scores * self.weight, accumulate=True)

    def real(self, rows: int) -> Tensor:
        """Boolean [rows, slots]: which slots have predictions."""
        real = torch.zeros(rows, self.slots, dtype=torch.bool, device=self.row.device)
        real[self.row, self.slot] = True
        return real


def read_together(
    language_model: LanguageModel,
    hidden: Tensor,
    readers: Sequence[Reader],
    whole: Tensor | None = None,
) -> tuple[list[Tensor], Tensor]:
    """Several readers' sums from one pass through the vocabulary head.

    Args:
        language_model: the model.
        hidden: final hidden states [rows, columns, hidden].
        readers: what to read.
        whole: column of each row whose whole distribution is read, too, [rows].

    Returns:
        Each reader's sums [rows, slots], and log-probabilities [rows, vocabulary] (without rows
        where ``whole`` is None), in fp32.
    """
    rows, columns = hidden.shape[:2]
    starts = torch.arange(rows, device=hidden.device) * columns
    asked = [reader.row * columns + reader.column for reader in readers]
    asked.append(starts[:0] if whole is None else starts + whole)
    places, place = torch.cat(asked).unique(return_inverse=True)
    *of_readers, of_whole = place.split([len(part) for part in asked])
    scores, distributions = vocabulary_scores(
        language_model,
        hidden.flatten(0, 1)[places],
        torch.cat(of_readers),
        torch.cat([reader.token for reader in readers]),
        of_whole,
    )
    parts = scores.split([len(part) for part in of_readers])
    return [r.sums(part, rows) for r, part in zip(readers, parts, strict=True)], distributions
