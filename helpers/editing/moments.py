"""Second moments of keys: C = mean over tokens of k k^T, uncentred, for the ROME family.

k [f] is the input of a block's second MLP matrix. Every document is read after the special tokens
that the tokenizer puts before a prompt, as the ROME family does, so that C describes the keys that edits
meet. Making C is an explicit step: kept per model fingerprint and corpus, saved as it is read, resumed
where it stopped. The ROME layers of the embedded models come with the package.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from tqdm.auto import tqdm

from helpers import UserError
from helpers.editing.corpus import Corpus
from helpers.kept import kept, kept_at, kept_whole, read_kept, sound
from helpers.models.batching import run_halving
from helpers.models.forest import padded
from helpers.models.forward import hidden_states
from helpers.models.hooks import record
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import prompt_prefix
from helpers.paths import PACKAGED, cache_folder
from helpers.processes import Progress

TOKENS = 4096  # of a pass, padding included
LARGE = 4096  # rows of a matrix whose decomposition is kept
SAVE_EVERY = 300.0  # seconds between copies of unfinished sums


class SecondMomentError(UserError):
    """Raised for statistics of no tokens, or of too few to be solved with."""


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
    """C of one layer: ``matrix`` [f, f] in fp32, ``tokens`` counted, and where it comes from."""

    matrix: Tensor
    tokens: int
    layer: int
    fingerprint: str
    corpus: str
    device: str | torch.device = "cpu"  # what is solved with is made, and kept, there
    file: Path | None = None  # it was read from

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

        Those of a large matrix take minutes: they are kept next to its file.
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


def second_moment(
    language_model: LanguageModel, layers: Sequence[int], corpus: Corpus
) -> dict[int, SecondMoment]:
    """Second moments of the given layers, made where cache and package do not hold them.

    Partial sums are saved every few minutes, so an interrupted run resumes.
    """
    prefixed, fingerprint = bool(prompt_prefix(language_model)), language_model.fingerprint
    root = moments_folder(fingerprint, corpus, prefixed=prefixed)
    missing = []
    for layer in layers:
        if sound(_path(root, layer), _read) is None:
            if packaged_file(root, layer).exists():
                _save(unpacked(packaged_file(root, layer)), _path(root, layer))
            else:
                missing.append(layer)
    if missing:
        root.mkdir(parents=True, exist_ok=True)
        name = _described(corpus, prefixed=prefixed)
        unfinished = root / f"sums-{'-'.join(map(str, sorted(missing)))}.partial.safetensors"
        sums, tokens = _summed_keys(language_model, missing, corpus, unfinished)
        if not tokens:
            raise SecondMomentError(f"corpus {name} holds no tokens")
        for layer in missing:
            mean = sums[language_model.layout.mlp_out(layer)] / tokens
            _save(SecondMoment(mean, tokens, layer, fingerprint, name), _path(root, layer))
        kept_at(unfinished).unlink(missing_ok=True)
    found = {layer: read_kept(_path(root, layer), _read) for layer in layers}
    device = language_model.device
    return {
        layer: replace(moment, device=device, file=kept_at(_path(root, layer)))
        for layer, moment in found.items()
    }


def moments_folder(fingerprint: str, corpus: Corpus, *, prefixed: bool) -> Path:
    """Where the user's cache keeps a model's second moments over a corpus.

    ``prefixed``: whether the model's tokenizer puts special tokens before each document.
    """
    return cache_folder("second_moments") / fingerprint / _described(corpus, prefixed=prefixed)


def missing_layers(layers: Sequence[int], folder: Path) -> list[int]:
    """Those of the layers whose second moments neither the folder nor the package holds."""

    def there(layer: int) -> bool:
        return kept_at(_path(folder, layer)).exists() or packaged_file(folder, layer).exists()

    return [layer for layer in layers if not there(layer)]


def packaged_file(root: Path, layer: int) -> Path:
    """Where the package keeps what the cache keeps under ``root``, see ``moments_folder``."""
    return PACKAGED / "samples" / root.parent.name / root.name / f"layer{layer}.safetensors"


def unpacked(path: Path) -> SecondMoment:
    """A packaged layer's statistics, of which the file holds the upper half."""
    with safe_open(path, "pt") as file:
        half, about = file.get_tensor("upper"), json.loads(file.metadata()["about"])
    size = int((2 * len(half)) ** 0.5)
    rows, columns = torch.triu_indices(size, size)
    matrix = torch.empty(size, size)
    matrix[rows, columns] = matrix[columns, rows] = half
    return SecondMoment(matrix, **about)


def _path(root: Path, layer: int) -> Path:
    return root / f"layer{layer}.safetensors"


def _described(corpus: Corpus, *, prefixed: bool) -> str:
    return f"{corpus.name}-bos" if prefixed else corpus.name


def _read(path: Path) -> SecondMoment:
    with safe_open(path, "pt") as file:
        return SecondMoment(file.get_tensor("matrix"), **json.loads(file.metadata()["about"]))


def _save(moment: SecondMoment, path: Path) -> None:
    names = ("tokens", "layer", "fingerprint", "corpus")
    about = json.dumps({name: getattr(moment, name) for name in names})
    with kept_whole(path) as scratch:
        save_file({"matrix": moment.matrix.float().cpu()}, scratch, {"about": about})


def _summed_keys(
    language_model: LanguageModel, layers: Sequence[int], corpus: Corpus, unfinished: Path
) -> tuple[dict[str, Tensor], int]:
    """Sums of k k^T [f, f] by module over a corpus, and its tokens; a file keeps unfinished ones."""
    layout, device = language_model.layout, language_model.device
    modules, prefix = list(map(layout.mlp_out, layers)), prompt_prefix(language_model)
    size = (layout.intermediate_size, layout.intermediate_size)
    sums = sound(unfinished, load_file) or {name: torch.zeros(size) for name in modules}
    read, tokens = map(int, sums.pop("documents and tokens", (0, 0)))
    sums = {name: matrix.to(device) for name, matrix in sums.items()}
    left = islice(corpus.documents(language_model), read, None)
    documents = ([*prefix, *each][: language_model.context_length] for each in left)
    of_layers = f"layer{'s' * (len(layers) > 1)} {', '.join(map(str, layers))}"
    title = f"second moments of {of_layers} over {corpus.name}, once for {language_model.name}"
    total, saved = getattr(corpus, "count", None), time.monotonic()
    progress = Progress(total or 0, f"documents for {title}")
    with tqdm(desc=title, unit="document", total=total, initial=read) as bar:
        for batch in _batches(documents):
            for part in run_halving(batch, lambda d: _keys(language_model, d, modules)):
                for module, keys in part.items():
                    sums[module].addmm_(keys.T, keys)
            read, tokens = read + len(batch), tokens + sum(map(len, batch))
            bar.update(len(batch))
            progress.at(read)
            if time.monotonic() - saved >= SAVE_EVERY:
                far = {"documents and tokens": torch.tensor([read, tokens])}
                with kept_whole(unfinished) as scratch:
                    save_file({k: v.cpu() for k, v in sums.items()} | far, scratch)
                saved = time.monotonic()
    return sums, tokens


def _batches(documents: Iterator[list[int]]) -> Iterator[list[list[int]]]:
    """Consecutive documents whose padded size stays in ``TOKENS``."""
    batch: list[list[int]] = []
    for document in documents:
        widest = max([len(document), *map(len, batch)])
        if batch and widest * (len(batch) + 1) > TOKENS:
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
