"""KLoB's metrics of locating methods: relative similarity (RSim) and relative standard deviation.

A *located set* x holds the top share k of all N units by score. Similarity of two located sets is
|x_i ∩ x_j| / |x| (KLoB, Appendix A; |x| = N·k, at least one unit). With Sim_cand the similarity
inside an example and Sim_all the similarity of its sets to those of the whole subtask,

    RSim = (Sim_cand − Sim_all) / (1 − Sim_all)          (KLoB, Figure 3, before clipping at 0)
    RSD  = 1 − SD_nonfactual / SD_factual                (KLoB, Section 3.4, before clipping at 0)

Functions return *unclipped* values, because a mean of clipped values is positive for a random
locator; ``headline`` clips a mean as the paper clips an example. The paper leaves open how examples
are aggregated and what Sim_cand is for chains; both choices are ours and stated where made.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from helpers.klob.unit_sets import Sets, Units
from helpers.results.statistics import Estimate

Criterion = Literal["consistency", "relevance"]
Numbers = NDArray[np.float64]


def similarity_matrix(sets: Sets, *, size: float | None = None) -> Numbers:
    """Pairwise |x_i ∩ x_j| / |x| of located sets.

    Args:
        sets: boolean [n, units], all of one size.
        size: denominator where ``sets`` are restricted to a sample of the units: the expected size
            of a set in it. The similarities are then unbiased estimates.

    Returns:
        [n, n].

    Raises:
        ValueError: sets of different sizes without a given ``size``.
    """
    sizes = sets.sum(axis=1)
    if size is None:
        if len(set(sizes.tolist())) != 1:
            raise ValueError(f"located sets differ in size: {sizes.min()} to {sizes.max()} units")
        size = float(sizes[0])
    overlaps = np.zeros((len(sets), len(sets)))
    for start in range(0, sets.shape[1], 1 << 16):  # bounds the float copy of the sets
        block = sets[:, start : start + (1 << 16)].astype(np.float32)
        overlaps += block @ block.T
    return overlaps / size


def candidate_similarity(
    similarities: Numbers, examples: NDArray[np.integer], criterion: Criterion
) -> Numbers:
    """Sim_cand of each example.

    Consistency: mean over all pairs of its sentences (Appendix A). Relevance: mean of each single
    fact's sentence against the chain's, which stands last (ours; the appendix describes c only).

    Args:
        similarities: [n, n] of ``similarity_matrix``.
        examples: sentence indices [examples, sentences].

    Returns:
        [examples].
    """
    last = examples.shape[1] - 1
    if criterion == "relevance":
        pairs = [(i, last) for i in range(last)]
    else:
        pairs = list(combinations(range(last + 1), 2))
    values = [similarities[examples[:, i], examples[:, j]] for i, j in pairs]
    return np.mean(values, axis=0)


def pairwise_baseline(
    similarities: Numbers, examples: NDArray[np.integer], totals: Numbers | None = None
) -> Numbers:
    """Exact Sim_all: mean similarity of an example's sets to all sets of other examples.

    Args:
        similarities: [n, n] over exactly the sentences of the subtask.
        examples: sentence indices [examples, sentences].
        totals: the similarities' sums over rows [n], for a caller that has them.

    Returns:
        [examples]; NaN with a single example.
    """
    if totals is None:
        totals = similarities.sum(axis=1)
    own = similarities[examples[:, :, None], examples[:, None, :]].sum(axis=2)
    others = len(similarities) - examples.shape[1]
    if others == 0:
        return np.full(len(examples), np.nan)
    return ((totals[examples] - own) / others).mean(axis=1)


def counted_baseline(
    sets: Sequence[Units], shared: NDArray[np.integer], counts: NDArray[np.integer], sentences: int
) -> float:
    """``pairwise_baseline`` of one example without any other set in memory.

    The overlaps with all sets add up to the units' selection counts, so one vector replaces them.

    Args:
        sets: located units of each of the example's sentences.
        shared: how many of them each pair has in common (``shared_units``), [own, own].
        counts: how many of the subtask's sentences (the example's included) locate each unit.
        sentences: number of sentences behind ``counts``.
    """
    others = sentences - len(sets)
    if others == 0:
        return float("nan")
    foreign = [counts[units].sum() for units in sets] - shared.sum(axis=1)
    return float(foreign.mean()) / len(sets[0]) / others


def mean_score_baseline(sets: Sequence[Units], located_mean: Sets) -> float:
    """Mean Sim(x_all, x) of an example's sets, x_all the top units of the mean scores (the paper's
    shortcut).

    Args:
        sets: located units of each of the example's sentences.
        located_mean: x_all, boolean [units].
    """
    return float(np.mean([located_mean[units].sum() / len(units) for units in sets]))


def relative_similarity(candidate: ArrayLike, baseline: ArrayLike) -> Numbers:
    """Unclipped RSim; 0 where the baseline is 1 (a locator that always picks the same units).

    Args:
        candidate: Sim_cand [examples].
        baseline: Sim_all [examples].
    """
    inside, everywhere = np.asarray(candidate, dtype=float), np.asarray(baseline, dtype=float)
    room = 1 - everywhere
    constant = np.isclose(room, 0)
    return np.where(constant, 0.0, (inside - everywhere) / np.where(constant, 1.0, room))


def headline(mean: float) -> float:
    """A mean clipped at 0, as the paper prints RSim and RSD."""
    return max(mean, 0.0)


def relative_standard_deviation(
    factual: ArrayLike,
    nonfactual: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> Estimate:
    """Unclipped RSD with a percentile bootstrap interval over sentences of both kinds.

    Args:
        factual: standard deviation over all units for each sentence of c and r.
        nonfactual: the same for each sentence of u.

    Raises:
        ValueError: no sentences of one kind, or factual scores that never vary.
    """
    first, second = (np.asarray(values, dtype=float) for values in (factual, nonfactual))
    if not first.size or not second.size:
        raise ValueError("RSD needs factual (c, r) and non-factual (u) sentences")
    if first.mean() == 0:
        raise ValueError("factual scores do not vary over units: RSD is not defined")
    generator = np.random.default_rng(seed)
    draws = [
        1
        - generator.choice(second, second.size).mean() / generator.choice(first, first.size).mean()
        for _ in range(resamples)
    ]
    low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2])
    mean = 1 - float(second.mean()) / float(first.mean())
    return Estimate(mean, float(low), float(high), first.size + second.size)
