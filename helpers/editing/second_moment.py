"""Second moments of keys: C = mean over tokens of k k^T, uncentred, for the ROME family.

k [f] is the input of a block's second MLP matrix. Every document is read after the special tokens
that the tokenizer puts before a prompt, as the ROME family does, so that C describes the keys that edits
meet. Computing C is an explicit step: cached per model fingerprint and corpus, written as it goes,
resumed where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from helpers.editing.corpus import Corpus
from helpers.editing.key_sums import discard_finished, sum_keys
from helpers.editing.null_space import Directions, NullSpace
from helpers.editing.packaged_moments import packaged_file, unpacked
from helpers.kept import DamagedError, kept_at, kept_whole, read_kept, sound
from helpers.models.language_model import LanguageModel
from helpers.models.precision import exact_products
from helpers.models.tokens import prompt_prefix
from helpers.paths import cache_folder


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
) -> dict[int, SecondMoment]:
    """Second moments of the given layers, computed where the cache does not hold them.

    Partial sums are saved every few minutes, so an interrupted run resumes.

    Args:
        layers: blocks whose second MLP matrix's input is measured.
        corpus: the documents (see ``helpers.editing.corpus``).
        folder: cache folder; default: the user's cache under the model's fingerprint.

    Raises:
        SecondMomentError: a cached file belongs to another model.
    """
    prefixed, fingerprint = bool(prompt_prefix(language_model)), language_model.fingerprint
    root = folder or moments_folder(fingerprint, corpus, prefixed=prefixed)
    there = {layer: sound(_path(root, layer), _read) for layer in layers}
    missing = [layer for layer, moment in there.items() if moment is None]
    if folder is None:
        for layer in [each for each in missing if packaged_file(root, each).exists()]:
            matrix, about = unpacked(packaged_file(root, layer))
            save(SecondMoment(matrix, **about), _path(root, layer))
            missing.remove(layer)
    if missing:
        root.mkdir(parents=True, exist_ok=True)
        name = _described(corpus, prefixed=prefixed)
        with exact_products():  # shared by models of one fingerprint, whatever their products
            sums = sum_keys(language_model, missing, corpus, root, token_budget=token_budget)
        if not sums.tokens:
            raise SecondMomentError(f"corpus {name} holds no tokens")
        for layer, matrix in sums.matrices.items():
            mean = matrix / sums.tokens
            save(SecondMoment(mean, sums.tokens, layer, fingerprint, name), _path(root, layer))
        discard_finished(root, lambda layer: kept_at(_path(root, layer)).exists())
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
        kept_at(_path(folder, layer)).exists() or packaged_file(folder, layer).exists()
        for layer in layers
    )
    return [layer for layer, found in zip(layers, there, strict=True) if not found]


def load(path: Path, language_model: LanguageModel) -> SecondMoment:
    """Read one layer's statistics and check that this model made them.

    Raises:
        SecondMomentError: another model's fingerprint, no such file, or a damaged one.
    """
    try:
        moment = read_kept(path, _read)
    except FileNotFoundError as error:
        raise SecondMomentError(
            f"no second moment at {path}; compute it with second_moment(...)"
        ) from error
    except DamagedError as error:
        raise SecondMomentError(f"{error}; delete it, second_moment(...) makes it again") from error
    check_fingerprint(moment, language_model, str(path))
    return replace(moment, device=language_model.device, file=kept_at(path))


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
    with kept_whole(path) as scratch:
        save_file({"matrix": moment.matrix.float().cpu()}, scratch, {"about": json.dumps(about)})


def _described(corpus: Corpus, *, prefixed: bool) -> str:
    """The corpus's name, with a word where special tokens come before each document."""
    return f"{corpus.name}-bos" if prefixed else corpus.name


def _path(root: Path, layer: int) -> Path:
    return root / f"layer{layer}.safetensors"
