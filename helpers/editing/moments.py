"""Second moments of keys: C = mean over tokens of k k^T, uncentred, for the ROME family.

k [f] is the input of a block's second MLP matrix. Every document is read after the special tokens
that the tokenizer puts before a prompt, as the ROME family does, so that C describes the keys that edits
meet. Making C is an explicit step: kept per model fingerprint and corpus, saved as it is read, resumed
where it stopped. The ROME layers of the embedded models come with the package.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from tqdm.auto import tqdm

from helpers import UserError
from helpers.editing.corpus import Corpus
from helpers.kept import DamagedError, kept, kept_at, kept_whole, read_kept, sound
from helpers.models.batching import padded, run_halving
from helpers.models.forward import hidden_states
from helpers.models.hooks import record
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import prompt_prefix
from helpers.models.weights import exact_products
from helpers.paths import PACKAGED, cache_folder
from helpers.processes import in_words

LARGE = 4096  # rows of a matrix whose decomposition is announced, and kept on the disk
SAVE_EVERY = 300.0  # seconds between two copies of unfinished sums: gigabytes, for a large model
_TRIAL = 64  # documents after which the time is estimated: `self` samples as many at once
_UNFINISHED = "sums-{}.partial.safetensors"  # layers, so that runs over others leave it alone


class SecondMomentError(UserError):
    """Raised for statistics that are missing, singular, or made with another model."""


@dataclass(frozen=True)
class NullSpace:
    """The orthogonal complement of ``occupied`` [f, r], orthonormal columns in fp64 (AlphaEdit's P)."""

    occupied: Tensor

    @property
    def dimension(self) -> int:
        """Number of free directions."""
        return self.occupied.shape[0] - self.occupied.shape[1]

    def project(self, keys: Tensor) -> Tensor:
        """P keys for keys [f, n]."""
        return keys - self.occupied @ (self.occupied.T @ keys)


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

    def solve(self, keys: Tensor) -> Tensor:
        """C^-1 keys for keys [f, n] (or [f]), solved in fp64 by one Cholesky factor per layer."""
        columns = keys.double().reshape(keys.shape[0], -1)
        solved = torch.cholesky_solve(columns.to(self.device), self._factor)
        return solved.reshape(keys.shape).to(keys.device)

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
    def directions(self) -> tuple[Tensor, Tensor]:
        """Its eigenvalues [f], ascending, and eigenvectors [f, f], in fp64.

        Those of a large matrix take minutes: they are kept beside its file.
        """
        matrix = self.matrix.to(self.device).double()
        if len(matrix) < LARGE or self.file is None:
            values, vectors = torch.linalg.eigh(matrix)
            return values, vectors

        def make(path: Path) -> None:
            size = len(matrix)
            print(f"decomposing {size:,} x {size:,} in fp64, once; this takes minutes on a CPU")
            values, vectors = torch.linalg.eigh(matrix)
            save_file({"values": values.cpu(), "vectors": vectors.cpu().contiguous()}, path)

        def read(path: Path) -> tuple[Tensor, Tensor]:
            with safe_open(path, "pt", device=str(matrix.device)) as file:
                return file.get_tensor("values"), file.get_tensor("vectors")

        return kept(self.file.with_name(f"{self.file.stem}-directions.safetensors"), read, make)

    def null_space(self, threshold: float) -> NullSpace:
        """Directions in which it is below an absolute ``threshold``, found once.

        Raises:
            ValueError: no direction is below it.
        """
        if threshold not in self._null_spaces:
            values, vectors = self.directions
            occupied = vectors[:, values >= threshold]
            if occupied.shape[0] == occupied.shape[1]:
                raise ValueError(
                    f"no direction has a second moment below {threshold} (the smallest is"
                    f" {float(values[0]):.3g}): raise nullspace_threshold for this model"
                )
            self._null_spaces[threshold] = NullSpace(occupied)
        return self._null_spaces[threshold]

    @cached_property
    def _null_spaces(self) -> dict[float, NullSpace]:
        return {}

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
    """Second moments of the given layers, made where the cache does not hold them.

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
    missing = [layer for layer in layers if sound(_path(root, layer), _read) is None]
    if folder is None:
        for layer in [each for each in missing if packaged_file(root, each).exists()]:
            save(unpacked(packaged_file(root, layer)), _path(root, layer))
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
        for path, of_layers in _unfinished(root):
            if all(kept_at(_path(root, layer)).exists() for layer in of_layers):
                path.unlink(missing_ok=True)
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

    def there(layer: int) -> bool:
        return kept_at(_path(folder, layer)).exists() or packaged_file(folder, layer).exists()

    return [layer for layer in layers if not there(layer)]


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
    with kept_whole(path) as scratch:
        save_file({"matrix": moment.matrix.float().cpu()}, scratch, _about(moment))


def packaged_file(root: Path, layer: int) -> Path:
    """Where the package keeps a layer's statistics, if it has them.

    Args:
        root: the cache's folder for them, ``second_moments/<fingerprint>/<corpus>``.
        layer: the block.
    """
    return PACKAGED / "samples" / root.parent.name / root.name / f"layer{layer}.safetensors"


def pack(moment: SecondMoment, path: Path) -> None:
    """Write the upper half of a layer's statistics, to the last bit, for the package."""
    rows, columns = torch.triu_indices(*moment.matrix.shape)
    save_file({"upper": moment.matrix[rows, columns]}, path, _about(moment))


def unpacked(path: Path) -> SecondMoment:
    """What ``pack`` wrote."""
    with safe_open(path, "pt") as file:
        half, about = file.get_tensor("upper"), json.loads(file.metadata()["about"])
    size = int((2 * len(half)) ** 0.5)
    rows, columns = torch.triu_indices(size, size)
    matrix = torch.empty(size, size)
    matrix[rows, columns] = matrix[columns, rows] = half
    return SecondMoment(matrix, **about)


@dataclass
class KeySums:
    """Running sums of k k^T [f, f] per layer, and how far the corpus was read."""

    matrices: dict[int, Tensor]
    tokens: int = 0
    documents: int = 0

    def save(self, path: Path) -> None:
        """Write them, to be resumed."""
        about = {"tokens": str(self.tokens), "documents": str(self.documents)}
        with kept_whole(path) as scratch:
            save_file({str(k): v.cpu() for k, v in self.matrices.items()}, scratch, about)

    @classmethod
    def _read(cls, path: Path) -> KeySums:
        with safe_open(path, "pt") as file:
            about = file.metadata()
            matrices = {int(key): file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            return cls(matrices, int(about["tokens"]), int(about["documents"]))

    @classmethod
    def resume(cls, root: Path, layers: Sequence[int], size: int, device: torch.device) -> KeySums:
        """The sums of an unfinished run over these layers, and perhaps more; else none yet."""
        for path, _ in _unfinished(root):
            found = sound(path, cls._read)
            if found is not None and set(layers) <= set(found.matrices):
                matrices = {layer: found.matrices[layer].to(device) for layer in layers}
                return cls(matrices, found.tokens, found.documents)
        return cls({layer: torch.zeros(size, size, device=device) for layer in layers})


def sum_keys(
    language_model: LanguageModel,
    layers: Sequence[int],
    corpus: Corpus,
    folder: Path,
    *,
    token_budget: int,
) -> KeySums:
    """The sums of these layers over the whole corpus; unfinished ones are kept in the folder.

    This takes minutes, so a bar shows it, and one line what it is and how long it takes.
    """
    layout, longest = language_model.layout, language_model.context_length
    unfinished = folder / _UNFINISHED.format("-".join(map(str, sorted(layers))))
    sums = KeySums.resume(folder, layers, layout.intermediate_size, language_model.device)
    names, prefix = {layout.mlp_out(i): i for i in layers}, prompt_prefix(language_model)
    first, total = sums.documents, getattr(corpus, "count", None)
    documents_left = (
        [*prefix, *document][:longest]
        for document in islice(corpus.documents(language_model), first, None)
    )
    which = f"layer{'s' * (len(layers) > 1)} {', '.join(map(str, layers))}"
    title = f"second moments of {which} over {corpus.name}"
    bar = tqdm(desc=title, unit="document", total=total, initial=first)
    told, began = False, time.monotonic()
    saved = began
    for documents in _batches(documents_left, token_budget):
        for part in run_halving(documents, lambda d: _keys(language_model, d, list(names))):
            for module, keys in part.items():
                sums.matrices[names[module]].addmm_(keys.T, keys)
        sums.tokens += sum(map(len, documents))
        sums.documents += len(documents)
        bar.update(len(documents))
        done, now = sums.documents - first, time.monotonic()
        if not told and total and done >= min(_TRIAL, total - first):
            told, span = True, in_words((now - began) / done * (total - first))
            line = f"making the {title}, once for {language_model.name}: about {span} in all"
            bar.write(line, file=sys.stderr)
        if now - saved >= SAVE_EVERY:
            sums.save(unfinished)
            saved = time.monotonic()
    bar.close()
    return sums


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
    with record(language_model, inputs=names) as inputs:
        hidden_states(language_model, batch.ids, batch.positions, batch.visible)
    return {name: inputs[name][batch.real].float() for name in names}


def _about(moment: SecondMoment) -> dict[str, str]:
    names = ("tokens", "layer", "fingerprint", "corpus")
    about: dict[str, Any] = {name: getattr(moment, name) for name in names}
    return {"about": json.dumps(about)}


def _read(path: Path) -> SecondMoment:
    with safe_open(path, "pt") as file:
        return SecondMoment(file.get_tensor("matrix"), **json.loads(file.metadata()["about"]))


def _described(corpus: Corpus, *, prefixed: bool) -> str:
    """The corpus's name, with a word where special tokens come before each document."""
    return f"{corpus.name}-bos" if prefixed else corpus.name


def _path(root: Path, layer: int) -> Path:
    return root / f"layer{layer}.safetensors"


def _unfinished(root: Path) -> Iterator[tuple[Path, list[int]]]:
    """Files of unfinished sums and their layers."""
    for path in sorted(root.glob("sums-*.partial-*.safetensors")):
        layers = path.name.split(".")[0].removeprefix("sums-").split("-")
        yield path, [int(layer) for layer in layers]
