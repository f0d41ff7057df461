"""A locator's summaries on one subtask as tables: similarities, their null, spreads and layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from helpers.klob.metrics import (
    Criterion,
    candidate_similarity,
    counted_baseline,
    mean_score_baseline,
    similarity_matrix,
)
from helpers.klob.null import permutation_null
from helpers.klob.questions import Examples
from helpers.klob.summary import Summary
from helpers.klob.unit_sets import Sets, Units, located_units, shared_units
from helpers.locating.locators import Granularity, Locator, Scores, pool
from helpers.locating.query import Query
from helpers.models.batching import run_halving
from helpers.models.language_model import LanguageModel

Views = dict[Granularity, Summary]
NULL_SENTENCES = 2_048  # most sentences of the permutation null, which compares all with all


def score_rows(
    language_model: LanguageModel, locator: Locator, queries: Sequence[Query]
) -> Iterator[Scores]:
    """Scores of one sentence at a time [units], computed in batches that halve when memory ends."""
    for start in range(0, len(queries), locator.at_a_time):
        batch = queries[start : start + locator.at_a_time]
        for scores in run_halving(batch, lambda part: locator.scores(language_model, part)):
            yield from scores


def null_examples(examples: Examples) -> range:
    """Evenly spaced examples that the null is drawn from, all of them where there are few."""
    sentences = sum(map(len, examples.groups))
    return range(0, len(examples.groups), -(-sentences // NULL_SENTENCES))


def similarities_table(
    language_model: LanguageModel,
    locator: Locator,
    queries: Sequence[Sequence[Query]],
    examples: Examples,
    views: Views,
) -> pd.DataFrame:
    """One row per example, granularity and share. Whole parameter sets need a second pass."""
    tables = []
    shape = locator.shape(language_model.layout)
    for granularity, summary in views.items():
        located_mean = summary.located_mean()
        rows: Iterator[Scores] = iter(())
        if not summary.complete:
            rows = score_rows(language_model, locator, [q for group in queries for q in group])
        first = 0
        for example, group in enumerate(queries):
            members = range(first, first + len(group))
            first += len(group)
            if summary.complete:
                sets = [summary.located(member) for member in members]
            else:
                scores = (pool(next(rows)[None], shape, granularity)[0] for _ in group)
                sets = [located_units(row, summary.shares) for row in scores]
            for index, share in enumerate(summary.shares):
                own = [units[index] for units in sets]
                values = _example(own, summary, index, located_mean[index], examples.subtask)
                tables.append(
                    {
                        "granularity": granularity,
                        "share": share,
                        "example": examples.numbers[example],
                        "relation": examples.relations[example],
                        **values,
                    }
                )
    return pd.DataFrame(tables)


def _example(
    sets: Sequence[Units], summary: Summary, share: int, located_mean: Sets, subtask: str
) -> dict[str, float]:
    """Sim_cand and both Sim_all of one example's located sets."""
    shared = shared_units(sets, summary.units)
    kind: Criterion = "relevance" if subtask == "relevance" else "consistency"
    own = np.arange(len(sets))[None]
    return {
        "candidate": float(candidate_similarity(shared / len(sets[0]), own, kind)[0]),
        "mean_scores": mean_score_baseline(sets, located_mean),
        "pairwise": counted_baseline(sets, shared, summary.counts[share], len(summary)),
    }


def null_table(views: Views, examples: Examples, permutations: int) -> pd.DataFrame:
    """Permutation nulls with the exact baseline; estimated from a sample of units for parameters."""
    width = len(examples.groups[0])
    chosen = null_examples(examples)
    sentences = [number * width + place for number in chosen for place in range(width)]
    relations = [examples.relations[number] for number in chosen]
    table: NDArray[np.integer] = np.arange(len(sentences)).reshape(-1, width)
    kind: Criterion = "relevance" if examples.subtask == "relevance" else "consistency"
    rows = []
    for granularity, summary in views.items():
        for index, share in enumerate(summary.shares):
            sets = summary.sets(index, sentences if summary.complete else None)
            similarities = similarity_matrix(sets, size=summary.set_size(index))
            for shuffled, groups in (("all", None), ("relation", relations)):
                null = permutation_null(
                    similarities, table, kind, groups=groups, permutations=permutations
                )
                rows.append(
                    {
                        "granularity": granularity,
                        "share": share,
                        "shuffled": shuffled,
                        **vars(null),
                    }
                )
    return pd.DataFrame(rows)


def sentences_table(views: Views, examples: Examples) -> pd.DataFrame:
    """One row per sentence and granularity: its spread and mean magnitude."""
    numbers = [n for n, g in zip(examples.numbers, examples.groups, strict=True) for _ in g]
    places = [place for group in examples.groups for place in range(len(group))]
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "granularity": granularity,
                    "example": numbers,
                    "sentence": places,
                    "deviation": summary.deviations,
                    "magnitude": summary.magnitudes,
                }
            )
            for granularity, summary in views.items()
        ],
        ignore_index=True,
    )


def layers_table(summary: Summary, examples: Examples) -> pd.DataFrame:
    """Located mass per layer, averaged over an example's sentences."""
    if not summary.rows:
        return pd.DataFrame()
    first, tables = 0, []
    for number, group in zip(examples.numbers, examples.groups, strict=True):
        mass = np.mean(summary.rows[first : first + len(group)], axis=0)
        first += len(group)
        tables.append(pd.DataFrame({"example": number, "layer": range(len(mass)), "mass": mass}))
    return pd.concat(tables, ignore_index=True)
