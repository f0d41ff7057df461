"""Prefix forests: many token sequences in one row, every shared prefix stored and computed once.

A node is a token that sees itself and its ancestors; its position id is its depth, so each sequence
gets exactly what it gets alone. A vector is added at *edited* nodes, shared with edited ones only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from helpers.models.language_model import LanguageModel


@dataclass
class Forest:
    """One row of prefix trees, built by ``add``; parents come before their children."""

    tokens: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    edited: list[bool] = field(default_factory=list)
    _children: dict[tuple[int, int, bool], int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, ids: Sequence[int], edited_at: int | None = None) -> list[int]:
        """Insert a sequence, whose token ``edited_at`` is edited, and return its nodes, one per token."""
        node, nodes = -1, []
        for depth, token in enumerate(ids):
            key = (node, token, depth == edited_at)
            if key not in self._children:
                self._children[key] = len(self.tokens)
                self.tokens.append(token)
                self.positions.append(depth)
                self.parents.append(node)
                self.edited.append(key[2])
            node = self._children[key]
            nodes.append(node)
        return nodes

    def add_answer(
        self, prompt: Sequence[int], answer: Sequence[int], edited_at: int | None = None
    ) -> list[int]:
        """Insert a prompt and all of its answer but the last token; the nodes that predict the answer."""
        return self.add((*prompt, *answer[:-1]), edited_at)[len(prompt) - 1 :]

    def visible(self) -> np.ndarray:
        """Boolean [nodes, nodes]: true at (q, k) where k is q itself or an ancestor of it."""
        return self._inherited(np.eye(len(self), dtype=bool))

    def active(self) -> np.ndarray:
        """Boolean [nodes]: true for edited nodes and all their descendants."""
        return self._inherited(np.array(self.edited, dtype=bool))

    def following(self, numbers: Mapping[int, int]) -> np.ndarray:
        """[nodes]: the number of each node that has one, and of those that follow it; -1 elsewhere."""
        of_node = np.full(len(self), -1, dtype=np.int64)
        for node, parent in enumerate(self.parents):
            if node in numbers:
                of_node[node] = numbers[node]
            elif parent >= 0:
                of_node[node] = of_node[parent]
        return of_node

    def _inherited(self, found: np.ndarray) -> np.ndarray:
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                found[node] |= found[parent]
        return found


@dataclass(frozen=True)
class PackedRows:
    """A batch of rows: ids and positions [rows, width], visible [rows, width, width] (boolean)."""

    ids: Tensor
    positions: Tensor
    visible: Tensor


def pack(forests: Sequence[Forest], lm: LanguageModel) -> PackedRows:
    """Pack forests on the right into one batch on the model's device."""
    width = max(map(len, forests))
    ids, positions = np.zeros((2, len(forests), width), dtype=np.int64)
    # A padding token sees only itself, so that no softmax is empty.
    visible = np.broadcast_to(np.eye(width, dtype=bool), (len(forests), width, width)).copy()
    for row, forest in enumerate(forests):
        length = len(forest)
        ids[row, :length] = forest.tokens
        positions[row, :length] = forest.positions
        visible[row, :length, :length] = forest.visible()
    device = lm.device
    return PackedRows(*(torch.from_numpy(array).to(device) for array in (ids, positions, visible)))


@dataclass(frozen=True)
class PaddedTexts(PackedRows):
    """Plain texts, one a row; ``real`` [rows, width] is false where a token is padding."""

    real: Tensor

    def last(self, values: Tensor) -> Tensor:
        """Values [rows, …] of ``values`` [rows, width, …] at each text's last real token."""
        return values[torch.arange(len(values), device=values.device), self.real.sum(1) - 1]


def padded(lm: LanguageModel, texts: Sequence[Sequence[int]]) -> PaddedTexts:
    """Pad token ids on the right into one batch on the model's device."""
    device, width = lm.device, max(map(len, texts))
    # Nothing sees padding, so any token of the vocabulary will do.
    ids = torch.tensor([[*text, *[0] * (width - len(text))] for text in texts], device=device)
    positions = torch.arange(width, device=device).expand_as(ids)
    real = positions < torch.tensor([len(text) for text in texts], device=device)[:, None]
    itself = torch.eye(width, dtype=torch.bool, device=device)
    before = torch.ones_like(itself).tril()
    return PaddedTexts(ids, positions, (before & real[:, None, :]) | itself, real)
