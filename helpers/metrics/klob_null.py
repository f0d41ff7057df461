"""What RSim a locator reaches by chance: examples formed at random, as the paper does not test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from helpers.metrics.klob import (
    Criterion,
    Numbers,
    candidate_similarity,
    pairwise_baseline,
    relative_similarity,
)


@dataclass(frozen=True)
class Null:
    """A mean RSim beside its distribution when examples are formed at random.

    Attributes:
        observed: mean unclipped RSim of the real examples.
        mean: mean over permutations.
        standard_deviation: over permutations.
        p_value: one-sided, (1 + permutations at least as high) / (1 + permutations).
    """

    observed: float
    mean: float
    standard_deviation: float
    p_value: float


def permutation_null(
    similarities: Numbers,
    examples: NDArray[np.integer],
    criterion: Criterion,
    *,
    mean_similarity: Numbers | None = None,
    groups: ArrayLike | None = None,
    permutations: int = 1_000,
    seed: int = 0,
) -> Null:
    """Mean RSim when sentences are dealt to examples at random.

    Each column of ``examples`` is shuffled on its own, so that a random example still holds one
    sentence of every role (first template, …, chain).

    Args:
        similarities: [n, n] over the subtask's sentences.
        examples: sentence indices [examples, sentences].
        criterion: which pairs count.
        mean_similarity: Sim(x_all, x_i) per sentence [n] for the ``mean_scores`` baseline; without
            it the exact pairwise baseline is used.
        groups: label per example [examples]; sentences are then shuffled inside a group only (one
            relation: what is left is the fact, not its relation or template).
        permutations: number of shuffles.
        seed: seed of the shuffles.
    """
    labels = np.zeros(len(examples)) if groups is None else np.asarray(groups)
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]

    def mean_rsim(table: NDArray[np.integer]) -> float:
        if mean_similarity is None:
            baseline = pairwise_baseline(similarities, table)
        else:
            baseline = mean_similarity[table].mean(axis=1)
        candidate = candidate_similarity(similarities, table, criterion)
        return float(relative_similarity(candidate, baseline).mean())

    generator = np.random.default_rng(seed)
    values = np.empty(permutations)
    for draw in range(permutations):
        shuffled = examples.copy()
        for rows in members:
            for column in range(examples.shape[1]):
                shuffled[rows, column] = examples[generator.permutation(rows), column]
        values[draw] = mean_rsim(shuffled)
    observed = mean_rsim(examples)
    at_least = int((values >= observed - 1e-12).sum())
    return Null(
        observed, float(values.mean()), float(values.std()), (1 + at_least) / (1 + permutations)
    )
