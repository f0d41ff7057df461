"""Prefix forests: many token sequences in one row, every shared prefix stored and computed once.

A node is a token with a parent; a token sees its ancestors and itself. With position ids equal to
the depth in the tree, a forward pass over the packed row gives each sequence exactly what it gets
alone. Editing uses the same rows: a node may be *edited* (a vector is added there), and the nodes
left of all edited ones are constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from helpers.models.language_model import LanguageModel


@dataclass
class Forest:
    """One row of prefix trees, built by ``add``; parents always stand before their children."""

    tokens: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    edited: list[bool] = field(default_factory=list)
    _children: dict[tuple[int, int, bool], int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, ids: Sequence[int], edited_at: int | None = None) -> list[int]:
        """Insert a sequence and return its nodes, one per token.

        ``edited_at`` marks the index whose token is edited; an edited node is never shared with one
        that is not, although the tokens are the same.
        """
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
        """Insert an answer after its prompt; the nodes that predict its tokens, one per token.

        The answer's last token is only predicted, never read, so it is no node.
        """
        return self.add((*prompt, *answer[:-1]), edited_at)[len(prompt) - 1 :]

    def visible(self) -> np.ndarray:
        """Boolean [nodes, nodes]: entry (q, k) is true where k is q itself or an ancestor of it."""
        visible = np.eye(len(self), dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                visible[node] |= visible[parent]
        return visible

    def active(self) -> np.ndarray:
        """Boolean [nodes]: true for edited nodes and all their descendants."""
        active = np.array(self.edited, dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                active[node] |= active[parent]
        return active


@dataclass(frozen=True)
class PackedRows:
    """A batch of rows: ids and positions [rows, width], visible [rows, width, width] (boolean).

    A padding token sees only itself, so that no softmax is empty.
    """

    ids: Tensor
    positions: Tensor
    visible: Tensor


def pack(forests: Sequence[Forest], language_model: LanguageModel) -> PackedRows:
    """Pad forests on the right into one batch on the model's device."""
    width = max(len(forest) for forest in forests)
    ids = np.zeros((len(forests), width), dtype=np.int64)
    positions = np.zeros((len(forests), width), dtype=np.int64)
    visible = np.broadcast_to(np.eye(width, dtype=bool), (len(forests), width, width)).copy()
    for row, forest in enumerate(forests):
        length = len(forest)
        ids[row, :length] = forest.tokens
        positions[row, :length] = forest.positions
        visible[row, :length, :length] = forest.visible()
    limit = language_model.context_length
    if positions.max() >= limit:
        raise ValueError(
            f"a sequence of {positions.max() + 1} tokens exceeds the context of {limit}"
        )
    device = language_model.device
    return PackedRows(*(torch.from_numpy(array).to(device) for array in (ids, positions, visible)))
