"""The state of a sequence of edits: a value from which it resumes, also after an interruption."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from helpers.editing.edit import Edit, aligned
from helpers.editing.weight_edit import WeightEdit

_EDIT = "edit.safetensors"
_MEMORY = "memory.safetensors"


@dataclass(frozen=True)
class SequenceState:
    """All edits so far as one, and what else later edits of the same sequence need.

    Args:
        edit: the cumulative edit, as the editor continues from it; ``Editor.edit_of`` is what it amounts to.
        memory: tensors by name, such as the keys that later edits leave alone. Empty for most editors.
    """

    edit: Edit = field(default_factory=lambda: WeightEdit({}))
    memory: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def memory_bytes(self) -> int:
        """What is remembered in addition to the edit."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.memory.values())

    def to(self, device: str | torch.device) -> SequenceState:
        """A copy on another device."""
        memory = {name: tensor.to(device) for name, tensor in self.memory.items()}
        return SequenceState(self.edit.to(device), memory)

    def save(self, folder: Path) -> None:
        """Write the state into a new folder."""
        folder.mkdir(parents=True)
        self.edit.save(folder / _EDIT)
        separate = {name: tensor.contiguous().clone() for name, tensor in self.memory.items()}
        save_file(separate, folder / _MEMORY)

    @classmethod
    def load(cls, folder: Path) -> SequenceState:
        """Read what ``save`` wrote, bit for bit, so that what follows is the same as without a stop."""
        return cls(Edit.load(folder / _EDIT), aligned(load_file(folder / _MEMORY)))
