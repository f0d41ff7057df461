"""What determines a model's numbers, in sixteen hex digits: configuration, weights, tokenizer, chat template.

All weights are digested, once for each file: the digests are kept under the file's path, size and times, so
that loading it again reads no weight twice. Weights that change in memory are digested again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from helpers import UserError
from helpers.kept import load_or_make
from helpers.paths import cache_folder, digest_of

# Of a configuration: what names the software that wrote it, or the type that weights are loaded in.
_WITHOUT_EFFECT = {"transformers_version", "architectures", "dtype", "torch_dtype", "use_cache"}
# Words of eight bytes in a row whose columns are added up: a prime, so that columns of the sums are none
# of the tensor's, and an exchange of two of its rows or columns changes them.
_WIDTH = 1021
# What a tokenizer does to a text before and after its vocabulary is looked up.
_STEPS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
# What also changes texts or ids where it is switched on, as few tokenizers have it.
_SWITCHES = ("split_special_tokens", "clean_up_tokenization_spaces")


class TensorState(NamedTuple):
    """What differs between two looks at a tensor if its values changed: cheap to read, and not kept.

    torch counts changes in place, but not those through ``.data``, by which many tools write weights. The
    sums of the tensor's bits show these: of one value as well, and of two that are exchanged.
    """

    address: int
    changes: int | None
    sums: str | None = None  # not read yet: a model that was just loaded is as its files are

    def matches(self, earlier: TensorState) -> bool:
        """Whether nothing tells that the tensor changed since an earlier look."""
        if self.address != earlier.address or self.changes != earlier.changes:
            return False
        return earlier.sums is None or earlier.sums == self.sums


class WeightDigests:
    """SHA-256 of each of a network's weights as they are in memory, computed where one has changed.

    Weights are its parameters, and the buffers that a checkpoint would hold, such as pruning's masks.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._digested: dict[str, tuple[TensorState, str]] = {}  # by the weight's name

    def current(self) -> dict[str, str]:
        """Digests by the weights' names."""
        return {name: self._digest_now(name, weight) for name, weight in self._weights()}

    def as_counted(self) -> dict[str, str]:
        """``current`` in milliseconds: a weight is read again only where torch counted a change of it.

        So a change through ``.data`` is not seen.
        """
        digests = {}
        for name, weight in self._weights():
            changes = _changes_of(weight)
            earlier_state, digest = self._digested.get(name, (None, ""))
            is_as_before = earlier_state is not None and (
                (weight.data_ptr(), changes) == (earlier_state.address, earlier_state.changes)
            )
            if changes is None or not is_as_before:
                digest = self._digest_now(name, weight)
            digests[name] = digest
        return digests

    def believe(self, digests: Mapping[str, str]) -> None:
        """Take kept digests, by the weights' names, for those of weights just read from the same files."""
        for name, weight in self._weights():
            state = TensorState(weight.data_ptr(), _changes_of(weight))
            self._digested[name] = state, digests[name]

    def _digest_now(self, name: str, weight: Tensor) -> str:
        """A weight's digest, computed again where its bits tell that it changed."""
        state = _state_of(weight)
        earlier_state, digest = self._digested.get(name, (None, ""))
        if earlier_state is None or not state.matches(earlier_state):
            digest = _tensor_digest(weight)
        self._digested[name] = state, digest
        return digest

    def _weights(self) -> Iterator[tuple[str, Tensor]]:
        yield from self._network.named_parameters()
        for module_path, module in self._network.named_modules():
            for name, buffer in module.named_buffers(module_path, recurse=False):
                if name.rpartition(".")[2] not in module._non_persistent_buffers_set:
                    yield name, buffer


