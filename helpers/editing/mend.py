"""MEND: a trained hypernetwork turns a fine-tuning gradient into a low-rank edit.

The loss is the target's mean negative log-likelihood, with APP's first term where asked for. It is
differentiated once. For a matrix whose tokens have inputs x and output gradients delta, the network
computes (Mitchell et al. 2022, eqs. 3 and 4)

    z = [normalise(x); normalise(delta)],   z <- z + relu(s · (U V z + b) + o)   twice,
    Delta W = rate · sum over tokens of delta~ x~^T,   z = [x~; delta~]

One network serves all matrices of a shape; scale s, shift o and rate are each matrix's own. The
statistics of the normalisation are measured before training (``tools.train_mend``) and then fixed. All
edits of a batch share one forward and one backward pass: their losses are summed, so each has its own
gradient.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from helpers import UserError
from helpers.editing.app import App
from helpers.editing.batch import EditBatch
from helpers.editing.editor import diagnostics_of
from helpers.editing.ft import LossEditor
from helpers.editing.presets import LayerHyperparameters
from helpers.editing.rows import EditRow
from helpers.editing.update import LowRank, Update
from helpers.kept import read_kept
from helpers.models.hooks import OnOutput, output_hooks
from helpers.models.language_model import LanguageModel
from helpers.paths import PACKAGED, cache_folder, written_whole

TokenGradients = dict[str, tuple[Tensor, Tensor]]
"""Inputs [rows, tokens, in] and output gradients [rows, tokens, out] of each matrix."""

FIRST_RATE = -2e-4  # negative: untrained MEND is gradient descent
_SMALLEST_DEVIATION = 1e-7


class NetworkError(UserError):
    """Raised for a file that holds no hypernetwork, or one of another model or setting."""


class UntrainedError(NetworkError):
    """Raised where no network was trained for the model."""


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

    hyperparameters: MendHyperparameters
    network: Hypernetwork = field(kw_only=True)

    name = "mend"
    token_budget = 1024

    def settings(self) -> dict[str, Any]:
        """Also a checksum of the network's weights."""
        return super().settings() | {"network": self.network.checksum}

    def edit_rows(self, rows: Sequence[EditRow]) -> list[Update]:
        """Low-rank updates from one forward and one backward pass."""
        names = list(self.network.shapes)
        first = min(self.language_model.layout.layer_of(name) for name in names)
        batch = EditBatch(self.language_model, rows, first)
        gradients, terms = token_gradients(batch, names, self.app)
        deltas = self._deltas(gradients)
        updates = []
        for row in range(len(rows)):
            own = {name: of_rows[row] for name, of_rows in deltas.items()}
            losses = {name: float(term[row]) for name, term in terms.items()}
            record = {"steps": 1, "losses": [losses]}
            numbers = [torch.tensor(list(losses.values()))]
            numbers += [factor for delta in own.values() for factor in (delta.left, delta.right)]
            if all(bool(each.isfinite().all()) for each in numbers):
                noted = diagnostics_of(self.language_model, own, extra=record)
                updates.append(Update(own, noted))
            else:
                failure = f"non-finite loss or gradient: {losses}"
                updates.append(Update({}, {"failure": failure, **record}))
        return updates

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


