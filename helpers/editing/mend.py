"""MEND: a trained hypernetwork turns a fine-tuning gradient into a low-rank edit.

The loss is the target's mean negative log-likelihood, with APP's first term where asked for. It is
differentiated once. For a matrix whose tokens have inputs x and output gradients delta, the network
computes (Mitchell et al. 2022, eqs. 3 and 4)

    z = [normalise(x); normalise(delta)],   z <- z + relu(s · (U V z + b) + o)   twice,
    Delta W = rate · sum over tokens of delta~ x~^T,   z = [x~; delta~]

One network serves all matrices of a shape; scale s, shift o and rate are each matrix's own. The
normalisation is measured before training (``tools.train_mend``) and then fixed. All edits of a batch
share one forward and one backward pass: their losses are summed, so each has its own gradient.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from safetensors import safe_open
from torch import Tensor, nn

from helpers import UserError
from helpers.editing.app import App
from helpers.editing.batch import EditBatch
from helpers.editing.editor import diagnostics_of
from helpers.editing.ft import LossEditor
from helpers.editing.icd import Icd
from helpers.editing.interventions import LowRank
from helpers.editing.presets import LossHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.rows import EditRow
from helpers.editing.weight_edit import WeightEdit
from helpers.kept import read_kept
from helpers.models import LanguageModel
from helpers.models.hooks import output_hooks
from helpers.models.state import in_own_state
from helpers.paths import PACKAGED, cache_folder

# Inputs [rows, tokens, in] and output gradients [rows, tokens, out] of each matrix.
TokenGradients = dict[str, tuple[Tensor, Tensor]]


class NetworkError(UserError):
    """A file that holds no hypernetwork, or one of another model or setting."""


class UntrainedError(NetworkError):
    """No network was trained for the model."""


class MendHyperparameters(LossHyperparameters):
    """MEND: all MLP matrices of ``layers`` are edited.

    ``rank`` is that of the hypernetwork's two layers, ``network`` its file: a path, or a name looked
    for in the packaged ``mend`` folder and the user's cache; empty means ``<model>.safetensors``.
    """

    rank: int = Field(default=1920, gt=0)
    network: str = ""


@dataclass
class Mend(LossEditor):
    """MEND on one model, with a trained network."""

    hyperparameters: MendHyperparameters
    network: Hypernetwork = field(kw_only=True)
    name = "mend"
    token_budget = 1024

    def settings(self) -> dict[str, Any]:
        """All that the updates depend on: any editor's settings, and a checksum of the network's weights."""
        return super().settings() | {"network": self.network.checksum}

    def as_trained(self, request: EditRequest) -> EditRequest:
        """The request without training probes that have no context.

        Before the edit such a probe has the gradient 0, and MEND would take its rounding for a token's
        gradient.
        """
        probes = tuple(probe for probe in request.probes if any(probe.contexts))
        return replace(request, probes=probes)

    def rows(self, requests: Sequence[EditRequest]) -> list[EditRow]:
        """What the loss of each request reads."""
        return super().rows([self.as_trained(request) for request in requests])

    @torch.no_grad()
    def edit_rows(self, rows: Sequence[EditRow]) -> list[WeightEdit]:
        """Low-rank updates from one forward and one backward pass."""
        module_names = list(self.network.shapes)
        first_layer = min(self.lm.layout.layer_of(name) for name in module_names)
        batch = EditBatch(self.lm, rows, first_layer)
        gradients, terms = token_gradients(batch, module_names, self.app, self.icd)
        deltas_of_rows: list[dict[str, LowRank]] = [{} for _ in rows]
        for module_name, (x, delta) in gradients.items():
            # All rows' tokens pass the network together.
            is_real = contributes(x, delta)  # [rows, tokens]
            token_counts = is_real.sum(-1).tolist()
            right, left = self.network(module_name, x[is_real], delta[is_real])
            factors = zip(right.split(token_counts), left.split(token_counts), strict=True)
            for deltas, (right_of_row, left_of_row) in zip(deltas_of_rows, factors, strict=True):
                deltas[module_name] = LowRank(left_of_row.T, right_of_row.T)
        by_row = torch.stack(list(terms.values()), dim=1).tolist()
        return [
            self._weight_edit(deltas, dict(zip(terms, values, strict=True)))
            for deltas, values in zip(deltas_of_rows, by_row, strict=True)
        ]

    def _weight_edit(self, deltas: dict[str, LowRank], losses: dict[str, float]) -> WeightEdit:
        notes = {"steps": 1, "losses": [losses]}
        tensors = [torch.tensor(list(losses.values()))]
        for delta in deltas.values():
            tensors += delta.tensors().values()
        if not all(bool(tensor.isfinite().all()) for tensor in tensors):
            failure = f"non-finite loss or gradient: {losses}"
            return WeightEdit({}, {"failure": failure, **notes})
        return WeightEdit(deltas, diagnostics_of(self.lm, deltas, notes))


def token_gradients(
    batch: EditBatch,
    module_names: Sequence[str],
    app: App | None = None,
    icd: Icd | None = None,
) -> tuple[TokenGradients, dict[str, Tensor]]:
    """Each row's loss differentiated at the matrices' outputs, and its terms [rows]; of APP, L1 alone."""
    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}

    def keep(module_name: str, entering: Tensor, output: Tensor) -> None:
        inputs[module_name] = entering
        outputs[module_name] = output

    # The graph begins at the first edited block's input: the weights themselves are frozen.
    batch.entering = batch.entering.detach().requires_grad_()
    hooks = {name: partial(keep, name) for name in module_names}
    with output_hooks(batch.lm, hooks), torch.enable_grad():
        terms = batch.loss_terms(batch.hidden(), app, icd)
        total = torch.stack(list(terms.values())).sum()
        gradients = torch.autograd.grad(total, [outputs[name] for name in module_names])
    of_tokens = {
        name: (inputs[name].detach().float(), gradient.float())
        for name, gradient in zip(module_names, gradients, strict=True)
    }
    return of_tokens, {name: term.detach() for name, term in terms.items()}


def contributes(x: Tensor, delta: Tensor) -> Tensor:
    """Boolean [..., tokens]: where neither input nor gradient is zero."""
    return (x != 0).any(-1) & (delta != 0).any(-1)


class _Layer(nn.Module):
    """A residual low-rank layer of width ``size``, with scale and shift per matrix."""

    def __init__(self, size: int, rank: int, matrices: int) -> None:
        super().__init__()
        self.left = nn.Parameter(torch.zeros(size, rank))
        self.right = nn.Parameter(torch.zeros(rank, size))
        self.bias = nn.Parameter(torch.zeros(size))
        self.scale = nn.Parameter(torch.ones(matrices, size))
        self.shift = nn.Parameter(torch.zeros(matrices, size))

    def forward(self, z: Tensor, matrix: int) -> Tensor:
        inner = (z @ self.right.T) @ self.left.T + self.bias
        return z + torch.relu(self.scale[matrix] * inner + self.shift[matrix])


class _ShapeNetwork(nn.Module):
    """The two layers for all matrices of one shape [out, in], and their normalisation."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, out: int, into: int, rank: int, matrices: int) -> None:
        super().__init__()
        self.into = into
        self.layers = nn.ModuleList(_Layer(out + into, rank, matrices) for _ in range(2))
        self.register_buffer("mean", torch.zeros(out + into))
        self.register_buffer("deviation", torch.ones(out + into))

    def forward(self, x: Tensor, delta: Tensor, matrix: int) -> tuple[Tensor, Tensor]:
        z = (torch.cat([x, delta], dim=-1) - self.mean) / (self.deviation + 1e-7)
        for layer in self.layers:
            z = layer(z, matrix)
        return z[..., : self.into], z[..., self.into :]