class TokenizerDigest:
    """What of a tokenizer determines how it turns texts into ids, chats into texts, and ids into texts."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = b""
        self._size_when_read = -1  # the tokenizer's, when its vocabulary was read

    def current(self) -> dict[str, Any]:
        """The digest of the vocabulary, and all else as the tokenizer has it."""
        tokenizer = self._tokenizer
        backend = tokenizer.backend_tokenizer
        if len(tokenizer) != self._size_when_read:
            self._vocabulary = backend.model.__getstate__()
            self._size_when_read = len(tokenizer)
        # A word of the vocabulary may be added too, which changes how texts are cut but not the size.
        added = sorted(backend.get_added_tokens_decoder().items())
        steps = {}
        for name in _STEPS:
            step = getattr(backend, name)
            steps[name] = None if step is None else json.loads(step.__getstate__())
        return {
            "vocabulary": digest_of(self._vocabulary + repr(added).encode()),
            "steps": steps,
            "special_tokens": tokenizer.special_tokens_map,
            "chat_template": tokenizer.chat_template,
            **{name: True for name in _SWITCHES if getattr(tokenizer, name, False)},
        }


class CheckpointDigests:
    """The digests of a checkpoint's weights, loaded in one type, as they are kept in the user's cache."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        self._folder = folder
        self._dtype = dtype
        self._files_digest = self._digest_of_files()

    def attach(self, weights: WeightDigests) -> None:
        """Give a network that was just loaded from the checkpoint its digests; make and keep them once.

        Where nothing can be kept, as on a read-only disk, they are made when they are asked for.
        """
        if (
            self._files_digest != self._digest_of_files()
        ):  # the checkpoint was replaced while it was read
            return

        def read(file: Path) -> dict[str, str]:
            digests: dict[str, str] = json.loads(file.read_text("utf-8"))
            return digests

        def make(scratch: Path) -> None:
            scratch.write_text(json.dumps(weights.current(), indent=1), "utf-8")

        with suppress(OSError, UserError):
            path = cache_folder("digests") / f"{self._files_digest}.json"
            weights.believe(load_or_make(path, read, make))

    def _digest_of_files(self) -> str:
        """A digest of the path, size and times of each of the checkpoint's files.

        Which weights a network has, and how they are read, config.json and transformers decide.
        """
        files = []
        for path in sorted([self._folder / "config.json", *self._folder.glob("*.safetensors")]):
            status = path.stat()
            files.append([path.name, status.st_size, status.st_mtime_ns, status.st_ctime_ns])
        folder = str(self._folder.resolve())
        ingredients = [folder, str(self._dtype), transformers.__version__, files]
        return digest_of(json.dumps(ingredients).encode())


def fingerprint_of(
    config: PreTrainedConfig,
    weight_digests: Mapping[str, str],
    tokenizer_parts: Mapping[str, Any],
    end_tokens: Collection[int],
) -> str:
    """Sixteen hex digits of everything that determines what a model makes of a text.

    Args:
        weight_digests: by the weights' names, as ``WeightDigests`` gives them.
        tokenizer_parts: as ``TokenizerDigest`` gives them.
        end_tokens: token ids that end a generated text.
    """
    settings = {
        name: value
        for name, value in config.to_diff_dict().items()
        if name not in _WITHOUT_EFFECT and not name.startswith("_")
    }
    ingredients = {
        "config": settings,
        "weights": weight_digests,
        "tokenizer": tokenizer_parts,
        "end_tokens": sorted(end_tokens),
    }
    return digest_of(json.dumps(ingredients, sort_keys=True, default=str).encode())


def _state_of(weight: Tensor) -> TensorState:
    return TensorState(weight.data_ptr(), _changes_of(weight), _sums_of_bits(weight))


def _changes_of(weight: Tensor) -> int | None:
    """How often torch counted that a tensor changed in place; it counts nothing in inference mode."""
    return None if weight.is_inference() else weight._version


def _sums_of_bits(weight: Tensor) -> str:
    """A digest of the sums of a tensor's bits, read once; of what fills no row, the bits themselves."""
    flat = weight.detach().contiguous().reshape(-1)
    row_length = _WIDTH * 8 // flat.itemsize  # values
    in_full_rows = flat.numel() // row_length * row_length
    words = flat[:in_full_rows].view(torch.int64).reshape(-1, _WIDTH)  # [rows, _WIDTH]
    column_sums = words.sum(0)  # they wrap around
    last_bytes = flat[in_full_rows:].view(torch.uint8)
    return digest_of(column_sums.cpu().numpy().tobytes() + last_bytes.cpu().numpy().tobytes())


def _tensor_digest(tensor: Tensor) -> str:
    """SHA-256 of a tensor's type, shape and bytes."""
    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
    values = tensor.detach().contiguous().cpu().reshape(-1)
    digest.update(values.view(torch.uint8).numpy().data)
    return digest.hexdigest()
