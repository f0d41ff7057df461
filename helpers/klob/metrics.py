"""KLoB's metrics of locating methods: relative similarity (RSim) and relative standard deviation.

A *located set* x holds the top share k of all N units by score. With Sim_cand the similarity of sets
inside an example and Sim_all the similarity of its sets to those of the whole subtask,

    RSim = (Sim_cand − Sim_all) / (1 − Sim_all)          (KLoB, Figure 3, before clipping at 0)
    RSD  = 1 − SD_nonfactual / SD_factual                (KLoB, Section 3.4, before clipping at 0)

Functions return *unclipped* values, because a mean of clipped values is positive for a random
locator; tables clip the mean as the paper clips an example. Arguments ``examples`` are indices into the
sentences of a subtask, [examples, sentences].

Does location predict where editing works? For one fact: Spearman's correlation, over layers, between
located mass (a locator's pooled score of the layer) and the gain of the edit made at that layer. The
control pairs a fact's mass with *another* fact's gains, which holds what is common to all facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from helpers.klob.located import Numbers, Units, similarity_matrix
from helpers.results.statistics import Estimate, bootstrap_interval, one_sided


def candidate_similarity(
    similarities: Numbers, examples: NDArray[np.integer], subtask: str
) -> Numbers:
    """Sim_cand of each example, [examples], from similarities [n, n].

    Consistency: mean over all pairs of its sentences (Appendix A). Relevance: mean of each single
    fact's sentence against the chain's, which is the last (ours; the appendix describes c only).
    """
    last = examples.shape[1] - 1
    pairs = list(combinations(range(last + 1), 2))
    if subtask == "relevance":
        pairs = [(i, last) for i in range(last)]
    values = [similarities[examples[:, i], examples[:, j]] for i, j in pairs]
    return np.mean(values, axis=0)


def pairwise_baseline(
    similarities: Numbers, examples: NDArray[np.integer], totals: Numbers | None = None
) -> Numbers:
    """Exact Sim_all: mean similarity of an example's sets to all sets of other examples, [examples].

    NaN with a single example. ``totals``: the similarities' sums over rows, for a caller that has them.
    """
    totals = similarities.sum(axis=1) if totals is None else totals
    own = similarities[examples[:, :, None], examples[:, None, :]].sum(axis=2)
    others = len(similarities) - examples.shape[1]
    if others == 0:
        return np.full(len(examples), np.nan)
    return ((totals[examples] - own) / others).mean(axis=1)


def example_similarities(
    sets: Sequence[Units], counts: NDArray[np.integer], top: Units, total: int, subtask: str
) -> dict[str, float]:
    """Sim_cand and both Sim_all of one example, without any other example's sets in memory.

    The overlaps with all sets add up to the units' selection counts, so one vector replaces them.

    Args:
        sets: located units of each of the example's sentences.
        counts: how many of the subtask's sentences locate each unit [units].
        top: x_all, the top units of the mean scores (the paper's shortcut for Sim_all).
        total: number of sentences behind ``counts``.

    Returns:
        candidate; mean_scores, the mean Sim(x_all, x); and pairwise, the exact Sim_all.
    """
    size, others = len(top), total - len(sets)
    similarities = similarity_matrix(sets)
    foreign = [counts[units].sum() / size for units in sets] - similarities.sum(axis=1)
    located = np.zeros(len(counts), dtype=bool)
    located[top] = True
    own = np.arange(len(sets))[None]
    return {
        "candidate": float(candidate_similarity(similarities, own, subtask)[0]),
        "mean_scores": float(np.mean([located[units].mean() for units in sets])),
        "pairwise": float(foreign.mean()) / others if others else float("nan"),
    }


def relative_similarity(candidate: ArrayLike, baseline: ArrayLike) -> Numbers:
    """Unclipped RSim of Sim_cand and Sim_all; 0 where the latter is 1 (always the same units)."""
    inside, everywhere = np.asarray(candidate, dtype=float), np.asarray(baseline, dtype=float)
    room = 1 - everywhere
    constant = np.isclose(room, 0)
    return np.where(constant, 0.0, (inside - everywhere) / np.where(constant, 1.0, room))


def relative_standard_deviation(
    factual: ArrayLike, nonfactual: ArrayLike, *, resamples: int = 2_000, seed: int = 0
) -> Estimate:
    """Unclipped RSD with a 95 % percentile bootstrap interval over sentences of both kinds.

    Given are the standard deviations over units of each sentence of c and r, and of u. NaN without
    sentences of one kind, or where factual scores never vary.
    """
    first, second = (np.asarray(values, dtype=float) for values in (factual, nonfactual))
    if not first.any() or not second.size:
        return Estimate(float("nan"), float("nan"), float("nan"), 0)
    generator = np.random.default_rng(seed)
    draws = [
        1
        - generator.choice(second, second.size).mean() / generator.choice(first, first.size).mean()
        for _ in range(resamples)
    ]
    low, high = np.quantile(draws, [0.025, 0.975])
    mean = 1 - float(second.mean()) / float(first.mean())
    return Estimate(mean, float(low), float(high), first.size + second.size)


def permutation_null(
    similarities: Numbers,
    examples: NDArray[np.integer],
    subtask: str,
    *,
    groups: ArrayLike | None = None,
    permutations: int = 1_000,
    seed: int = 0,
) -> dict[str, float]:
    """Mean RSim when sentences are dealt to examples at random, which the paper does not test.

    Each column of ``examples`` is shuffled on its own, so that a random example still holds one
    sentence of every role (first template, …, chain); with ``groups``, a label per example, inside a
    group only (one relation: what is left is the fact, not its relation or template).

    Returns:
        *observed*, the mean unclipped RSim of the real examples; *mean* and *standard_deviation* over
        permutations; one-sided *p_value*, NaN where the observed mean is not defined.
    """
    labels = np.zeros(len(examples)) if groups is None else np.asarray(groups)
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    totals = similarities.sum(axis=1)

    def mean_rsim(table: NDArray[np.integer]) -> float:
        candidate = candidate_similarity(similarities, table, subtask)
        baseline = pairwise_baseline(similarities, table, totals)
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
    spread = {"mean": float(values.mean()), "standard_deviation": float(values.std())}
    return {"observed": observed, **spread, "p_value": one_sided(observed, values)}


def edit_gains(edits: pd.DataFrame) -> pd.DataFrame:
    """How far an edit moved the new answer past the old at the wordings it did not see, in nats.

    [examples, layers], of mean token log-probability, against the unedited model; without failed edits.
    """
    unseen = edits.query("wording > 0").assign(lead=lambda table: table["new"] - table["old"])
    leads = unseen.groupby(["example", "layer"])["lead"]
    wide = leads.agg(lambda values: values.mean(skipna=False)).unstack("layer")
    return wide.drop(columns=-1).sub(wide[-1], axis=0).dropna()


def layer_mass(layers: pd.DataFrame, examples: pd.Index) -> dict[str, Numbers]:
    """|mass| per layer as a share of the fact's, [examples, layers], of locators that scored all these."""
    mass = {}
    for name, part in layers.query("subtask == 'consistency'").groupby("locator", sort=False):
        if examples.isin(part["example"]).all():
            wide = part.pivot(index="example", columns="layer", values="mass").loc[examples].abs()
            mass[str(name)] = wide.div(wide.sum(axis=1), axis=0).to_numpy(dtype=float)
    return mass


def rank_correlations(mass: Numbers, outcome: Numbers) -> Numbers:
    """Spearman's correlation of mass i with outcome j over layers, [facts, facts]; NaN for constants."""
    ranks = [stats.rankdata(curves, axis=1) for curves in (mass, outcome)]
    centred = [rank - rank.mean(axis=1, keepdims=True) for rank in ranks]
    spread = [c.std(axis=1, keepdims=True) for c in centred]
    first, second = (c / np.where(s == 0, np.nan, s) for c, s in zip(centred, spread, strict=True))
    return first @ second.T / mass.shape[1]


def locality_table(
    gains: pd.DataFrame, mass: Mapping[str, Numbers], *, permutations: int = 1_000, seed: int = 0
) -> pd.DataFrame:
    """Correlate mass and gains per fact, against other facts as a control, for every locator but the
    constant one, whose profile is no fact's.

    Args:
        gains: of the edit at each layer [facts, layers].
        mass: per locator located mass [facts, layers].
        permutations: draws behind the p-values.

    Returns:
        Two rows per locator: columns locator, pairing, mean, low, high. ``own``: the mean over facts of
        the correlation of mass and gains of the same fact; ``other``: with the gains of other facts. For
        ``own`` also specific (own minus other, above 0 if locating is about the fact), specific_low,
        specific_high; the one-sided p_value of own when facts' gains are dealt out at random; and
        average, the correlation of the mean mass with the mean gain.
    """
    outcome, rows = gains.to_numpy(dtype=float), list[dict[str, Any]]()
    facts = np.arange(len(outcome))
    for name in [name for name in mass if name != "constant"]:
        table = rank_correlations(mass[name], outcome)
        own, foreign = table.diagonal(), table.copy()
        np.fill_diagonal(foreign, np.nan)
        other = np.nanmean(foreign, axis=1)
        generator = np.random.default_rng(seed)
        dealt = [table[facts, generator.permutation(facts)] for _ in range(permutations)]
        means = {"own": own, "other": other, "specific": own - other}
        found = {n: bootstrap_interval(v, resamples=2_000, seed=seed) for n, v in means.items()}
        for pairing in ("own", "other"):
            estimate = asdict(found[pairing])
            rows.append({"locator": name, "pairing": pairing, **estimate})
        average = stats.spearmanr(mass[name].mean(axis=0), outcome.mean(axis=0)).statistic
        rows[-2] |= {
            "specific": found["specific"].mean,
            "specific_low": found["specific"].low,
            "specific_high": found["specific"].high,
            "p_value": one_sided(float(np.nanmean(own)), np.nanmean(dealt, axis=1)),
            "average": float(average),
        }
    return pd.DataFrame(rows).drop(columns="n", errors="ignore")
