"""Second moments of keys: C = mean over tokens of k k^T, uncentred, for the ROME family.

k [f] is the input of a block's second MLP matrix. Every document is read after the special tokens
that the tokenizer puts before a prompt, as the ROME family does, so that C describes the keys that edits
meet. Computing C is an explicit step: cached per model fingerprint and corpus, written as it goes,
resumed where it stopped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import ClassVar

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from tqdm.auto import tqdm

from helpers.editing.corpus import Corpus
from helpers.editing.null_space import Directions, NullSpace
from helpers.editing.packaged_moments import packaged_file, unpacked
from helpers.kept import DamagedError, forget_kept, kept_whole, read_kept, sound
from helpers.models.batching import run_halving
from helpers.models.forward import hidden_states
from helpers.models.language_model import LanguageModel
from helpers.models.padding import padded
from helpers.models.tokens import prompt_prefix
from helpers.models.trace import record_inputs
from helpers.paths import cache_folder

SAVE_EVERY = 300.0  # seconds between two copies of unfinished sums: gigabytes, for a large model


class SecondMomentError(ValueError):
    """Raised for statistics that are missing, singular, or made with another model."""


@dataclass(frozen=True)
class SecondMoment:
    """C of one layer: ``matrix`` [f, f] in fp32, ``tokens`` counted, and where it comes from.

    The matrix stays where it was read; what is solved with is made, and kept, on ``device``.
    ``file`` is where it was read from, if it was.
    """

    version: ClassVar[int] = 1  # raise it when keys are counted in another way
    matrix: Tensor
    tokens: int
    layer: int
    fingerprint: str
    corpus: str
    device: str | torch.device = "cpu"
    file: Path | None = None

    @cached_property
    def _factor(self) -> Tensor:
        factor, info = torch.linalg.cholesky_ex(self.matrix.to(self.device).double())
        if int(info):
            raise SecondMomentError(
                f"the second moment of layer {self.layer} is singular ({self.tokens} tokens of"
                f" {self.corpus} for {self.matrix.shape[0]} dimensions); use more tokens"
            )
        return factor

    @cached_property
    def directions(self) -> Directions:
        """Its eigenvalues and eigenvectors; those of a large one are kept beside its file."""
        return Directions.of(self.matrix.to(self.device), self.file)

    @cached_property
    def _null_spaces(self) -> dict[float, NullSpace]:
        return {}

    def null_space(self, threshold: float) -> NullSpace:
        """Directions in which it is below ``threshold``, found once (AlphaEdit)."""
        if threshold not in self._null_spaces:
            self._null_spaces[threshold] = NullSpace.of(self.directions, threshold)
        return self._null_spaces[threshold]

    def solve(self, keys: Tensor) -> Tensor:
        """C^-1 keys for keys [f, n] (or [f]), solved in fp64 by one Cholesky factor per layer."""
        columns = keys.double().reshape(keys.shape[0], -1)
        solved = torch.cholesky_solve(columns.to(self.device), self._factor)
        return solved.reshape(keys.shape).to(keys.device)

    def to(self, device: str | torch.device) -> SecondMoment:
        """The same, solved with on another device."""
        return replace(self, device=device)


def second_moment(
    language_model: LanguageModel,
    layers: Sequence[int],
    corpus: Corpus,
    *,
    token_budget: int = 4096,
    folder: Path | None = None,
    progress: bool = False,
) -> dict[int, SecondMoment]:
    """Second moments of the given layers, computed where the cache does not hold them.

    Partial sums are saved every few minutes, so an interrupted run goes on.

    Args:
        layers: blocks whose second MLP matrix's input is measured.
        corpus: the documents (see ``helpers.editing.corpus``).
        folder: cache folder; default: the user's cache under the model's fingerprint.

    Raises:
        SecondMomentError: a cached file belongs to another model.
    """
    prefixed = bool(prompt_prefix(language_model))
    root = folder or moments_folder(language_model.fingerprint, corpus, prefixed=prefixed)
    there = {layer: sound(_path(root, layer), _read) for layer in layers}
    missing = [layer for layer, moment in there.items() if moment is None]
    if folder is None:
        for layer in [each for each in missing if packaged_file(root, each).exists()]:
            matrix, about = unpacked(packaged_file(root, layer))
            save(SecondMoment(matrix, **about), _path(root, layer))
            missing.remove(layer)
    if missing:
        root.mkdir(parents=True, exist_ok=True)
        _accumulate(language_model, missing, corpus, root, token_budget, progress)
    return {layer: load(_path(root, layer), language_model) for layer in layers}


def moments_folder(fingerprint: str, corpus: Corpus, *, prefixed: bool) -> Path:
    """Where the user's cache keeps a model's second moments over a corpus; no moments are made.

    Args:
        fingerprint: the model's.
        corpus: the documents.
        prefixed: whether the model's tokenizer puts special tokens before each document.
    """
    version = SecondMoment.version
    name = "second_moments" if version == 1 else f"second_moments_{version}"
    return cache_folder(name) / fingerprint / _described(corpus, prefixed=prefixed)


def missing_layers(layers: Sequence[int], folder: Path) -> list[int]:
    """Those of the layers whose second moments neither the folder nor the package holds."""
    there = (
        _path(folder, layer).exists() or packaged_file(folder, layer).exists() for layer in layers
    )
    return [layer for layer, found in zip(layers, there, strict=True) if not found]


def load(path: Path, language_model: LanguageModel) -> SecondMoment:
    """Read one layer's statistics and check that this model made them.

    Raises:
        SecondMomentError: another model's fingerprint, no such file, or a damaged one.
    """
    if not path.exists():
        raise SecondMomentError(f"no second moment at {path}; compute it with second_moment(...)")
    try:
        moment = read_kept(path, _read)
    except DamagedError as error:
        raise SecondMomentError(f"{error}; delete it, second_moment(...) makes it again") from error
    check_fingerprint(moment, language_model, str(path))
    return replace(moment, device=language_model.device, file=path)


def _read(path: Path) -> SecondMoment:
    with safe_open(path, "pt") as file:
        metadata = json.loads(file.metadata()["about"])
        return SecondMoment(file.get_tensor("matrix"), **metadata)


def check_fingerprint(
    moment: SecondMoment, language_model: LanguageModel, where: str = "given"
) -> None:
    """Raise ``SecondMomentError`` where the statistics were made with another model."""
    if moment.fingerprint != language_model.fingerprint:
        raise SecondMomentError(
            f"the second moment of layer {moment.layer} ({where}) was made with model"
            f" {moment.fingerprint}, but {language_model.name} is {language_model.fingerprint};"
            " compute it again with second_moment(...)"
        )


def save(moment: SecondMoment, path: Path) -> None:
    """Write one layer's statistics with their provenance."""
    about = {
        "tokens": moment.tokens,
        "layer": moment.layer,
        "fingerprint": moment.fingerprint,
        "corpus": moment.corpus,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with kept_whole(path) as scratch:
        save_file({"matrix": moment.matrix.float().cpu()}, scratch, {"about": json.dumps(about)})


def _described(corpus: Corpus, *, prefixed: bool) -> str:
    """The corpus's name, with a word where special tokens come before each document."""
    return f"{corpus.name}-bos" if prefixed else corpus.name


def _path(root: Path, layer: int) -> Path:
    return root / f"layer{layer}.safetensors"


_UNFINISHED = "sums-{}.partial.safetensors"  # layers, so that runs over others leave it alone


def _discard_finished(root: Path) -> None:
    """Remove the sums of runs whose every layer has its file by now."""
    for path in root.glob(_UNFINISHED.format("*")):
        layers = path.name.split(".")[0].removeprefix("sums-").split("-")
        if all(_path(root, int(layer)).exists() for layer in layers):
            forget_kept(path)


@dataclass
class _Sums:
    """Running sums of k k^T per layer and how far the corpus was read."""

    matrices: dict[int, Tensor]
    tokens: int = 0
    documents: int = 0

    def save(self, path: Path) -> None:
        about = {"tokens": str(self.tokens), "documents": str(self.documents)}
        with kept_whole(path) as scratch:
            save_file({str(k): v.cpu() for k, v in self.matrices.items()}, scratch, about)

    @classmethod
    def _read(cls, path: Path) -> _Sums:
        with safe_open(path, "pt") as file:
            about = file.metadata()
            matrices = {int(key): file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            return cls(matrices, int(about["tokens"]), int(about["documents"]))

    @classmethod
    def resume(cls, root: Path, layers: Sequence[int], size: int, device: torch.device) -> _Sums:
        """The sums of an unfinished run over these layers, and perhaps more; else none yet."""
        for path in sorted(root.glob(_UNFINISHED.format("*"))):
            found = sound(path, cls._read)
            if found is not None and set(layers) <= set(found.matrices):
                matrices = {layer: found.matrices[layer].to(device) for layer in layers}
                return cls(matrices, found.tokens, found.documents)
        return cls({layer: torch.zeros(size, size, device=device) for layer in layers})


def _accumulate(
    language_model: LanguageModel,
    layers: Sequence[int],
    corpus: Corpus,
    root: Path,
    token_budget: int,
    progress: bool,
) -> None:
    layout = language_model.layout
    unfinished = root / _UNFINISHED.format("-".join(map(str, sorted(layers))))
    sums = _Sums.resume(root, layers, layout.intermediate_size, language_model.device)
    names = {layout.mlp_out(layer): layer for layer in layers}
    prefix = prompt_prefix(language_model)
    name = _described(corpus, prefixed=bool(prefix))
    longest = language_model.context_length
    documents_left = (
        [*prefix, *document][:longest]
        for document in islice(corpus.documents(language_model), sums.documents, None)
    )
    bar = tqdm(desc=f"second moment ({name})", unit="token", disable=not progress)
    saved = time.monotonic()
    for documents in _batches(documents_left, token_budget):
        for part in run_halving(documents, lambda d: _keys(language_model, d, list(names))):
            for module, keys in part.items():
                sums.matrices[names[module]].addmm_(keys.T, keys)
        sums.tokens += sum(map(len, documents))
        sums.documents += len(documents)
        bar.update(sum(map(len, documents)))
        if time.monotonic() - saved >= SAVE_EVERY:
            sums.save(unfinished)
            saved = time.monotonic()
    bar.close()
    if not sums.tokens:
        raise SecondMomentError(f"corpus {name} holds no tokens")
    for layer, matrix in sums.matrices.items():
        moment = SecondMoment(
            matrix / sums.tokens, sums.tokens, layer, language_model.fingerprint, name
        )
        save(moment, _path(root, layer))
    _discard_finished(root)


def _batches(documents: Iterator[list[int]], token_budget: int) -> Iterator[list[list[int]]]:
    """Consecutive documents whose padded size stays in the budget."""
    batch: list[list[int]] = []
    for document in documents:
        widest = max([len(document), *map(len, batch)])
        if batch and widest * (len(batch) + 1) > token_budget:
            yield batch
            batch = []
        batch.append(document)
    if batch:
        yield batch


@torch.inference_mode()
def _keys(
    language_model: LanguageModel, documents: Sequence[list[int]], names: Sequence[str]
) -> dict[str, Tensor]:
    """Inputs of the named modules at every real token, [tokens, f] in fp32."""
    batch = padded(language_model, documents)
    with record_inputs(language_model, names) as inputs:
        hidden_states(language_model, batch.ids, batch.positions, batch.visible)
    return {name: inputs[name][batch.real].float() for name in names}
