"""One locator on one subtask: scores streamed once (twice for parameters), tables of similarities."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from helpers.kept import sound
from helpers.klob.evaluation_tables import (
    Views,
    layers_table,
    null_examples,
    null_table,
    score_rows,
    sentences_table,
    similarities_table,
)
from helpers.klob.questions import Examples
from helpers.klob.summary import Summary
from helpers.klob.unit_sets import SHARES
from helpers.locating.locators import GRANULARITIES, Locator, pool
from helpers.locating.query import Query, encode
from helpers.locating.slots import own_answers
from helpers.models.language_model import LanguageModel


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
    in_null = null_examples(examples)
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
        similarities = similarities_table(language_model, locator, queries, examples, views)
        null = null_table(views, examples, permutations)
    return Evaluation(
        sentences_table(views, examples), similarities, null, layers_table(views["layer"], examples)
    )


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
    there = {granularity: sound(path, Summary.read) for granularity, path in paths.items()}
    intact = {granularity: view for granularity, view in there.items() if view is not None}
    if len(intact) == len(paths):
        return intact
    _add(language_model, locator, queries, views)
    for granularity, path in paths.items():
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
