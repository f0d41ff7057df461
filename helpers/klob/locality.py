"""Does where a fact is located say where editing it works? Rank correlations over layers.

For one fact: Spearman's correlation, over layers, between located mass (a locator's pooled score of
the layer) and the outcome of an edit made at that layer. The control pairs a fact's mass with
*another* fact's outcomes: what remains there is common to all facts (some layers are good for any
edit) and says nothing about the fact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from helpers.results.statistics import Estimate, bootstrap_interval, one_sided

Curves = NDArray[np.float64]


@dataclass(frozen=True)
class LocalityTest:
    """The locality hypothesis on one locator.

    Attributes:
        own: mean over facts of the correlation of mass and outcome of the same fact.
        control: the same with the outcomes of other facts.
        specific: mean of own minus control per fact; above 0 if locating is about the fact.
        average: correlation of the mean mass with the mean outcome.
        p_value: one-sided, of ``own`` when facts' outcomes are dealt out at random; NaN where no
            correlation is defined.
    """

    own: Estimate
    control: Estimate
    specific: Estimate
    average: float
    p_value: float


def rank_correlations(mass: Curves, outcome: Curves) -> Curves:
    """Spearman's correlation of every fact's mass with every fact's outcome over layers.

    Args:
        mass: [facts, layers].
        outcome: [facts, layers].

    Returns:
        [facts, facts]; entry (i, j) correlates mass i with outcome j, NaN where either is constant.
    """
    first, second = (_standardised_ranks(curves) for curves in (mass, outcome))
    return first @ second.T / mass.shape[1]


def locality_test(
    mass: Curves, outcome: Curves, *, permutations: int = 1_000, seed: int = 0
) -> LocalityTest:
    """Correlate mass and outcome per fact, against other facts as a control.

    Args:
        mass: located mass [facts, layers].
        outcome: outcome of the edit at each layer [facts, layers], higher is better.
        permutations: draws behind the p-value.

    Raises:
        ValueError: unequal shapes, or fewer than two facts.
    """
    if mass.shape != outcome.shape or len(mass) < 2:
        raise ValueError(
            f"mass {mass.shape} and outcome {outcome.shape} must be equal [facts >= 2, layers]"
        )
    table = rank_correlations(mass, outcome)
    own = table.diagonal()
    foreign = table.copy()
    np.fill_diagonal(foreign, np.nan)
    control = np.nanmean(foreign, axis=1)
    generator = np.random.default_rng(seed)
    facts = np.arange(len(mass))
    shuffled = np.array(
        [np.nanmean(table[facts, generator.permutation(facts)]) for _ in range(permutations)]
    )
    average = stats.spearmanr(mass.mean(axis=0), outcome.mean(axis=0)).statistic
    return LocalityTest(
        own=bootstrap_interval(own, resamples=2_000, seed=seed),
        control=bootstrap_interval(control, resamples=2_000, seed=seed),
        specific=bootstrap_interval(own - control, resamples=2_000, seed=seed),
        average=float(average),
        p_value=one_sided(float(np.nanmean(own)), shuffled),
    )


def _standardised_ranks(curves: Curves) -> Curves:
    ranks = stats.rankdata(curves, axis=1)
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    spread = centred.std(axis=1, keepdims=True)
    return centred / np.where(spread == 0, np.nan, spread)
