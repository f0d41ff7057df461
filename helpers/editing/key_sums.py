"""Sums of k k^T over a corpus, saved as it is read, so that an interrupted run goes on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from tqdm.auto import tqdm

from helpers.editing.corpus import Corpus
from helpers.kept import kept_whole, sound
from helpers.models.batching import run_halving
from helpers.models.forward import hidden_states
from helpers.models.language_model import LanguageModel
from helpers.models.padding import padded
from helpers.models.tokens import prompt_prefix
from helpers.models.trace import record_inputs
from helpers.progress import in_words

SAVE_EVERY = 300.0  # seconds between two copies of unfinished sums: gigabytes, for a large model
_TRIAL = (
    64  # documents after which the time is estimated: a self-written corpus samples as many at once
)
_UNFINISHED = "sums-{}.partial.safetensors"  # layers, so that runs over others leave it alone
_ANY_UNFINISHED = "sums-*.partial-*.safetensors"


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
        for path in sorted(root.glob(_ANY_UNFINISHED)):
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
    layout = language_model.layout
    unfinished = folder / _UNFINISHED.format("-".join(map(str, sorted(layers))))
    sums = KeySums.resume(folder, layers, layout.intermediate_size, language_model.device)
    names = {layout.mlp_out(layer): layer for layer in layers}
    prefix = prompt_prefix(language_model)
    longest = language_model.context_length
    documents_left = (
        [*prefix, *document][:longest]
        for document in islice(corpus.documents(language_model), sums.documents, None)
    )
    which = f"layer{'s' * (len(layers) > 1)} {', '.join(map(str, layers))}"
    title = f"second moments of {which} over {corpus.name}"
    total, first = getattr(corpus, "count", None), sums.documents
    bar = tqdm(desc=title, unit="document", total=total, initial=first)
    began = saved = time.monotonic()
    told = False
    for documents in _batches(documents_left, token_budget):
        for part in run_halving(documents, lambda d: _keys(language_model, d, list(names))):
            for module, keys in part.items():
                sums.matrices[names[module]].addmm_(keys.T, keys)
        sums.tokens += sum(map(len, documents))
        sums.documents += len(documents)
        bar.update(len(documents))
        if not told and total and sums.documents - first >= min(_TRIAL, total - first):
            told = True
            each = (time.monotonic() - began) / (sums.documents - first)
            span = in_words(each * (total - first))
            bar.write(
                f"making the {title}, once for {language_model.name}: about {span} in all",
                file=sys.stderr,
            )
        if time.monotonic() - saved >= SAVE_EVERY:
            sums.save(unfinished)
            saved = time.monotonic()
    bar.close()
    return sums


def discard_finished(folder: Path, finished: Callable[[int], bool]) -> None:
    """Remove the sums of runs whose every layer is finished by now."""
    for path in folder.glob(_ANY_UNFINISHED):
        layers = path.name.split(".")[0].removeprefix("sums-").split("-")
        if all(finished(int(layer)) for layer in layers):
            path.unlink(missing_ok=True)


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
