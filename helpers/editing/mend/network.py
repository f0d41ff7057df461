"""MEND's hypernetwork: from a token's input and output gradient to its share of a weight update.

For a matrix with input x and output gradient delta (Mitchell et al. 2022, eqs. 3 and 4):

    z = [normalise(x); normalise(delta)],   z <- z + relu(s · (U V z + b) + o)   twice,
    Delta W = rate · sum over tokens of delta~ x~^T,   z = [x~; delta~]

One network serves all matrices of a shape; scale s, shift o and rate are each matrix's own. The
statistics of the normalisation are measured before training and then fixed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from helpers import UserError
from helpers.kept import DamagedError, read_kept
from helpers.models.language_model import LanguageModel
from helpers.paths import written_whole

FIRST_RATE = -2e-4  # negative: before it has learned anything, MEND is a step of gradient descent
_SMALLEST_DEVIATION = 1e-7


class NetworkError(UserError):
    """Raised for a file that holds no hypernetwork, or one of another model or setting."""


class UntrainedError(NetworkError):
    """Raised where no network was trained for the model."""


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
    """Networks for the MLP matrices of some layers of one model.

    Args:
        shapes: [out, in] of every edited matrix, by module name.
        rank: of each layer's U and V.
        seed: of the random V.
    """

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
        shapes = {name: _shape(language_model.weight(name)) for name in names}
        return cls(shapes, rank, seed=seed)

    def forward(self, name: str, x: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        """Factors of the update of matrix ``name``: right [..., in] and left [..., out] per token.

        Tokens with a zero input or gradient contribute nothing; normalised zeros are not zero, so
        they are masked.

        Args:
            x: inputs [..., tokens, in].
            delta: output gradients [..., tokens, out].
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

    def checksum(self) -> str:
        """Sixteen hex digits that identify the learned values."""
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
        metadata = {
            "mend": json.dumps(described),
            "fingerprint": language_model.fingerprint,
        }
        with written_whole(path) as scratch:
            save_file({k: v.contiguous().cpu() for k, v in state.items()}, scratch, metadata)

    @classmethod
    def load(cls, path: Path, language_model: LanguageModel) -> Hypernetwork:
        """Read a network and check that it was trained for this model.

        Raises:
            NetworkError: no network in the file, a damaged one, or one of another model.
        """
        try:
            metadata, state = read_kept(path, _read)
        except DamagedError as error:
            remedy = "fetch the file again, or train one with python -m tools.train_mend"
            raise NetworkError(f"{error}; {remedy}") from error
        if "mend" not in metadata:
            raise NetworkError(f"{path} holds no MEND network: write it with mend_training")
        described = json.loads(metadata["mend"])
        if metadata["fingerprint"] != language_model.fingerprint:
            raise NetworkError(
                f"{path} was trained for {described['model']} ({metadata['fingerprint']}), not for"
                f" {language_model.name} ({language_model.fingerprint}): its gradients are another"
                " model's; train one with python -m tools.train_mend"
            )
        shapes = {name: (shape[0], shape[1]) for name, shape in described["shapes"].items()}
        network = cls(shapes, described["rank"])
        network.load_state_dict(state)
        return network.to(language_model.device).requires_grad_(False)


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Metadata and tensors in fp32."""
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
        return file.metadata() or {}, tensors


def contributes(x: Tensor, delta: Tensor) -> Tensor:
    """Boolean [..., tokens]: tokens with a non-zero input and a non-zero gradient."""
    return (x != 0).any(-1) & (delta != 0).any(-1)


def _shape(weight: Tensor) -> tuple[int, int]:
    return int(weight.shape[0]), int(weight.shape[1])


def _key(shape: tuple[int, int]) -> str:
    return f"{shape[0]}x{shape[1]}"
