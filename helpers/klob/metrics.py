"""KLoB's metrics of locating methods: relative similarity (RSim) and relative standard deviation.

A *located set* x holds the top share k of all N units by score. With Sim_cand the similarity of sets
inside an example and Sim_all the similarity of its sets to those of the whole subtask,

    RSim = (Sim_cand − Sim_all) / (1 − Sim_all)          (KLoB, Figure 3, before clipping at 0)
    RSD  = 1 − SD_nonfactual / SD_factual                (KLoB, Section 3.4, before clipping at 0)

Functions and tables give *unclipped* values, because a mean of clipped values is positive for a random
locator; ``paper_similarity`` and the tables' columns *(paper)* have the paper's own. Arguments
``examples`` are indices into the sentences of a subtask, [examples, sentences].
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

from helpers.results.statistics import Estimate, detectable, mean_interval, paired, ratio_interval

UnitIndices = NDArray[np.int64]
Numbers = NDArray[np.float64]

SHARES = (0.001, 0.005, 0.01, 0.05)
DEFAULT_SHARE = 0.01
# Rules that choose a layer without a locator (``regret.rule_regrets``).
ORACLE, BEST_FIXED, ANY_LAYER = "oracle", "one layer for all", "any layer"
SAME_PROFILE = 0.95  # ours; on smollm2-135m 0.99 for one pair of locators, then 0.80


def located_count(units: int, share: float) -> int:
    """Size of a located set: ``share`` of all units, rounded, at least one."""
    if units < 1 or not 0 < share <= 1:
        raise ValueError(f"share must lie in (0, 1] and units be positive, got {share} of {units}")
    return max(1, round(units * share))


def located_units(
    scores: NDArray[np.floating], shares: Sequence[float] = (DEFAULT_SHARE,)
) -> list[UnitIndices]:
    """Indices of one sentence's located units at each share, ascending; ties go to lower indices."""
    if np.isnan(scores.min()):
        raise ValueError(f"{int(np.isnan(scores).sum())} of {scores.size} scores are not numbers")
    set_sizes = [located_count(scores.size, share) for share in shares]
    lowest_rank = scores.size - max(set_sizes)
    lowest_score = np.partition(scores, lowest_rank)[lowest_rank]
    candidates = np.flatnonzero(scores >= lowest_score)
    candidate_scores = scores[candidates]
    located_sets = []
    for set_size in set_sizes:
        rank_of_lowest = candidate_scores.size - set_size
        lowest_located = np.partition(candidate_scores, rank_of_lowest)[rank_of_lowest]
        is_located = candidate_scores > lowest_located
        at_lowest = np.flatnonzero(candidate_scores == lowest_located)
        is_located[at_lowest[: set_size - np.count_nonzero(is_located)]] = True
        located_sets.append(candidates[is_located])
    return located_sets


def similarity_matrix(sets: Sequence[UnitIndices], *, size: float | None = None) -> Numbers:
    """Similarity |x_i ∩ x_j| / |x| of each pair of located sets, [n, n] (KLoB, Appendix A); ``size`` is
    |x| where sets are restricted to a sample of the units, whose similarities are unbiased estimates.
    """
    is_located = np.zeros(1 + max(int(units.max(initial=0)) for units in sets), dtype=bool)
    shared_counts = np.empty((len(sets), len(sets)))
    for row_of_set, units in zip(shared_counts, sets, strict=True):
        is_located[units] = True
        row_of_set[:] = [np.count_nonzero(is_located[other]) for other in sets]
        is_located[units] = False
    return shared_counts / (size or len(sets[0]))


def candidate_similarity(
    similarities: Numbers, examples: NDArray[np.integer], subtask: str
) -> Numbers:
    """Sim_cand of each example, [examples], from similarities [n, n].

    Consistency: mean over all pairs of its sentences (Appendix A). Relevance: mean of each single
    fact's sentence against the chain's, which is the last (ours; the appendix describes c only).
    """
    last_sentence = examples.shape[1] - 1
    sentence_pairs = list(combinations(range(last_sentence + 1), 2))
    if subtask == "relevance":
        sentence_pairs = [(first_index, last_sentence) for first_index in range(last_sentence)]
    similarity_of_pairs = [
        similarities[examples[:, first_index], examples[:, second_index]]
        for first_index, second_index in sentence_pairs
    ]
    return np.mean(similarity_of_pairs, axis=0)


def pairwise_baseline(
    similarities: Numbers, examples: NDArray[np.integer], totals: Numbers | None = None
) -> Numbers:
    """Exact Sim_all: mean similarity of an example's sets to all sets of other examples, [examples]."""
    totals = similarities.sum(axis=1) if totals is None else totals
    similarity_inside = similarities[examples[:, :, None], examples[:, None, :]].sum(axis=2)
    other_sentences = len(similarities) - examples.shape[1]
    if other_sentences == 0:
        return np.full(len(examples), np.nan)
    return ((totals[examples] - similarity_inside) / other_sentences).mean(axis=1)


