"""NAS: the norm of what an edit writes is fed back, so that no vector of a sequence is longer than is usual.

With v0 the MLP's output at the subject in the last edited layer, v* = v0 + delta the optimised one, and m
the mean of ||v*|| over held-out requests on the unedited model (without the largest 5 %), the block's
output is to become

    z = z0 - v0 + m v* / ||v*||

in place of z0 + delta (2602.02543). The solve is AlphaEdit's. Short vectors grow, too.

Deviations. The authors take m from 1,000 CounterFact requests, which can be those that are edited; here
they are packaged facts, and a request that is one of them is refused. Their code skips edits of ||v*||
> 2 m, which the paper does not state: ``skip_long``. Vectors are optimised in all contexts, not after the
bare prompt alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from helpers.editing.contexts import read_at_subjects
from helpers.editing.held_out import first_held_out, held_out_digest
from helpers.editing.request import EditRequest
from helpers.editing.vector import Vector, VectorEditor
from helpers.kept import load_or_make
from helpers.paths import cache_folder, digest_of

_LEFT_OUT = 0.05  # share of the longest
_TOO_LONG = 2.0  # times m


@dataclass
class NormedVector(Vector):
    """A vector after norm feedback; ``norm_ratio`` is ||v*|| / m before it."""

    norm_ratio: float = 1.0
    skipped: bool = False

    @property
    def notes(self) -> dict[str, Any]:
        """Also the ratio, and whether the edit was skipped."""
        return {**super().notes, "norm_ratio": self.norm_ratio, "skipped": self.skipped}


def with_usual_norm(
    editor: VectorEditor,
    requests: Sequence[EditRequest],
    vectors: Sequence[Vector],
    usual_norm: float,
    *,
    skip_long: bool,
) -> list[Vector]:
    """The vectors at the block's output, each so that the MLP's output there gets the usual norm."""
    outputs = _mlp_outputs(editor, requests)
    normed_vectors: list[Vector] = []
    for vector, output in zip(vectors, outputs, strict=True):
        if vector.failure:
            normed_vectors.append(vector)
            continue
        optimised_value = output + vector.delta  # v*
        norm_ratio = float(optimised_value.norm()) / usual_norm
        skipped = skip_long and norm_ratio > _TOO_LONG
        delta = (
            torch.zeros_like(optimised_value) if skipped else optimised_value / norm_ratio - output
        )
        normed_vectors.append(
            NormedVector(
                delta=delta,
                initial=vector.initial,
                steps=vector.steps,
                losses=vector.losses,
                norm_ratio=norm_ratio,
                skipped=skipped,
            )
        )
    return normed_vectors


def usual_norm(editor: VectorEditor, count: int) -> float:
    """m of ``count`` held-out requests, measured once with the unedited model and kept in the cache."""
    editor_without_app = replace(editor, app=None, icd=None, targets="new", memo=None)
    measured_with = [
        editor_without_app.settings(),
        count,
        held_out_digest(),
        str(editor.lm.dtype_name),
    ]
    file_stem = digest_of(json.dumps(measured_with, sort_keys=True).encode())[:16]

    def write_norm(path: Path) -> None:
        requests = first_held_out(count)
        last_block = editor_without_app.lm.layout.block(
            editor_without_app.hyperparameters.layers[-1]
        )
        vectors = editor_without_app.optimised(requests, last_block)
        outputs = _mlp_outputs(editor_without_app, requests)
        norms = [
            float((output + vector.delta).norm())
            for output, vector in zip(outputs, vectors, strict=True)
            if not vector.failure
        ]
        path.write_text(json.dumps(usual_of(norms)), "utf-8")

    def read_norm(path: Path) -> float:
        return float(json.loads(path.read_text("utf-8")))

    return load_or_make(
        cache_folder("nas", editor.lm.fingerprint) / f"{file_stem}.json", read_norm, write_norm
    )


def usual_of(norms: Sequence[float]) -> float:
    """The mean of the norms but for the largest 5 %."""
    ascending = sorted(norms)
    counted = ascending[: len(ascending) - int(_LEFT_OUT * len(ascending))]
    return sum(counted) / len(counted)


def _mlp_outputs(editor: VectorEditor, requests: Sequence[EditRequest]) -> list[Tensor]:
    """v0 of each request: what the last edited layer's MLP adds to the residual stream at the subject."""
    layout = editor.lm.layout
    layer = editor.hyperparameters.layers[-1]
    module_name = layout.mlp_norm(layer) or layout.mlp(layer)
    bare_prompts = [prompts[:1] for prompts in editor.prompts(requests)]
    outputs_by_module = read_at_subjects(editor.lm, bare_prompts, outputs=[module_name])
    multiplier = editor.lm.residual_multiplier
    return [multiplier * request_outputs[0] for request_outputs in outputs_by_module[module_name]]
