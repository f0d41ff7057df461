"""ROME: a rank-one update of one MLP matrix that maps the subject's key to an optimised value.

With C the keys' second moment, k_bar the key averaged over context templates, u = C^-1 k_bar scaled
to unit length, k and y the bare prompt's key and value, and v* = y + delta the optimised value:

    Delta W = (v* - y) u^T / (k . u)

so that (W + Delta W) k = v* (Meng et al. 2022, eq. 2; PEAK, eq. 13 uses k_bar for k as well:
``rome_key="averaged"``, known as R-ROME).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from helpers.editing.app import App
from helpers.editing.context import ContextTemplates
from helpers.editing.deltas import LowRank
from helpers.editing.editor import Editor, diagnostics_of, failed
from helpers.editing.hyperparameters import RomeHyperparameters
from helpers.editing.keys import read_at_subjects
from helpers.editing.request import EditRequest
from helpers.editing.rows import edit_row, subject_prompts
from helpers.editing.second_moment import SecondMoment, check_fingerprint
from helpers.editing.update import Update
from helpers.editing.vector import Vector, optimise_vectors
from helpers.models.language_model import LanguageModel


@dataclass
class Rome(Editor):
    """ROME on one model.

    ``second_moments`` maps the edited layer to its statistics (unused with ``mom2_adjustment``
    off). ``targets="all"`` makes every correct answer a target (PEAK, Table 5).
    """

    language_model: LanguageModel
    hyperparameters: RomeHyperparameters
    contexts: ContextTemplates
    second_moments: Mapping[int, SecondMoment] = field(default_factory=dict)
    app: App | None = None
    targets: str = "new"
    token_budget: int = 2048
    progress: bool = False

    name = "rome"

    def __post_init__(self) -> None:
        for moment in self.second_moments.values():
            check_fingerprint(moment, self.language_model)

    def settings(self) -> dict[str, Any]:
        """Also the context templates, the statistics and the choice of targets."""
        statistics = {str(k): [m.corpus, m.tokens] for k, m in self.second_moments.items()}
        return super().settings() | {
            "contexts": [list(group) for group in self.contexts.groups],
            "second_moments": statistics,
            "targets": self.targets,
        }

    @property
    def layer(self) -> int:
        """The edited block."""
        return self.hyperparameters.layers[0]

    def edit(self, requests: Sequence[EditRequest]) -> list[Update]:
        """One independent rank-one update per request."""
        layout = self.language_model.layout
        vectors = self._vectors(requests)
        prompts = [subject_prompts(self.language_model, r, self.contexts) for r in requests]
        keys = read_at_subjects(
            self.language_model, prompts, layout.mlp_out(self.layer), inputs=True
        )
        return [self._update(v, k) for v, k in zip(vectors, keys, strict=True)]

    def _vectors(self, requests: Sequence[EditRequest]) -> list[Vector]:
        rows = [
            edit_row(
                self.language_model,
                request,
                self.contexts,
                self.app,
                all_answers=self.targets == "all",
            )
            for request in requests
        ]
        return optimise_vectors(
            self.language_model,
            rows,
            self.language_model.layout.mlp(self.layer),
            self.hyperparameters,
            self.app,
            token_budget=self.token_budget,
            progress=self.progress,
        )

    def _update(self, vector: Vector, keys: Tensor) -> Update:
        """Turn an optimised vector and the keys [templates, f] into a rank-one update."""
        weights = torch.tensor(self.contexts.weights, device=keys.device)
        averaged = weights @ keys
        direction = self._direction(averaged)
        key = averaged if self.hyperparameters.rome_key == "averaged" else keys[0]
        product = key.double() @ direction
        left = (vector.delta.double() / product).float()
        if vector.failure or not bool(torch.isfinite(left).all()):
            return failed(
                vector, vector.failure or "the key is orthogonal to its direction (k.u = 0)"
            )
        module = self.language_model.layout.mlp_out(self.layer)
        deltas = {module: LowRank(left[:, None], direction.float()[:, None])}
        extra: dict[str, Any] = {"key_dot_direction": float(product)}
        return Update(deltas, diagnostics_of(self.language_model, deltas, vector, extra))

    def _direction(self, averaged: Tensor) -> Tensor:
        """u, the unit vector along C^-1 k_bar (or k_bar), in fp64."""
        if not self.hyperparameters.mom2_adjustment:
            solved = averaged.double()
        else:
            solved = self.second_moments[self.layer].solve(averaged).double()
        return solved / solved.norm()