def example_similarities(
    sets: Sequence[UnitIndices],
    located_counts: NDArray[np.integer],
    top: UnitIndices,
    total: int,
    subtask: str,
) -> dict[str, float]:
    """Sim_cand and both Sim_all of one example, without any other example's sets in memory.

    The overlaps with all sets add up to ``located_counts`` [units]: how many of the ``total`` sentences of
    the subtask locate each unit. ``top`` is x_all, the top units of the mean scores; Sim(x_all, x) is the
    paper's shortcut for Sim_all.
    """
    set_size = len(top)
    other_sentences = total - len(sets)
    similarities = similarity_matrix(sets)
    similarity_to_all = [located_counts[units].sum() / set_size for units in sets]
    similarity_to_others = similarity_to_all - similarities.sum(axis=1)
    is_top = np.zeros(len(located_counts), dtype=bool)
    is_top[top] = True
    own_sentences = np.arange(len(sets))[None]
    return {
        "candidate": float(candidate_similarity(similarities, own_sentences, subtask)[0]),
        "mean_scores": float(np.mean([is_top[units].mean() for units in sets])),
        "pairwise": float(similarity_to_others.mean()) / other_sentences
        if other_sentences
        else float("nan"),
    }


def relative_similarity(candidate: ArrayLike, baseline: ArrayLike) -> Numbers:
    """Unclipped RSim of Sim_cand and Sim_all; 0 where the latter is 1 (always the same units)."""
    sim_candidate = np.asarray(candidate, dtype=float)
    sim_all = np.asarray(baseline, dtype=float)
    distance_to_one = 1 - sim_all
    is_constant = np.isclose(distance_to_one, 0)
    divisor = np.where(is_constant, 1.0, distance_to_one)
    return np.where(is_constant, 0.0, (sim_candidate - sim_all) / divisor)


def paper_similarity(candidate: ArrayLike, mean_scores: ArrayLike) -> Numbers:
    """RSim of each example as KLoB computes it, clipped and with the shortcut for Sim_all:

        RSim = max((Sim_cand − Sim(x_all, x_cand)) / (1 − Sim(x_all, x_cand)), 0)

    (Section 3.4 and Figure 3 for the formula, Appendix A for x_all, the top units of the subtask's mean
    scores.) ``mean_scores`` are Sim(x_all, x_cand), averaged over an example's sentences.
    """
    return np.maximum(relative_similarity(candidate, mean_scores), 0)


def relative_standard_deviation(factual: ArrayLike, nonfactual: ArrayLike) -> Estimate:
    """Unclipped RSD with its 95 % interval, from each sentence's standard deviation over units; NaN where
    factual scores never vary. Both kinds are series with a level ``relation`` where it is known.
    """
    if not np.asarray(factual).any() or not np.size(nonfactual):
        return Estimate(float("nan"), float("nan"), float("nan"), 0)
    ratio = ratio_interval(nonfactual, factual)
    return Estimate(1 - ratio.mean, 1 - ratio.high, 1 - ratio.low, ratio.n)


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
    """
    group_labels = np.zeros(len(examples)) if groups is None else np.asarray(groups)
    examples_by_group = [
        np.flatnonzero(group_labels == group_label) for group_label in np.unique(group_labels)
    ]
    totals = similarities.sum(axis=1)

    def mean_rsim(dealt_examples: NDArray[np.integer]) -> float:
        candidate = candidate_similarity(similarities, dealt_examples, subtask)
        baseline = pairwise_baseline(similarities, dealt_examples, totals)
        return float(relative_similarity(candidate, baseline).mean())

    generator = np.random.default_rng(seed)
    permuted_values = np.empty(permutations)
    for draw in range(permutations):
        shuffled = examples.copy()
        for group_members in examples_by_group:
            for column in range(examples.shape[1]):
                dealt_members = generator.permutation(group_members)
                shuffled[group_members, column] = examples[dealt_members, column]
        permuted_values[draw] = mean_rsim(shuffled)
    observed_value = mean_rsim(examples)
    return {
        "observed": observed_value,
        "mean": float(permuted_values.mean()),
        "standard_deviation": float(permuted_values.std()),
        "p_value": _one_sided(observed_value, permuted_values),
    }


def _one_sided(observed: float, permuted: NDArray[np.floating]) -> float:
    # (1 + draws at least as high) / (1 + draws)
    count_at_least = int((permuted >= observed - 1e-12).sum())
    return float("nan") if np.isnan(observed) else (1 + count_at_least) / (1 + len(permuted))


def edit_gains(edits: pd.DataFrame, *, at_edit_prompt: bool = False) -> pd.DataFrame:
    """How far an edit moved the new answer past the old at the wordings it did not see: nats of mean
    token log-probability against the unedited model, [examples, layers], without failed edits.

    With ``at_edit_prompt``, at the one wording that it saw: the best that any locator could know.
    """
    chosen_wordings = edits.query("wording == 0" if at_edit_prompt else "wording > 0")
    chosen_wordings = chosen_wordings.assign(lead=lambda table: table["new"] - table["old"])
    leads_by_layer = chosen_wordings.groupby(["example", "layer"])["lead"]
    mean_leads = leads_by_layer.agg(lambda values: values.mean(skipna=False)).unstack("layer")
    return mean_leads.drop(columns=-1).sub(mean_leads[-1], axis=0).dropna()


def layer_mass(layers: pd.DataFrame, examples: pd.Index) -> dict[str, Numbers]:
    """|mass| per layer as a share of the fact's, [examples, layers], of locators that scored all these."""
    mass = {}
    consistency = layers.query("subtask == 'consistency'")
    for locator, rows_of_locator in consistency.groupby("locator", sort=False):
        if examples.isin(rows_of_locator["example"]).all():
            by_layer = rows_of_locator.pivot(index="example", columns="layer", values="mass")
            magnitudes = by_layer.loc[examples].abs()
            shares = magnitudes.div(magnitudes.sum(axis=1), axis=0)
            mass[str(locator)] = shares.to_numpy(dtype=float)
    return mass


