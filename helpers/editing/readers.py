"""Readers: weighted sums of log-probabilities of predicted tokens, taken from hidden states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from helpers.editing.rows import Prediction
from helpers.models.forward import log_probabilities
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

    def read(self, language_model: LanguageModel, hidden: Tensor) -> Tensor:
        """Sums [rows, slots] from hidden states [rows, columns, hidden], in fp32."""
        sums = hidden.new_zeros(len(hidden), self.slots, dtype=torch.float32)
        if not len(self.row):
            return sums
        places, place = (self.row * hidden.shape[1] + self.column).unique(return_inverse=True)
        chosen = hidden.flatten(0, 1)[places]
        scores = log_probabilities(language_model, chosen, place, self.token)
        return sums.index_put((self.row, self.slot), scores * self.weight, accumulate=True)

    def real(self, rows: int) -> Tensor:
        """Boolean [rows, slots]: which slots have predictions."""
        real = torch.zeros(rows, self.slots, dtype=torch.bool, device=self.row.device)
        real[self.row, self.slot] = True
        return real
