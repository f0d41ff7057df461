"""Texts of unequal length as one batch, padded on the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from helpers.models.language_model import LanguageModel


@dataclass(frozen=True)
class PaddedTexts:
    """A batch of ordinary causal texts.

    Attributes:
        ids: token ids [rows, width].
        positions: position ids [rows, width].
        real: boolean [rows, width], false where a token is padding.
    """

    ids: Tensor
    positions: Tensor
    real: Tensor

    @property
    def visible(self) -> Tensor:
        """Boolean [rows, width, width]: what stands before a token, and itself, be it padding."""
        width = self.ids.shape[1]
        options: dict[str, Any] = {"dtype": torch.bool, "device": self.ids.device}
        before = torch.ones(width, width, **options).tril()
        return (before & self.real[:, None, :]) | torch.eye(width, **options)

    @property
    def lengths(self) -> Tensor:
        """Real tokens of each text [rows]."""
        return self.real.sum(1)

    def last(self, values: Tensor) -> Tensor:
        """Values [rows, …] of ``values`` [rows, width, …] at each text's last real token."""
        return values[torch.arange(len(values), device=values.device), self.lengths - 1]


def padded(language_model: LanguageModel, texts: Sequence[Sequence[int]]) -> PaddedTexts:
    """Pad token ids into one batch on the model's device."""
    device = language_model.device
    width = max(map(len, texts))
    # Nothing sees padding, so any token of the vocabulary will do.
    ids = torch.tensor([[*text, *[0] * (width - len(text))] for text in texts], device=device)
    positions = torch.arange(width, device=device).expand_as(ids)
    lengths = torch.tensor([len(text) for text in texts], device=device)
    return PaddedTexts(ids, positions, positions < lengths[:, None])
