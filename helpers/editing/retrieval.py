"""Which stored texts are nearest to a prompt: by words (BM25), or by a model's own hidden states."""

from __future__ import annotations

import re
from collections.abc import Sequence

import bm25s
import numpy as np
import torch
from torch import Tensor

from helpers.models import LanguageModel
from helpers.models.batching import token_batches
from helpers.models.forest import padded
from helpers.models.forward import hidden_states
from helpers.models.hooks import record
from helpers.models.tokens import ids_of_prompts

_LAST_BLANKS = re.compile(r"[^\S\r\n]+\Z")  # line breaks may end a prompt


def words(text: str) -> list[str]:
    """Lower-case words of letters and digits."""
    return re.findall(r"\w+", text.lower())


class Bm25:
    """BM25 of texts, with k1 = 1.2, b = 0.75 and the logarithm of Lucene, which is never negative."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.count = len(texts)
        words_of_texts = [words(text) for text in texts]
        self._has_words = any(words_of_texts)
        self._index = bm25s.BM25(k1=1.2, b=0.75, method="lucene")
        if self._has_words:
            self._index.index(words_of_texts, show_progress=False)

    def scores(self, query: str) -> np.ndarray:
        """Of every text [texts]."""
        known: list[str] = []
        if self._has_words:
            known = [word for word in words(query) if word in self._index.vocab_dict]
        if not known:
            return np.zeros(self.count)
        return np.asarray(self._index.get_scores(known), dtype=np.float64)


@torch.inference_mode()
def mean_states(lm: LanguageModel, texts: Sequence[str], layer: int) -> Tensor:
    """The mean output of a block over each text's tokens [texts, hidden], fp32.

    The first token is omitted: it rarely varies from text to text. So are blanks that end a text: a
    prompt is about the same with them and without.
    """
    block = lm.layout.block(layer)
    stripped_texts = [_LAST_BLANKS.sub("", text) for text in texts]
    ids_of_text = ids_of_prompts(lm, stripped_texts)
    ids = [ids_of_text[text] for text in stripped_texts]
    means = torch.empty(len(texts), lm.layout.hidden_size, device=lm.device)
    # In half precision each text alone: its states must not depend on the others in its batch.
    token_budget = 4096 if lm.dtype.itemsize >= 4 else 1
    for batch in token_batches([len(of_text) for of_text in ids], token_budget):
        rows = padded(lm, [ids[index] for index in batch])
        with record(lm, outputs=[block]) as recorded:
            hidden_states(lm, rows.ids, rows.positions, rows.visible)
        counted = rows.real.clone()
        counted[:, 0] = rows.real.sum(1) == 1
        weights = counted.float() / counted.sum(1, keepdim=True)  # [rows, width]
        means[batch] = torch.einsum("rw,rwd->rd", weights, recorded[block].float())
    return means
