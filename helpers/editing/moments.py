"""Second moments of keys: C = mean over tokens of k k^T, uncentred, for the ROME family.

k [f] is the input of a block's second MLP matrix. Documents are read after the special tokens that
the tokenizer puts before a prompt, so that C describes the keys that edits meet. It is kept per model
fingerprint and corpus, saved as it grows, resumed where it stopped; some come with the package. An
embedded model in another type than float32 takes the packaged ones of float32; ``corpus`` states this.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Mapping, Sequence
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
from helpers.editing.corpus import Corpus, SelfCorpus, written_by
from helpers.kept import kept_at, kept_whole, load_if_intact, load_or_make, read_kept
from helpers.models import LanguageModel
from helpers.models.batching import run_halving, token_batches
from helpers.models.forest import padded
from helpers.models.forward import hidden_states
from helpers.models.hooks import record
from helpers.models.products import exact_products
from helpers.models.shapes import seeded
from helpers.models.state import in_own_state
from helpers.models.tokens import prompt_prefix
from helpers.models.weights import PACKAGED_WEIGHTS
from helpers.paths import PACKAGED, cache_folder
from helpers.processes import Progress

TOGETHER = 32  # documents that are summed together
TOKENS = 4096  # of a pass, padding included
LARGE = 4096  # rows of a matrix whose decomposition is kept
_TRIED_TOKENS = 8  # of each document, by which an estimate is made
SAVE_EVERY = 300.0  # seconds after which unfinished sums are saved again
READ_SO_FAR = "documents and tokens"  # next to unfinished sums, in their file


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
    _with_ridge: dict[float, SecondMoment] = field(default_factory=dict, init=False, repr=False)

    def solve(self, keys: Tensor) -> Tensor:
        """C^-1 keys for keys [f, n] (or [f]), solved in fp64 by one Cholesky factor per layer."""
        columns = keys.double().reshape(keys.shape[0], -1)
        solved = torch.cholesky_solve(columns.to(self.device), self._factor)
        return solved.reshape(keys.shape).to(keys.device)

    def with_ridge(self, ridge: float) -> SecondMoment:
        """C + ridge I, in fp64; nothing of it is kept in files."""
        if ridge not in self._with_ridge:
            matrix = self.matrix.double()
            matrix = matrix + ridge * torch.eye(len(matrix)).to(matrix)
            self._with_ridge[ridge] = replace(self, matrix=matrix, file=None)
        return self._with_ridge[ridge]

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

        return load_or_make(
            self.file.with_name(f"{self.file.stem}-directions.safetensors"), read, make
        )

    def occupied(self, threshold: float) -> Tensor:
        """Directions that known keys occupy: eigenvectors of C, orthonormal, [f, r] in fp64.

        They are those r whose eigenvalue is at least ``threshold``, which is absolute. Where all f are, an
        edit could change nothing: a ``SecondMomentError``. Where none is, it could change everything: a
        warning, in the words of ``unprotected``.
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
def second_moments(
    lm: LanguageModel, layers: Sequence[int], corpus: Corpus
) -> dict[int, SecondMoment]:
    """Second moments by layer, made where cache and package lack them; an interrupted run resumes."""
    fingerprint = lm.fingerprint
    root = _moments_folder(lm, corpus)
    name = root.name
    moments = {layer: _packaged_in_float32(lm, name, layer) for layer in layers}
    for layer in layers:
        if moments[layer] is None:
            moments[layer] = load_if_intact(_file_of_layer(root, layer), _read_moment)
    if missing := [layer for layer in layers if moments[layer] is None]:
        unfinished = root / f"sums-{'-'.join(map(str, sorted(missing)))}.partial.safetensors"
        with exact_products():
            sums, tokens = _summed_keys(lm, missing, corpus, unfinished)
        if not tokens:
            raise SecondMomentError(f"corpus {name} holds no tokens")
        for layer in missing:
            about = {"tokens": tokens, "layer": layer, "fingerprint": fingerprint, "corpus": name}
            mean = sums[lm.layout.mlp_out(layer)].cpu() / tokens
            with kept_whole(_file_of_layer(root, layer)) as scratch:
                save_file({"matrix": mean}, scratch, {"about": json.dumps(about)})
            moments[layer] = read_kept(_file_of_layer(root, layer), _read_moment)
        kept_at(unfinished).unlink(missing_ok=True)
    return {
        layer: replace(
            moment, device=lm.device, file=moment.file or kept_at(_file_of_layer(root, layer))
        )
        for layer, moment in moments.items()
        if moment
    }


def _packaged_in_float32(lm: LanguageModel, name: str, layer: int) -> SecondMoment | None:
    """What the package holds of the float32 model, where ``lm`` is that model in another type."""
    weights = PACKAGED_WEIGHTS.get(lm.name)
    if weights is None or lm.dtype_name not in weights.other_fingerprints:
        return None  # without a look at the fingerprint, which reads all weights
    if lm.fingerprint != weights.other_fingerprints[lm.dtype_name]:
        return None
    path = PACKAGED / "samples" / weights.fingerprint / name / f"layer{layer}.safetensors"
    if not path.exists():
        return None
    moment = _read_moment(path)
    return replace(moment, corpus=f"{moment.corpus} in float32", file=path)