def token_gradients(
    batch: EditBatch, names: Sequence[str], app: App | None = None
) -> tuple[TokenGradients, dict[str, Tensor]]:
    """What the hypernetwork reads: each row's own loss, differentiated at the matrices' outputs.

    Of APP only the first term has a gradient before any change is made.

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


def contributes(x: Tensor, delta: Tensor) -> Tensor:
    """Boolean [..., tokens]: where neither input nor gradient is zero."""
    return (x != 0).any(-1) & (delta != 0).any(-1)


class _Layer(nn.Module):
    """A residual low-rank layer of width ``size``, with scale and shift per matrix."""

    def __init__(self, size: int, rank: int, matrices: int) -> None:
        super().__init__()
        self.left = nn.Parameter(torch.zeros(size, rank))
        self.right = nn.Parameter(torch.randn(rank, size) / size**0.5)
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
        z = (torch.cat([x, delta], dim=-1) - self.mean) / (self.deviation + _SMALLEST_DEVIATION)
        for layer in self.layers:
            z = layer(z, matrix)
        return z[..., : self.into], z[..., self.into :]


class Hypernetwork(nn.Module):
    """Networks of U and V of a ``rank`` for matrices of ``shapes`` [out, in], by module name."""

    def __init__(self, shapes: Mapping[str, tuple[int, int]], rank: int, *, seed: int = 0) -> None:
        super().__init__()
        self.shapes, self.rank = dict(shapes), rank
        self._members: dict[tuple[int, int], list[str]] = {}
        for name, shape in self.shapes.items():
            self._members.setdefault(shape, []).append(name)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.networks = nn.ModuleDict(
                {
                    _key(shape): _ShapeNetwork(*shape, min(rank, sum(shape)), len(members))
                    for shape, members in self._members.items()
                }
            )
        self.rates = nn.Parameter(torch.full((len(self.shapes),), FIRST_RATE))

    @classmethod
    def for_layers(
        cls, language_model: LanguageModel, layers: Sequence[int], rank: int, *, seed: int = 0
    ) -> Hypernetwork:
        """An untrained network for all MLP matrices of ``layers``."""
        layout = language_model.layout
        names = [n for layer in layers for n in (*layout.mlp_in(layer), layout.mlp_out(layer))]
        sizes = ((name, language_model.weight(name).shape) for name in names)
        return cls({name: (out, into) for name, (out, into) in sizes}, rank, seed=seed)

    def forward(self, name: str, x: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        """Factors of the update of matrix ``name``: right [..., in] and left [..., out] per token.

        ``x`` are inputs [..., tokens, in], ``delta`` output gradients [..., tokens, out]. Tokens where
        one is zero contribute nothing; normalised zeros are not zero, so they are masked.
        """
        shape = self.shapes[name]
        network = self.networks[_key(shape)]
        right, left = network(x, delta, self._members[shape].index(name))
        real = contributes(x, delta)[..., None]
        rate = self.rates[list(self.shapes).index(name)]
        return torch.where(real, right, 0.0), torch.where(real, rate * left, 0.0)

    @torch.no_grad()
    def normalise_by(self, tokens: Mapping[str, Tensor]) -> None:
        """Set the normalisation from each matrix's contributing tokens, [n, in + out]."""
        for shape, members in self._members.items():
            seen = torch.cat([tokens[name] for name in members])
            network = self.networks[_key(shape)]
            network.mean.copy_(seen.mean(0))  # type: ignore[operator]
            network.deviation.copy_(seen.std(0))  # type: ignore[operator]

    @cached_property
    def checksum(self) -> str:
        """Sixteen hex digits that identify the learned values, which are then fixed."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.state_dict().items()):
            digest.update(name.encode() + tensor.float().cpu().numpy().tobytes())
        return digest.hexdigest()[:16]

    def save(self, path: Path, language_model: LanguageModel) -> None:
        """Write the network to a safetensors file, learned matrices in half precision.

        The statistics stay in fp32: gradients are too small for half precision.
        """
        state = {
            name: tensor.half() if name.endswith((".left", ".right")) else tensor.float()
            for name, tensor in self.state_dict().items()
        }
        described = {"shapes": self.shapes, "rank": self.rank, "model": language_model.name}
        metadata = {"mend": json.dumps(described), "fingerprint": language_model.fingerprint}
        with written_whole(path) as scratch:
            save_file({k: v.contiguous().cpu() for k, v in state.items()}, scratch, metadata)


def load_network(
    language_model: LanguageModel, hyperparameters: MendHyperparameters
) -> Hypernetwork:
    """The trained hypernetwork that hyperparameters name.

    Raises:
        NetworkError: no such file, or a network of another model, of other layers or rank.
    """
    path = network_file(language_model.name, hyperparameters)
    metadata, state = read_kept(path, _read)
    if "mend" not in metadata:
        raise NetworkError(
            f"{path} holds no MEND network: train one with python -m tools.train_mend"
        )
    described = json.loads(metadata["mend"])
    if metadata["fingerprint"] != language_model.fingerprint:
        raise NetworkError(
            f"{path} was trained for {described['model']} ({metadata['fingerprint']}), not for"
            f" {language_model.name} ({language_model.fingerprint}); train one with"
            " python -m tools.train_mend"
        )
    shapes = {name: (out, into) for name, (out, into) in described["shapes"].items()}
    layers, rank = {language_model.layout.layer_of(name) for name in shapes}, described["rank"]
    if layers != set(hyperparameters.layers) or rank != hyperparameters.rank:
        raise NetworkError(
            f"{path} edits layers {sorted(layers)} at rank {rank}; the hyperparameters name"
            f" layers {sorted(hyperparameters.layers)}, rank {hyperparameters.rank}: make them agree"
        )
    network = Hypernetwork(shapes, rank)
    network.load_state_dict(state)
    return network.to(language_model.device).requires_grad_(False)


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


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Metadata and tensors in fp32."""
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
        return file.metadata() or {}, tensors


def _key(shape: tuple[int, int]) -> str:
    return f"{shape[0]}x{shape[1]}"