class Hypernetwork(nn.Module):
    """Networks of U and V of a ``rank`` for matrices of ``shapes`` [out, in], by module name."""

    def __init__(self, shapes: Mapping[str, tuple[int, int]], rank: int) -> None:
        super().__init__()
        self.shapes, self.rank = dict(shapes), rank
        self.members: dict[str, list[str]] = {}  # of each network, by the name of its shape
        for name, (out, into) in self.shapes.items():
            self.members.setdefault(f"{out}x{into}", []).append(name)
        self.networks = nn.ModuleDict()
        for key, members in self.members.items():
            shape = self.shapes[members[0]]
            self.networks[key] = _ShapeNetwork(*shape, min(rank, sum(shape)), len(members))
        self.rates = nn.Parameter(torch.zeros(len(self.shapes)))

    def forward(self, name: str, x: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        """Per token of ``x`` [..., in] and ``delta`` [..., out], right and left factor of the update.

        Tokens where one is zero contribute nothing; normalised zeros are not zero, so they are masked.
        """
        key = "x".join(map(str, self.shapes[name]))
        right, left = self.networks[key](x, delta, self.members[key].index(name))
        real = contributes(x, delta)[..., None]
        rate = self.rates[list(self.shapes).index(name)]
        return torch.where(real, right, 0.0), torch.where(real, rate * left, 0.0)

    @cached_property
    def checksum(self) -> str:
        """Sixteen hex digits that identify the learned values, which are then fixed."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.state_dict().items()):
            digest.update(name.encode() + tensor.float().cpu().numpy().tobytes())
        return digest.hexdigest()[:16]


@in_own_state
def load_network(lm: LanguageModel, preset: MendHyperparameters) -> Hypernetwork:
    """The trained hypernetwork that preset name, or a ``NetworkError``."""
    path = network_file(lm.name, preset)
    metadata, state = read_kept(path, _read_network)
    train = "train one with python -m tools.train_mend"
    if "mend" not in metadata:
        raise NetworkError(f"{path} holds no MEND network: {train}")
    described = json.loads(metadata["mend"])
    if metadata["fingerprint"] != lm.fingerprint:
        raise NetworkError(
            f"{path} was trained for {described['model']} ({metadata['fingerprint']}), not for"
            f" {lm.name} ({lm.fingerprint}); {train}"
        )
    shapes = {name: (out, into) for name, (out, into) in described["shapes"].items()}
    layers = {lm.layout.layer_of(name) for name in shapes}
    rank = described["rank"]
    if layers != set(preset.layers) or rank != preset.rank:
        raise NetworkError(
            f"{path} edits layers {sorted(layers)} at rank {rank}; the preset name"
            f" layers {sorted(preset.layers)}, rank {preset.rank}: make them agree"
        )
    network = Hypernetwork(shapes, rank)
    network.load_state_dict(state)
    return network.to(lm.device).requires_grad_(False)


def network_file(model: str, hyperparameters: MendHyperparameters) -> Path:
    """Where the trained hypernetwork is that hyperparameters name, or an ``UntrainedError``."""
    file = hyperparameters.network or f"{Path(model).name}.safetensors"
    places = [Path(file).expanduser(), PACKAGED / "mend" / file, cache_folder("mend") / file]
    for place in places:
        if place.is_file():
            return place
    raise UntrainedError(
        f"no MEND network {file} (looked in {', '.join(map(str, places))}); train one:"
        f" python -m tools.train_mend --model {model}"
    )


def _read_network(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
        return file.metadata() or {}, tensors