def _moments_folder(lm: LanguageModel, corpus: Corpus) -> Path:
    name = corpus.name + "-bos" * bool(prompt_prefix(lm))
    return cache_folder("second_moments", lm.fingerprint, name)


def unmade_layers(lm: LanguageModel, layers: Sequence[int], corpus: Corpus) -> list[int]:
    """The layers whose second moments neither the package nor the cache has."""
    root = _moments_folder(lm, corpus)
    return [
        layer
        for layer in layers
        if _packaged_in_float32(lm, root.name, layer) is None
        and not kept_at(_file_of_layer(root, layer)).exists()
    ]


def usual_seconds(lm: LanguageModel, corpus: Corpus) -> float | None:
    """An estimate of the seconds that second moments over text of the model itself take; None of other text.

    By the time of one pass, and of the first tokens of as many documents as are sampled together.
    """
    if not isinstance(corpus, SelfCorpus):
        return None
    rows = min(TOGETHER, corpus.count)
    starts = torch.zeros((rows, 1), dtype=torch.long, device=lm.device)
    began = time.perf_counter()
    with seeded(0, lm.device):
        texts = written_by(lm, starts, _TRIED_TOKENS, top_k=0)
    _keys(lm, [[int(token) for token in text] for text in texts], [lm.layout.mlp_out(0)])
    seconds = time.perf_counter() - began
    batches = corpus.count / rows * corpus.segment / _TRIED_TOKENS
    return batches * seconds


def _file_of_layer(root: Path, layer: int) -> Path:
    """The layer's file: packaged, or in the user's cache."""
    name = f"layer{layer}.safetensors"
    packaged = PACKAGED / "samples" / root.parent.name / root.name / name
    return packaged if packaged.exists() else root / name


def _read_moment(path: Path) -> SecondMoment:
    with safe_open(path, "pt") as file:
        about = json.loads(file.metadata()["about"])
        if "matrix" in file.keys():  # noqa: SIM118 - safe_open is no mapping
            return SecondMoment(file.get_tensor("matrix"), **about)
        upper = file.get_tensor("upper")  # of a symmetric matrix, as packaged
    size = int((2 * len(upper)) ** 0.5)
    rows, columns = torch.triu_indices(size, size)
    matrix = torch.empty(size, size)
    matrix[rows, columns] = matrix[columns, rows] = upper
    return SecondMoment(matrix, **about)


def _summed_keys(
    lm: LanguageModel, layers: Sequence[int], corpus: Corpus, unfinished: Path
) -> tuple[dict[str, Tensor], int]:
    """Sums of k k^T [f, f] by module over a corpus, and its tokens; a file keeps unfinished ones."""
    module_names = [lm.layout.mlp_out(layer) for layer in layers]
    shape = (lm.layout.intermediate_size, lm.layout.intermediate_size)
    saved = load_if_intact(unfinished, load_file) or {
        name: torch.zeros(shape) for name in module_names
    }
    documents_read, tokens_read = map(int, saved.pop(READ_SO_FAR, (0, 0)))
    sums = {name: matrix.to(lm.device) for name, matrix in saved.items()}

    prefix = prompt_prefix(lm)
    unread = islice(corpus.documents(lm), documents_read, None)
    documents = ([*prefix, *document][: lm.context_length] for document in unread)
    title = f"second moments {list(layers)} over {corpus.name}, once for {lm.name}"
    total = getattr(corpus, "count", None)
    progress = Progress(total or 0, f"documents for {title}")
    saved_at = time.monotonic()
    with tqdm(desc=title, unit="document", total=total, initial=documents_read) as bar:
        while group := list(islice(documents, TOGETHER)):
            _add_keys(lm, group, sums)
            documents_read += len(group)
            tokens_read += sum(len(document) for document in group)
            bar.update(len(group))
            progress.at(documents_read)
            if time.monotonic() - saved_at >= SAVE_EVERY:
                tensors = {name: matrix.cpu() for name, matrix in sums.items()}
                tensors[READ_SO_FAR] = torch.tensor([documents_read, tokens_read])
                with kept_whole(unfinished) as scratch:
                    save_file(tensors, scratch)
                saved_at = time.monotonic()
    return sums, tokens_read


def _add_keys(
    lm: LanguageModel, documents: Sequence[list[int]], sums: Mapping[str, Tensor]
) -> None:
    """Add k k^T of every token of the documents to the sums, in batches of like length."""
    for indices in token_batches([len(document) for document in documents], TOKENS):
        batch = [documents[index] for index in indices]
        for keys_of_modules in run_halving(batch, lambda part: _keys(lm, part, list(sums))):
            for module_name, keys in keys_of_modules.items():
                sums[module_name].addmm_(keys.T, keys)


@torch.inference_mode()
def _keys(
    lm: LanguageModel, documents: Sequence[list[int]], names: Sequence[str]
) -> dict[str, Tensor]:
    """Inputs of the named modules at every real token, [tokens, f] in fp32."""
    batch = padded(lm, documents)
    with record(lm, inputs=names) as inputs:
        hidden_states(lm, batch.ids, batch.positions, batch.visible)
    return {name: inputs[name][batch.real].float() for name in names}
