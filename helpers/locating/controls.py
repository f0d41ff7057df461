"""Controls: locators that know nothing, and must score nothing."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from helpers.locating.locator import Granularity, Locator, Scores
from helpers.locating.query import Query
from helpers.models.language_model import LanguageModel


class RandomScores(Locator):
    """Uniform scores that depend on the sentence's tokens and a seed only."""

    def __init__(self, *, granularity: Granularity = "neuron", seed: int = 0) -> None:
        self.granularity = granularity
        self.seed = seed
        self.name = "random"

    def scores(self, language_model: LanguageModel, queries: Sequence[Query]) -> Scores:
        """Independent uniform numbers, [queries, units]."""
        units = int(np.prod(self.shape(language_model.layout)))
        seeds = [zlib.crc32(np.array(query.ids).tobytes()) for query in queries]
        rows = [np.random.default_rng([self.seed, s]).random(units, np.float32) for s in seeds]
        return np.stack(rows)


class ConstantScores(Locator):
    """The same scores, hence the same top units, for every sentence."""

    def __init__(self, *, granularity: Granularity = "neuron", seed: int = 0) -> None:
        self.granularity = granularity
        self.seed = seed
        self.name = "constant"

    def scores(self, language_model: LanguageModel, queries: Sequence[Query]) -> Scores:
        """One vector of uniform numbers, repeated: [queries, units]."""
        units = int(np.prod(self.shape(language_model.layout)))
        row = np.random.default_rng(self.seed).random(units, np.float32)
        return np.tile(row, (len(queries), 1))
