"""MEND: a trained hypernetwork turns a fine-tuning gradient into a low-rank edit.

The loss is the target's mean negative log-likelihood, with APP's first term where asked for. It is
differentiated once. The hypernetwork maps every token's (input, output gradient) in the edited
matrices to a pair of factors; their outer products sum to the update (Mitchell et al. 2022). All
edits of a batch share one forward and one backward pass: their losses are summed, so each has its
own gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from helpers.editing.app import App
from helpers.editing.batch import EditBatch
from helpers.editing.build import Setup
from helpers.editing.deltas import LowRank
from helpers.editing.editor import diagnostics_of
from helpers.editing.hyperparameters import LayerHyperparameters
from helpers.editing.loss_editor import LossEditor
from helpers.editing.mend.network import Hypernetwork, NetworkError, UntrainedError, contributes
from helpers.editing.rows import EditRow
from helpers.editing.update import Update
from helpers.models.hooks import OnOutput, output_hooks
from helpers.models.language_model import LanguageModel
from helpers.paths import PACKAGED, cache_folder

TokenGradients = dict[str, tuple[Tensor, Tensor]]
"""Inputs [rows, tokens, in] and output gradients [rows, tokens, out] of each matrix."""


def load_network(
    language_model: LanguageModel, hyperparameters: MendHyperparameters
) -> Hypernetwork:
    """The trained hypernetwork that hyperparameters name.

    Raises:
        NetworkError: no such file, or a network of another model, of other layers or rank.
    """
    path = network_file(language_model.name, hyperparameters)
    network = Hypernetwork.load(path, language_model)
    layers = {language_model.layout.layer_of(name) for name in network.shapes}
    if layers != set(hyperparameters.layers) or network.rank != hyperparameters.rank:
        raise NetworkError(
            f"{path} edits layers {sorted(layers)} at rank {network.rank}; the hyperparameters say"
            f" layers {sorted(hyperparameters.layers)}, rank {hyperparameters.rank}: make them agree"
        )
    return network


def network_file(model: str, hyperparameters: MendHyperparameters) -> Path:
    """Where the trained hypernetwork is that hyperparameters name.

    Raises:
        UntrainedError: no such file, with the places that were looked at.
    """
    file = hyperparameters.network or f"{Path(model).name}.safetensors"
    places = [Path(file).expanduser(), PACKAGED / "mend" / file, cache_folder("mend") / file]
    for place in places:
        if place.is_file():
            return place
    raise UntrainedError(
        f"no MEND network {file} (looked in {', '.join(map(str, places))}); train one with"
        f" python -m tools.train_mend --model {model}"
    )


def token_gradients(
    batch: EditBatch, names: Sequence[str], app: App | None = None
) -> tuple[TokenGradients, dict[str, Tensor]]:
    """What the hypernetwork reads: each row's own loss, differentiated at the matrices' outputs.

    Args:
        batch: rows with their losses.
        names: the edited matrices.
        app: APP; only its first term has a gradient before any change is made.

    Returns:
        Inputs and gradients by matrix, and the loss terms [rows].
    """
    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}

    def keep(name: str) -> OnOutput:
        def on_output(entering: Tensor, output: Tensor) -> None:
            inputs[name], outputs[name] = entering, output

        return on_output

    # The graph begins at the first edited block's input: the weights themselves are frozen.
    batch.entering = batch.entering.detach().requires_grad_()
    hooks = {name: keep(name) for name in names}
    with output_hooks(batch.language_model, hooks), torch.enable_grad():
        terms = batch.loss_terms(batch.hidden(), app)
        total = torch.stack(list(terms.values())).sum()
        gradients = torch.autograd.grad(total, [outputs[name] for name in names])
    pairs = zip(names, gradients, strict=True)
    found = {name: (inputs[name].detach().float(), g.float()) for name, g in pairs}
    return found, {name: term.detach() for name, term in terms.items()}


class MendHyperparameters(LayerHyperparameters):
    """MEND: all MLP matrices of ``layers`` are edited.

    ``rank`` is that of the hypernetwork's two layers. ``network`` is the file of the trained
    hypernetwork: a path, or a name looked for in the packaged ``mend`` folder and the user's cache;
    empty means ``<model>.safetensors``.
    """

    rank: int = Field(default=1920, gt=0)
    network: str = ""


@dataclass
class Mend(LossEditor):
    """MEND on one model, with a trained network."""

    language_model: LanguageModel
    hyperparameters: MendHyperparameters
    network: Hypernetwork
    app: App | None = None
    targets: str = "new"
    token_budget: int = 1024
    progress: bool = False

    name = "mend"
    version = 1

    @classmethod
    def needs(cls, setup: Setup, hyperparameters: MendHyperparameters) -> dict[str, Any]:
        """The trained network that its hyperparameters name."""
        return {"network": load_network(setup.language_model, hyperparameters)}

    @cached_property
    def _checksum(self) -> str:
        return self.network.checksum()

    def settings(self) -> dict[str, Any]:
        """Also a checksum of the network's weights."""
        return super().settings() | {"network": self._checksum}

    def edit_rows(self, rows: Sequence[EditRow]) -> list[Update]:
        """Low-rank updates from one forward and one backward pass."""
        names = list(self.network.shapes)
        first = min(self.language_model.layout.layer_of(name) for name in names)
        batch = EditBatch.build(self.language_model, rows, first)
        gradients, terms = token_gradients(batch, names, self.app)
        deltas = self._deltas(gradients)
        return [
            self._update(
                {name: of_rows[row] for name, of_rows in deltas.items()},
                {name: float(term[row]) for name, term in terms.items()},
            )
            for row in range(len(rows))
        ]

    @torch.no_grad()
    def _deltas(self, gradients: TokenGradients) -> dict[str, list[LowRank]]:
        """Each matrix's deltas, one per row; all rows' tokens pass the hypernetwork together."""
        found = {}
        for name, (x, delta) in gradients.items():
            real = contributes(x, delta)
            counts = real.sum(-1).tolist()
            factors = (part.split(counts) for part in self.network(name, x[real], delta[real]))
            found[name] = [LowRank(left.T, right.T) for right, left in zip(*factors, strict=True)]
        return found

    def _update(self, deltas: Mapping[str, LowRank], terms: dict[str, float]) -> Update:
        """One edit's update, or none where its loss or a factor is not finite."""
        record = {"steps": 1, "losses": [terms]}
        factors = (factor for delta in deltas.values() for factor in (delta.left, delta.right))
        finite = all(bool(torch.isfinite(factor).all()) for factor in factors)
        if not finite or not all(abs(value) < float("inf") for value in terms.values()):
            return Update({}, {"failure": f"non-finite loss or gradient: {terms}", **record})
        return Update(deltas, diagnostics_of(self.language_model, deltas, extra=record))
