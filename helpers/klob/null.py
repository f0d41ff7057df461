"""What RSim a locator reaches by chance: examples formed at random, as the paper does not test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from helpers.klob.metrics import (
    Criterion,
    Numbers,
    candidate_similarity,
    pairwise_baseline,
    relative_similarity,
)
from helpers.results.statistics import one_sided


@dataclass(frozen=True)
class Null:
    """A mean RSim beside its distribution when examples are formed at random.

    Attributes:
        observed: mean unclipped RSim of the real examples.
        mean: mean over permutations.
        standard_deviation: over permutations.
        p_value: one-sided, (1 + permutations at least as high) / (1 + permutations); NaN where the
            observed mean is not defined.
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
        groups: label per example [examples]; sentences are then shuffled inside a group only (one
            relation: what is left is the fact, not its relation or template).
    """
    labels = np.zeros(len(examples)) if groups is None else np.asarray(groups)
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]

    totals = similarities.sum(axis=1)

    def mean_rsim(table: NDArray[np.integer]) -> float:
        baseline = pairwise_baseline(similarities, table, totals)
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
    p_value = one_sided(observed, values)
    return Null(observed, float(values.mean()), float(values.std()), p_value)
