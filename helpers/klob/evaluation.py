"""One locator on one subtask: scores streamed once (twice for parameters), tables of similarities."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from helpers.kept import sound
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
from helpers.klob.unit_sets import SHARES, Sets, Units, located_units, shared_units
from helpers.locating.locator import GRANULARITIES, Granularity, Locator, Scores, pool
from helpers.locating.query import Query, encode
from helpers.locating.slots import own_answers
from helpers.models.batching import run_halving
from helpers.models.language_model import LanguageModel

Views = dict[Granularity, Summary]
NULL_SENTENCES = 2_048  # most sentences of the permutation null, which compares all with all


@dataclass(frozen=True)
class Evaluation:
    """Result tables of one locator on one subtask.

    Attributes:
        sentences: per sentence and granularity its spread and mean magnitude.
        similarities: per example, granularity and share its Sim_cand and both Sim_all.
        null: per granularity and share the permutation null, over all and inside relations.
        layers: per sentence and layer the pooled score.
    """

    sentences: pd.DataFrame
    similarities: pd.DataFrame
    null: pd.DataFrame
    layers: pd.DataFrame


def evaluate(
    language_model: LanguageModel,
    locator: Locator,
    examples: Examples,
    *,
    shares: Sequence[float] = SHARES,
    permutations: int = 1_000,
    checkpoints: Path | None = None,
    chunk: int = 20,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Evaluation:
    """Run a locator over a subtask at its own and every coarser granularity.

    Args:
        shares: located shares k; none compares nothing and fills ``sentences`` and ``layers`` only.
        checkpoints: folder for finished chunks, read again when a run resumes. Parameter scores are
            too many to be kept between runs; such a locator starts its subtask anew.
        progress: called with finished and all examples.
    """
    together = [sentence for group in examples.groups for sentence in group]
    answered = iter(own_answers(language_model, encode(language_model, together)))
    queries = [[next(answered) for _ in group] for group in examples.groups]
    used = tuple(shares) if examples.subtask != "unbiasedness" else ()
    views = _empty_views(language_model, locator, used)
    in_null = _null_examples(examples)
    keep = checkpoints if locator.granularity != "parameter" else None
    for start in range(0, len(queries), chunk):
        part = [query for group in queries[start : start + chunk] for query in group]
        if keep is None:
            kept = [
                number in in_null
                for number, group in enumerate(queries[start : start + chunk], start)
                for _ in group
            ]
            _add(language_model, locator, part, views, kept)
        else:
            for granularity, summary in _chunk(
                language_model, locator, part, used, keep, start
            ).items():
                views[granularity].merge(summary)
        progress(min(start + chunk, len(queries)), len(queries))
    similarities = null = pd.DataFrame()
    if used:
        similarities = _similarities(language_model, locator, queries, examples, views)
        null = _null(views, examples, permutations)
    return Evaluation(
        _sentences(views, examples), similarities, null, _layers(views["layer"], examples)
    )


def score_rows(
    language_model: LanguageModel, locator: Locator, queries: Sequence[Query]
) -> Iterator[Scores]:
    """Scores of one sentence at a time [units], computed in batches that halve when memory ends."""
    for start in range(0, len(queries), locator.at_a_time):
        batch = queries[start : start + locator.at_a_time]
        for scores in run_halving(batch, lambda part: locator.scores(language_model, part)):
            yield from scores


def _empty_views(
    language_model: LanguageModel, locator: Locator, shares: tuple[float, ...]
) -> Views:
    shape = locator.shape(language_model.layout)
    return {
        granularity: Summary(int(np.prod(shape[: depth + 1])), shares)
        for depth, granularity in enumerate(GRANULARITIES[: len(shape)])
    }


def _chunk(
    language_model: LanguageModel,
    locator: Locator,
    queries: Sequence[Query],
    shares: tuple[float, ...],
    folder: Path,
    start: int,
) -> Views:
    """Summaries of one chunk's sentences, read from disk where an earlier run left them."""
    views = _empty_views(language_model, locator, shares)
    # Other sentences, shares, settings or models in the same folder are other chunks.
    asked = repr((language_model.fingerprint, locator.settings(), shares, list(queries)))
    digest = hashlib.sha256(asked.encode()).hexdigest()[:12]
    paths = {g: folder / f"{g}-{start:06d}-{digest}.npz" for g in views}
    there = {granularity: sound(path, Summary.load) for granularity, path in paths.items()}
    intact = {granularity: view for granularity, view in there.items() if view is not None}
    if len(intact) == len(paths):
        return intact
    _add(language_model, locator, queries, views)
    for granularity, path in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        views[granularity].save(path)
    return views


def _add(
    language_model: LanguageModel,
    locator: Locator,
    queries: Sequence[Query],
    views: Views,
    kept: Sequence[bool] | None = None,
) -> None:
    """Score sentences and take them into the summaries of every granularity."""
    shape = locator.shape(language_model.layout)
    flags = [True] * len(queries) if kept is None else kept
    for scores, keep in zip(score_rows(language_model, locator, queries), flags, strict=True):
        # A mean of means: each view is pooled from the next finer one.
        for depth in range(len(shape), 0, -1):
            granularity = GRANULARITIES[depth - 1]
            scores = pool(scores[None], shape[: depth + 1], granularity)[0]
            views[granularity].add(scores, keep=keep)


def _null_examples(examples: Examples) -> range:
    """Evenly spaced examples that the null is drawn from, all of them where there are few."""
    sentences = sum(map(len, examples.groups))
    return range(0, len(examples.groups), -(-sentences // NULL_SENTENCES))


def _similarities(
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


def _null(views: Views, examples: Examples, permutations: int) -> pd.DataFrame:
    """Permutation nulls with the exact baseline; estimated from a sample of units for parameters."""
    width = len(examples.groups[0])
    chosen = _null_examples(examples)
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


def _sentences(views: Views, examples: Examples) -> pd.DataFrame:
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


def _layers(summary: Summary, examples: Examples) -> pd.DataFrame:
    """Located mass per layer, averaged over an example's sentences."""
    if not summary.rows:
        return pd.DataFrame()
    first, tables = 0, []
    for number, group in zip(examples.numbers, examples.groups, strict=True):
        mass = np.mean(summary.rows[first : first + len(group)], axis=0)
        first += len(group)
        tables.append(pd.DataFrame({"example": number, "layer": range(len(mass)), "mass": mass}))
    return pd.concat(tables, ignore_index=True)
