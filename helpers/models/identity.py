"""What determines a model's numbers, in sixteen hex digits: configuration, weights, tokenizer, chat template.

All weights are digested, once for each file: the digests are kept under the file's path, size and times, so
that loading it again reads no weight twice. Weights that change in memory are digested again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from helpers.kept import kept
from helpers.paths import cache_folder, digest_of

# Of a configuration: what names the software that wrote it, or the type that weights are loaded in.
_WITHOUT_EFFECT = {"transformers_version", "architectures", "dtype", "torch_dtype", "use_cache"}
_LOOKED_AT = 64  # values of each tensor
# What a tokenizer does to a text before and after its vocabulary is looked up.
_STEPS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")


class TensorState(NamedTuple):
    """What differs between two looks at a tensor if its values changed: cheap to read, and not kept.

    torch counts changes in place, but not those through ``.data``. A few values show these where the
    whole tensor changes, as when an adapter is merged; a change of single values by that way is not seen.
    """

    address: int
    changes: int | None
    values: bytes


class WeightDigests:
    """SHA-256 of each of a network's parameters as they are in memory, computed where one has changed."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._known: dict[str, tuple[TensorState, str]] = {}

    def current(self) -> dict[str, str]:
        """Digests by the parameters' names."""
        digests = {}
        for name, parameter in self._network.named_parameters():
            state = _state_of(parameter)
            known_state, digest = self._known.get(name, (None, ""))
            if state != known_state:
                digest = _tensor_digest(parameter)
                self._known[name] = state, digest
            digests[name] = digest
        return digests

    def believe(self, digests: Mapping[str, str]) -> None:
        """Take kept digests for those of the weights, which were read from the same files just now."""
        for name, parameter in self._network.named_parameters():
            self._known[name] = _state_of(parameter), digests[name]


class TokenizerDigest:
    """All of a tokenizer that turns texts into ids and chats into texts, and ids into texts."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._vocabulary: tuple[int, str] = (-1, "")  # its size, which only grows, and its digest

    def current(self) -> dict[str, Any]:
        """The digest of the vocabulary, and the rest as it is."""
        tokenizer = self._tokenizer
        backend = tokenizer.backend_tokenizer
        if len(tokenizer) != self._vocabulary[0]:
            added = sorted(backend.get_added_tokens_decoder().items())
            content = backend.model.__getstate__() + repr(added).encode()
            self._vocabulary = len(tokenizer), digest_of(content)
        steps = {}
        for name in _STEPS:
            step = getattr(backend, name)
            steps[name] = None if step is None else json.loads(step.__getstate__())
        return {
            "vocabulary": self._vocabulary[1],
            "steps": steps,
            "special_tokens": tokenizer.special_tokens_map,
            "chat_template": tokenizer.chat_template,
        }


class CheckpointDigests:
    """Where the digests of a checkpoint's weights, loaded in one type, are kept in the user's cache."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        self._folder = folder
        self._dtype = dtype
        self._path = self._place()

    def attach(self, weights: WeightDigests) -> None:
        """Give a network that was just loaded from the checkpoint its digests; make and keep them once."""
        if self._path != self._place():  # the checkpoint was replaced while it was read
            return

        def make(scratch: Path) -> None:
            scratch.write_text(json.dumps(weights.current(), indent=1), "utf-8")

        weights.believe(kept(self._path, lambda file: json.loads(file.read_text("utf-8")), make))

    def _place(self) -> Path:
        """A file whose name holds the path, size and times of each of the checkpoint's files."""
        files = []
        for path in sorted(self._folder.glob("*.safetensors")):
            about = path.stat()
            files.append([path.name, about.st_size, about.st_mtime_ns, about.st_ctime_ns])
        made_of = [str(self._folder.resolve()), str(self._dtype), files]
        return cache_folder("digests") / f"{digest_of(json.dumps(made_of).encode())}.json"


def fingerprint_of(
    config: PreTrainedConfig,
    weights: Mapping[str, str],
    tokenizer: Mapping[str, Any],
    end_tokens: Collection[int],
) -> str:
    """Sixteen hex digits of everything that determines what a model makes of a text."""
    settings = {
        name: value
        for name, value in config.to_diff_dict().items()
        if name not in _WITHOUT_EFFECT and not name.startswith("_")
    }
    made_of = {
        "config": settings,
        "weights": weights,
        "tokenizer": tokenizer,
        "end_tokens": sorted(end_tokens),
    }
    return digest_of(json.dumps(made_of, sort_keys=True, default=str).encode())


def _state_of(parameter: Tensor) -> TensorState:
    changes = None if parameter.is_inference() else parameter._version
    flat = parameter.detach().reshape(-1)
    # One more than a divisor, or all values would be of one column.
    step = max(1, flat.numel() // _LOOKED_AT) + 1
    values = flat[::step][:_LOOKED_AT].float().cpu().numpy().tobytes()
    return TensorState(parameter.data_ptr(), changes, values)


def _tensor_digest(tensor: Tensor) -> str:
    """SHA-256 of a tensor's type, shape and bytes."""
    values = tensor.detach().contiguous().cpu()
    digest = hashlib.sha256(f"{values.dtype} {tuple(values.shape)} ".encode())
    digest.update(values.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
