"""Readers: weighted sums of log-probabilities of predicted tokens, taken from hidden states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from helpers.editing.app import AnswerScores
from helpers.editing.rows import EditRow, Prediction
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


class AnswerReaders(NamedTuple):
    """Readers of edits' targets, correct and false answers."""

    target: Reader
    correct: Reader
    false: Reader

    @classmethod
    def build(
        cls, rows: Sequence[EditRow], columns: np.ndarray, device: torch.device
    ) -> AnswerReaders:
        """What the rows predict; ``columns[row, node]`` is the node's column."""
        groups = (
            [[row.target] for row in rows],
            [row.correct for row in rows],
            [row.false for row in rows],
        )
        return cls(*(Reader.build(group, columns).to(device) for group in groups))

    def keep(self, new_row: Tensor) -> AnswerReaders:
        """Follow a selection of rows; ``new_row`` [rows] is -1 for those that left."""
        return AnswerReaders(*(reader.keep(new_row) for reader in self))


@dataclass(frozen=True)
class Readout:
    """Several readers' sums from one pass through the vocabulary head, its places found once.

    Attributes:
        places: distinct places of rows x columns that the head runs at [p].
        place, token, weight: of each prediction [n], the place as an index into ``places``.
        whole: place of each row whose whole distribution is read, too ([rows], or none).
        slot: where each prediction's weighted score is added, among all readers' sums [n].
        real: for each reader which slots have predictions, boolean [rows, slots].
    """

    places: Tensor
    place: Tensor
    token: Tensor
    weight: Tensor
    whole: Tensor
    slot: Tensor
    real: tuple[Tensor, ...]

    @classmethod
    def of(
        cls, readers: Sequence[Reader], rows: int, columns: int, whole: Tensor | None = None
    ) -> Readout:
        """The plan for hidden states [rows, columns, hidden]; ``whole`` [rows] are columns."""
        device = readers[0].row.device
        starts = torch.arange(rows, device=device) * columns
        asked = [reader.row * columns + reader.column for reader in readers]
        asked.append(starts[:0] if whole is None else starts + whole)
        places, place = torch.cat(asked).unique(return_inverse=True)
        predictions = sum(len(reader.row) for reader in readers)
        first, slots, real = 0, [], []
        for reader in readers:
            own = reader.row * reader.slots + reader.slot
            slots.append(first + own)
            filled = torch.zeros(rows * reader.slots, dtype=torch.bool, device=device)
            real.append(filled.index_fill(0, own, True).view(rows, reader.slots))
            first += rows * reader.slots
        return cls(
            places,
            place[:predictions],
            torch.cat([reader.token for reader in readers]),
            torch.cat([reader.weight for reader in readers]),
            place[predictions:],
            torch.cat(slots),
            tuple(real),
        )

    def read(self, language_model: LanguageModel, hidden: Tensor) -> tuple[list[Tensor], Tensor]:
        """Each reader's sums [rows, slots], and the whole distributions [rows, vocabulary], fp32."""
        chosen = hidden.flatten(0, 1).index_select(0, self.places)
        scores, distributions = vocabulary_scores(
            language_model, chosen, self.place, self.token, self.whole
        )
        sizes = [real.numel() for real in self.real]
        sums = scores.new_zeros(sum(sizes)).index_add(0, self.slot, scores * self.weight)
        parts = zip(sums.split(sizes), self.real, strict=True)
        return [part.view(real.shape) for part, real in parts], distributions


@dataclass(frozen=True)
class Reading:
    """What one forward pass says about the rows' answers.

    Attributes:
        target_nll: negative log-likelihood of the targets [rows], averaged over templates and tokens.
        kl: log-probabilities at the KL prompt's subject [rows, vocabulary].
        correct: mean-token log-probabilities of the correct answers, padded [rows, m].
        false: the same of the false answers, [rows, n].
    """

    target_nll: Tensor
    kl: Tensor
    correct: AnswerScores
    false: AnswerScores

    def detached(self, index: Tensor | None = None) -> Reading:
        """The same without gradients, of the rows in ``index`` only."""

        def keep(tensor: Tensor) -> Tensor:
            return tensor.detach() if index is None else tensor.detach()[index]

        answers = (AnswerScores(keep(a.values), keep(a.real)) for a in (self.correct, self.false))
        return Reading(keep(self.target_nll), keep(self.kl), *answers)

    def kl_from(self, reference: Reading) -> Tensor:
        """KL(this || reference) at the KL prompt's subject [rows]."""
        return (self.kl.exp() * (self.kl - reference.kl)).sum(-1)
