"""Second moments that come with the package, so that a first edit does not wait for them.

They are those of an embedded model's ROME layer, beside the text they are of: half of the symmetric
matrix, to the last bit. ``second_moment`` copies them into the cache.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from helpers.paths import PACKAGED


def packaged_file(root: Path, layer: int) -> Path:
    """Where the package keeps a layer's statistics, if it has them.

    Args:
        root: the cache's folder for them, ``second_moments/<fingerprint>/<corpus>``.
        layer: the block.
    """
    return PACKAGED / "samples" / root.parent.name / root.name / f"layer{layer}.safetensors"


def pack(matrix: Tensor, about: Mapping[str, Any], path: Path) -> None:
    """Write half of a symmetric matrix [f, f] with its provenance."""
    rows, columns = torch.triu_indices(*matrix.shape)
    save_file({"upper": matrix[rows, columns]}, path, {"about": json.dumps(dict(about))})


def unpacked(path: Path) -> tuple[Tensor, dict[str, Any]]:
    """The whole matrix [f, f] and its provenance."""
    half, about = _read(path)
    size = int((2 * len(half)) ** 0.5)
    rows, columns = torch.triu_indices(size, size)
    matrix = torch.empty(size, size)
    matrix[rows, columns] = matrix[columns, rows] = half
    return matrix, about


def _read(path: Path) -> tuple[Tensor, dict[str, Any]]:
    with safe_open(path, "pt") as file:
        return file.get_tensor("upper"), json.loads(file.metadata()["about"])
