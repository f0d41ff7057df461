"""Second moments of keys: C = mean over tokens of k k^T, uncentred, for the ROME family.

k [f] is the input of a block's second MLP matrix. Documents are read after the special tokens that
the tokenizer puts before a prompt, so that C describes the keys that edits meet. It is kept per model
fingerprint and corpus, saved as it grows, resumed where it stopped; some come with the package.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
from helpers.models import LanguageModel
from helpers.models.batching import run_halving, token_batches
from helpers.models.forest import padded
from helpers.models.forward import hidden_states
from helpers.models.hooks import record
from helpers.models.state import in_own_state
from helpers.models.tokens import prompt_prefix
from helpers.paths import PACKAGED, cache_folder
from helpers.processes import Progress

TOGETHER = 32  # documents that are read before sums are saved
TOKENS = 4096  # of a pass, padding included
LARGE = 4096  # rows of a matrix whose decomposition is kept
SAVE_EVERY = 300.0  # seconds between copies of unfinished sums


class SecondMomentError(UserError):
    """Statistics of no tokens, or of too few to be solved with."""


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
    _occupied: dict[float, Tensor] = field(default_factory=dict, init=False, repr=False)

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
        """Eigenvalues [f], ascending, and eigenvectors [f, f], in fp64; large ones are kept in a file."""
        matrix = self.matrix.to(self.device).double()
        if len(matrix) < LARGE or self.file is None:
            values, vectors = torch.linalg.eigh(matrix)
            return values, vectors

        def make(path: Path) -> None:
            print(f"decomposing {len(matrix):,} rows in fp64, once (minutes on a CPU)")
            values, vectors = torch.linalg.eigh(matrix)
            save_file({"values": values.cpu(), "vectors": vectors.cpu().contiguous()}, path)

        def read(path: Path) -> tuple[Tensor, Tensor]:
            with safe_open(path, "pt", device=str(matrix.device)) as file:
                return file.get_tensor("values"), file.get_tensor("vectors")

        return kept(self.file.with_name(f"{self.file.stem}-directions.safetensors"), read, make)

    def occupied(self, threshold: float) -> Tensor:
        """Orthonormal directions [f, r], in fp64, in which it reaches an absolute ``threshold``.

        Where all do, an edit could change nothing: a ``SecondMomentError``. Where none does, it could
        change everything: a warning, ``unprotected``'s.
        """
        if threshold not in self._occupied:
            values, vectors = self.directions
            if bool((values >= threshold).all()):
                raise SecondMomentError(
                    f"layer {self.layer}: no direction has a second moment below {threshold:g} (the"
                    f" smallest is {float(values[0]):.3g}): raise nullspace_threshold"
                )
            if message := self.unprotected(threshold):
                warnings.warn(message, stacklevel=2)
            self._occupied[threshold] = vectors[:, values >= threshold]
        return self._occupied[threshold]

    def unprotected(self, threshold: float) -> str:
        """What is wrong where no direction reaches an absolute ``threshold``; empty where one does."""
        largest = float(self.directions[0][-1])
        if largest >= threshold:
            return ""
        return (
            f"layer {self.layer}: every direction has a second moment below {threshold:g} (the largest is"
            f" {largest:.3g}), so nothing known is protected: lower nullspace_threshold, or use more"
            f" than the {self.tokens} tokens of {self.corpus}"
        )


@in_own_state
def second_moment(
    model: LanguageModel, layers: Sequence[int], corpus: Corpus
) -> dict[int, SecondMoment]:
    """Those of the layers, made where cache and package lack them; an interrupted run resumes."""
    fingerprint = model.fingerprint
    name = corpus.name + "-bos" * bool(prompt_prefix(model))
    root = cache_folder("second_moments", fingerprint, name)
    found = {layer: sound(_place(root, layer), _read) for layer in layers}
    if missing := [layer for layer in layers if found[layer] is None]:
        unfinished = root / f"sums-{'-'.join(map(str, sorted(missing)))}.partial.safetensors"
        sums, tokens = _summed_keys(model, missing, corpus, unfinished)
        if not tokens:
            raise SecondMomentError(f"corpus {name} holds no tokens")
        for layer in missing:
            about = {"tokens": tokens, "layer": layer, "fingerprint": fingerprint, "corpus": name}
            mean = sums[model.layout.mlp_out(layer)].cpu() / tokens
            with kept_whole(_place(root, layer)) as scratch:
                save_file({"matrix": mean}, scratch, {"about": json.dumps(about)})
            found[layer] = read_kept(_place(root, layer), _read)
        kept_at(unfinished).unlink(missing_ok=True)
    return {
        layer: replace(moment, device=model.device, file=kept_at(_place(root, layer)))
        for layer, moment in found.items()
        if moment
    }


def _place(root: Path, layer: int) -> Path:
    """The layer's file: packaged, or in the user's cache."""
    name = f"layer{layer}.safetensors"
    packaged = PACKAGED / "samples" / root.parent.name / root.name / name
    return packaged if packaged.exists() else root / name


def _read(path: Path) -> SecondMoment:
    with safe_open(path, "pt") as file:
        about = json.loads(file.metadata()["about"])
        if "matrix" in file.keys():  # noqa: SIM118 - safe_open is no mapping
            return SecondMoment(file.get_tensor("matrix"), **about)
        half = file.get_tensor("upper")  # of a symmetric matrix, as packaged
    size = int((2 * len(half)) ** 0.5)
    rows, columns = torch.triu_indices(size, size)
    matrix = torch.empty(size, size)
    matrix[rows, columns] = matrix[columns, rows] = half
    return SecondMoment(matrix, **about)


def _summed_keys(
    model: LanguageModel, layers: Sequence[int], corpus: Corpus, unfinished: Path
) -> tuple[dict[str, Tensor], int]:
    """Sums of k k^T [f, f] by module over a corpus, and its tokens; a file keeps unfinished ones."""
    layout, device = model.layout, model.device
    modules = list(map(layout.mlp_out, layers))
    prefix = prompt_prefix(model)
    size = (layout.intermediate_size, layout.intermediate_size)
    sums = sound(unfinished, load_file) or {name: torch.zeros(size) for name in modules}
    read, tokens = map(int, sums.pop("documents and tokens", (0, 0)))
    sums = {name: matrix.to(device) for name, matrix in sums.items()}
    left = islice(corpus.documents(model), read, None)
    documents = ([*prefix, *each][: model.context_length] for each in left)
    title = f"second moments {list(layers)} over {corpus.name}, once for {model.name}"
    total, saved = getattr(corpus, "count", None), time.monotonic()
    progress = Progress(total or 0, f"documents for {title}")
    with tqdm(desc=title, unit="document", total=total, initial=read) as bar:
        while group := list(islice(documents, TOGETHER)):
            for chosen in token_batches(list(map(len, group)), TOKENS):
                batch = [group[i] for i in chosen]
                for part in run_halving(batch, lambda d: _keys(model, d, modules)):
                    for module, keys in part.items():
                        sums[module].addmm_(keys.T, keys)
            read, tokens = read + len(group), tokens + sum(map(len, group))
            bar.update(len(group))
            progress.at(read)
            if time.monotonic() - saved >= SAVE_EVERY:
                far = {"documents and tokens": torch.tensor([read, tokens])}
                with kept_whole(unfinished) as scratch:
                    save_file({k: v.cpu() for k, v in sums.items()} | far, scratch)
                saved = time.monotonic()
    return sums, tokens


@torch.inference_mode()
def _keys(
    model: LanguageModel, documents: Sequence[list[int]], names: Sequence[str]
) -> dict[str, Tensor]:
    """Inputs of the named modules at every real token, [tokens, f] in fp32."""
    batch = padded(model, documents)
    with record(model, inputs=names) as inputs:
        hidden_states(model, batch.ids, batch.positions, batch.visible)
    return {name: inputs[name][batch.real].float() for name in names}