def profile_twins(mass: Mapping[str, Numbers]) -> dict[str, str]:
    """Locators whose mass goes over the layers as an earlier one's does, with that one's name.

    The mean over facts of Spearman's correlation of the two profiles is at least ``SAME_PROFILE``. Where
    layers are compared the two are one locator: both together would count it twice. Their located
    *neurons* may differ.
    """
    twins = dict[str, str]()
    for locator, mass_of_locator in mass.items():
        for earlier_locator in mass:
            if earlier_locator == locator:
                break
            correlations = rank_correlations(mass[earlier_locator], mass_of_locator)
            profile_correlation = np.nanmean(correlations.diagonal())
            if earlier_locator not in twins and profile_correlation >= SAME_PROFILE:
                twins[locator] = earlier_locator
                break
    return twins


def rank_correlations(mass: Numbers, outcome: Numbers) -> Numbers:
    """Spearman's correlation of mass i with outcome j over layers, [facts, facts]; NaN for constants."""
    return _standardised_ranks(mass) @ _standardised_ranks(outcome).T / mass.shape[1]


def _standardised_ranks(values: Numbers) -> Numbers:
    """Each row's ranks with mean 0 and standard deviation 1; NaN where all its values are equal."""
    ranks = stats.rankdata(values, axis=1)
    centred_ranks = ranks - ranks.mean(axis=1, keepdims=True)
    deviations = centred_ranks.std(axis=1, keepdims=True)
    return centred_ranks / np.where(deviations == 0, np.nan, deviations)


def locality_table(
    gains: pd.DataFrame, mass: Mapping[str, Numbers], *, seed: int = 0
) -> pd.DataFrame:
    """Does location predict where editing works? Mass and gains correlated over layers, per fact.

    Both are [facts, layers]. Per locator a row ``own`` (the mean over facts with their own gains), ``other``
    (the control with *other* facts' gains, which holds what is common to all) and ``specific`` (their
    difference); *p_value* of own where gains are dealt at random, and the mean curves' correlation as
    *average*. The constant locator's profile is no fact's: it is omitted. So are ``profile_twins``.
    """
    outcome = gains.to_numpy(dtype=float)
    rows_of_pairings = list[dict[str, Any]]()
    facts = np.arange(len(outcome))
    twins = profile_twins(mass)
    compared_locators = [name for name in mass if name != "constant" and name not in twins]
    for locator in compared_locators:
        correlations = rank_correlations(mass[locator], outcome)  # [facts, facts]
        with_own_gains = correlations.diagonal()  # [facts]
        correlations_with_others = correlations.copy()
        np.fill_diagonal(correlations_with_others, np.nan)
        with_other_gains = np.nanmean(correlations_with_others, axis=1)  # [facts]
        generator = np.random.default_rng(seed)
        with_dealt_gains = [correlations[facts, generator.permutation(facts)] for _ in range(1_000)]
        mean_with_own = float(np.nanmean(with_own_gains))
        p_value = _one_sided(mean_with_own, np.nanmean(with_dealt_gains, axis=1))
        mean_mass = mass[locator].mean(axis=0)  # [layers]
        mean_gain = outcome.mean(axis=0)
        correlation_of_means = stats.spearmanr(mean_mass, mean_gain).statistic
        could_show = detectable(with_own_gains - with_other_gains)
        estimates = {
            "own": mean_interval(with_own_gains),
            "other": mean_interval(with_other_gains),
            "specific": paired(with_other_gains, with_own_gains, "number").difference,
        }
        for pairing, estimate in estimates.items():
            rows_of_pairings.append(
                {
                    "pairing": pairing,
                    "locator": locator,
                    "p_value": p_value,
                    "average": float(correlation_of_means),
                    **asdict(estimate),
                    "could_show": could_show,
                }
            )
    return pd.DataFrame(rows_of_pairings)
