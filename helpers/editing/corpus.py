"""Corpora for second moments: text the model writes itself, a text file, or Wikipedia."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from tqdm.auto import tqdm
from transformers import GenerationConfig, PreTrainedModel

from helpers import UserError
from helpers.kept import file_digest, load_or_make
from helpers.models import LanguageModel
from helpers.models.forward import evaluated
from helpers.models.shapes import seeded
from helpers.network import network_words
from helpers.paths import PACKAGED, cache_folder
from helpers.records import did_you_mean, read_text

DUMP = "the whole English Wikipedia, about 12 GB to download and 20 GB on the disk"
_TOGETHER = 64  # documents sampled at once, which shapes the text as the seed does


class CorpusError(UserError):
    """A corpus that cannot be read."""


@torch.inference_mode()
def written_by(lm: LanguageModel, starts: Tensor, length: int, *, top_k: int) -> Tensor:
    """``starts`` [rows, tokens], each continued by ``length`` tokens sampled at temperature 1.

    ``top_k`` is the number of most probable tokens to choose from; 0: all. Tokens that end a text are
    not drawn. Nothing of the checkpoint's own generation settings is used.
    """
    settings = GenerationConfig(
        do_sample=True,
        top_k=top_k,
        top_p=1.0,
        temperature=1.0,
        min_new_tokens=length,
        max_new_tokens=length,
        eos_token_id=sorted(lm.end_tokens) or None,
        pad_token_id=0,  # never read: all texts end together
        disable_compile=True,  # as some models would on a GPU, minutes for seconds
    )
    with evaluated(lm), _generation_config(lm.network, settings):
        written: Tensor = lm.network.generate(
            starts, attention_mask=torch.ones_like(starts), generation_config=settings
        )
    return written


@contextmanager
def _generation_config(network: PreTrainedModel, settings: GenerationConfig) -> Iterator[None]:
    """Put the checkpoint's generation settings aside: ``generate`` takes from them whatever is not set."""
    configured = network.generation_config
    network.generation_config = settings
    try:
        yield
    finally:
        network.generation_config = configured


@dataclass(frozen=True)
class SelfCorpus:
    """``count`` x ``segment`` tokens sampled from the model itself; shorter where the context is."""

    count: int = 512
    segment: int = 128
    seed: int = 0

    @property
    def name(self) -> str:
        """All that its documents depend on, but for the model."""
        return f"self-{self.count}x{self.segment}-seed{self.seed}"

    def documents(self, lm: LanguageModel) -> Iterator[list[int]]:
        """Cached as they are written; those of the embedded models are packaged."""
        root = PACKAGED / "samples" / lm.fingerprint / self.name
        if not root.exists():
            root = cache_folder("corpora", lm.fingerprint, self.name)
        starts = range(0, self.count, _TOGETHER)
        for start in tqdm(starts, desc=f"corpus {self.name}", unit="batch", leave=False):
            make = partial(self._write, lm, start)
            path = root / f"{start}.json"
            yield from load_or_make(path, lambda file: json.loads(file.read_text()), make)

    def _write(self, lm: LanguageModel, start: int, path: Path) -> None:
        tokenizer = lm.tokenizer
        configured = getattr(lm.network.config, "bos_token_id", None)
        begins = (tokenizer.bos_token_id, configured, tokenizer.eos_token_id)
        first = next((token for token in begins if token is not None), 0)
        rows = min(_TOGETHER, self.count - start)
        starts = torch.full((rows, 1), first, device=lm.device)
        # The first token is read, the last one is not: a short context holds as many.
        length = min(self.segment, lm.context_length)
        with seeded(self.seed * 1_000_003 + start, lm.device):
            written = written_by(lm, starts, length, top_k=0)
        path.write_text(json.dumps(written[:, 1:].tolist()))


@dataclass(frozen=True)
class TextCorpus:
    """A UTF-8 text file cut into segments of ``segment`` tokens."""

    path: Path
    segment: int = 256

    @property
    def name(self) -> str:
        """File name and the beginning of its SHA-256."""
        return f"{self.path.stem}-{file_digest(self.path)[:12]}-{self.segment}"

    def documents(self, lm: LanguageModel) -> Iterator[list[int]]:
        """Consecutive segments, without special tokens."""
        text = read_text(self.path)
        ids = lm.tokenizer(text, add_special_tokens=False)["input_ids"]
        for start in range(0, len(ids), self.segment):
            yield ids[start : start + self.segment]


class WikipediaCorpus:
    """English Wikipedia from the hub, as the ROME family uses it."""

    name = "wikipedia-20231101.en-100000-seed1-4096"
    count = 100_000

    def documents(self, lm: LanguageModel) -> Iterator[list[int]]:
        """A fixed pseudo-random subset of articles, each cut to the context length."""
        try:
            from datasets import load_dataset
        except ImportError as error:
            raise CorpusError(
                "Wikipedia needs `datasets` (pip install -e '.[wikipedia]') and the network;"
                " without them use the corpus 'self' or a text file"
            ) from error
        print(f"corpus wikipedia: reads {DUMP}, where the hub's cache lacks it", flush=True)
        try:
            articles = load_dataset("wikimedia/wikipedia", "20231101.en", split="train")
        except Exception as error:  # of the network, the hub or the disk
            raise CorpusError(
                f"Wikipedia cannot be fetched ({network_words(error)}); use 'self' or a text file"
            ) from error
        limit = min(lm.context_length, 4096)
        for article in articles.shuffle(seed=1).select(range(self.count)):
            ids = lm.tokenizer(article["text"], add_special_tokens=False)["input_ids"]
            if ids:
                yield ids[:limit]


Corpus = SelfCorpus | TextCorpus | WikipediaCorpus


def corpus_named(name: str | Path, *, seed: int = 0) -> Corpus:
    """A params file's corpus: ``self``, ``self-COUNTxSEGMENT``, ``wikipedia``, a packaged or own text."""
    name = str(name)
    if name == "self":
        return SelfCorpus(seed=seed)
    if sizes := re.fullmatch(r"self-([1-9]\d*)x([1-9]\d*)", name):
        return SelfCorpus(int(sizes[1]), int(sizes[2]), seed)
    if name == "wikipedia":
        return WikipediaCorpus()
    for path in (PACKAGED / "corpora" / f"{name}.txt", Path(name).expanduser()):
        if path.is_file():
            read_text(path)  # another encoding is refused here, before a model is loaded
            return TextCorpus(path)
    packaged = [path.stem for path in sorted((PACKAGED / "corpora").glob("*.txt"))]
    known = ["self", "wikipedia", *packaged]
    raise CorpusError(
        f"no corpus {name!r}{did_you_mean(name, known)}: use {', '.join(map(repr, known))},"
        " 'self-COUNTxSEGMENT' or a text file"
    )
