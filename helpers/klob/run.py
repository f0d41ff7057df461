"""Locators over KLoB's subtasks: from scores to the tables of an evaluation.

A finished (locator, subtask) is never computed again; inside one, finished examples are read back, so
an interrupted run resumes where it stopped.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from helpers.klob.examples import Examples, Subtask, load_examples
from helpers.klob.metrics import (
    SHARES,
    Numbers,
    UnitIndices,
    example_similarities,
    located_count,
    located_units,
    permutation_null,
    similarity_matrix,
)
from helpers.locating.locators import GRANULARITIES, Locator, Scores, make_locator, pool
from helpers.locating.query import Query, encode
from helpers.locating.slots import own_answers
from helpers.models import LanguageModel
from helpers.models.batching import run_halving
from helpers.results.store import Cases, Results, ResultsStore, settings_key

TABLES = ("sentences", "similarities", "null", "layers")
VERSION = 1  # of the scores; raise it when a locator's numbers change
NULL_SENTENCES = 2_048  # of the permutation null, which compares all with all
NULL_UNITS = 1 << 20  # above, a random sample
MOST_STORED_SCORES = 1 << 29  # scores in memory: 2 GiB
KlobTables = dict[str, pd.DataFrame]
OfSentence = TypeVar("OfSentence")


def run_locators(  # noqa: PLR0913 - a parameter of notebook 05 each
    lm: LanguageModel,
    locators: Sequence[str],
    source: str,
    counts: Mapping[Subtask, int | None],
    *,
    store: ResultsStore,
    seed: int = 0,
    shares: Sequence[float] = SHARES,
    permutations: int = 1_000,
    from_store_only: bool = False,
) -> KlobTables:
    """Evaluate locators by name, resuming what an earlier run left.

    Args:
        source: where examples are from (``helpers.klob.examples``).
        counts: how many examples of each subtask are chosen by ``seed``; None takes all.
        shares: of the units, which located sets hold.
        permutations: of the permutation null.
        from_store_only: compute nothing, and read what is stored.
    """
    examples_by_subtask = [
        load_examples(subtask, source, count=count, seed=seed, lm=lm)
        for subtask, count in counts.items()
    ]
    settings = {
        **lm.identity,
        "source": source,
        "seed": seed,
        "shares": shares,
        "permutations": permutations,
        "version": VERSION,
    }
    tables_by_kind: dict[str, list[pd.DataFrame]] = {table_kind: [] for table_kind in TABLES}
    for locator_name, examples in product(locators, examples_by_subtask):
        locator = make_locator(locator_name, seed)
        evaluation_settings = {
            **settings,
            "locator": locator.settings(),
            "subtask": examples.subtask,
            "examples": settings_key(asdict(examples)),
        }
        results = store.open(evaluation_settings)
        if not (from_store_only or results.done("sentences")):
            stored_scores = store.open({**evaluation_settings, "kept": "scores"})
            tables = evaluate_locator(
                lm,
                locator,
                examples,
                shares=shares,
                permutations=permutations,
                seed=seed,
                stored_scores=stored_scores,
            )
            numbered_tables = {
                table_kind: table.assign(case_id=0) for table_kind, table in tables.items()
            }
            results.add(numbered_tables, completes="sentences")
            shutil.rmtree(stored_scores.folder)  # they are large
        label_values = {"model": lm.name, "locator": locator_name, "subtask": examples.subtask}
        for table_kind in TABLES:
            stored_rows = results.read(table_kind).drop(columns="case_id")
            label_columns = pd.DataFrame(label_values, index=stored_rows.index)
            tables_by_kind[table_kind].append(pd.concat([label_columns, stored_rows], axis=1))
    return {
        table_kind: pd.concat(tables, ignore_index=True)
        for table_kind, tables in tables_by_kind.items()
    }


def evaluate_locator(
    lm: LanguageModel,
    locator: Locator,
    examples: Examples,
    *,
    shares: Sequence[float] = SHARES,
    permutations: int = 1_000,
    seed: int = 0,
    stored_scores: Results | None = None,
) -> KlobTables:
    """Run a locator over a subtask at its own and every coarser granularity.

    Scores are stored in ``stored_scores`` until all are there; where they are more than
    ``MOST_STORED_SCORES`` they are computed anew for each reading.

    *sentences* have the spread and mean magnitude, *similarities* each example's Sim_cand and both Sim_all,
    *null* the permutation null over all and inside relations, *layers* each example's mean pooled scores.
    """
    queries = own_answers(lm, encode(lm, examples.sentences))
    shape = locator.shape(lm.layout)
    sentence_scores: Iterable[Scores] = _ComputedScores(lm, locator, queries)
    if stored_scores is not None and len(queries) * np.prod(shape) <= MOST_STORED_SCORES:
        sentence_scores = _resumed_scores(lm, locator, queries, stored_scores)

    fine_to_coarse: list[KlobTables] = []
    for depth in range(len(shape), 0, -1):
        granularity = GRANULARITIES[depth - 1]
        if depth < len(shape):  # a mean of means: pooled from the next finer granularity
            finer_shape = shape[: depth + 1]
            sentence_scores = [
                pool(scores[None], finer_shape, granularity)[0] for scores in sentence_scores
            ]
        tables = _tables_of_granularity(
            sentence_scores,
            int(np.prod(shape[:depth])),
            examples,
            shares=shares,
            permutations=permutations,
            seed=seed,
        )
        for table in tables.values():
            table.insert(0, "granularity", granularity)
        fine_to_coarse.append(tables)

    coarse_to_fine = fine_to_coarse[::-1]
    joined = {
        kind: pd.concat([tables[kind] for tables in coarse_to_fine], ignore_index=True)
        for kind in coarse_to_fine[0]
    }
    layer_scores = sentence_scores  # of the coarsest granularity, which the loop ends with
    joined["layers"] = _mass_by_layer(layer_scores, examples)
    return joined


@dataclass(frozen=True)
class _ComputedScores:
    """Scores of one sentence after the other [units], computed anew at each reading, in batches."""

    lm: LanguageModel
    locator: Locator
    queries: Sequence[Query]

    def __iter__(self) -> Iterator[Scores]:
        score_batch = partial(self.locator.scores, self.lm)
        for start in range(0, len(self.queries), self.locator.at_a_time):
            batch = self.queries[start : start + self.locator.at_a_time]
            for batch_scores in run_halving(batch, score_batch):
                yield from batch_scores


def _resumed_scores(
    lm: LanguageModel, locator: Locator, queries: Sequence[Query], stored_scores: Results
) -> list[Scores]:
    """Scores of all sentences, of which those that an interrupted run stored are read."""

    def make(numbers: Sequence[int]) -> KlobTables:
        scores = _ComputedScores(lm, locator, [queries[number] for number in numbers])
        return {"scores": pd.DataFrame({"case_id": numbers, "scores": list(scores)})}

    cases = Cases({number: number for number in range(len(queries))})
    return cases.completed(stored_scores, make)["scores"].tolist()


def _tables_of_granularity(
    sentence_scores: Iterable[Scores],
    unit_count: int,
    examples: Examples,
    *,
    shares: Sequence[float],
    permutations: int,
    seed: int,
) -> KlobTables:
    """The tables of one granularity, from scores that are read twice: all sentences are summed up
    before an example is compared with them.
    """
    if examples.subtask == "unbiasedness":
        shares = ()  # sentences without a fact in common are not compared
    summary = _summary_of_scores(sentence_scores, unit_count, shares)
    sentences = _sentence_table(summary, examples)
    if not shares:
        return {"sentences": sentences}
    sample = _sample_for_null(unit_count, examples, seed)
    similarities, sampled_sets = _compare_examples(
        sentence_scores, summary, shares, examples, sample
    )
    null = _null_table(sampled_sets, shares, examples, sample, permutations=permutations, seed=seed)
    return {"sentences": sentences, "similarities": similarities, "null": null}


@dataclass(frozen=True)
class _Summary:
    """What the first reading of all sentences' scores gives."""

    deviations: list[float]  # of each sentence's scores
    magnitudes: list[float]  # each sentence's mean |score|
    sums: Numbers  # of the scores over sentences [units]
    located_counts: NDArray[np.int32]  # sentences that locate a unit [shares, units]


def _summary_of_scores(
    sentence_scores: Iterable[Scores], unit_count: int, shares: Sequence[float]
) -> _Summary:
    deviations: list[float] = []
    magnitudes: list[float] = []
    sums = np.zeros(unit_count)
    located_counts = np.zeros((len(shares), unit_count), dtype=np.int32)
    for scores in sentence_scores:
        deviations.append(float(scores.std(dtype=np.float64)))
        magnitudes.append(float(np.abs(scores).mean(dtype=np.float64)))
        if not shares:
            continue
        sums += scores
        for counts, units in zip(located_counts, located_units(scores, shares), strict=True):
            counts[units] += 1
    return _Summary(deviations, magnitudes, sums, located_counts)


def _sentence_table(summary: _Summary, examples: Examples) -> pd.DataFrame:
    wordings = len(examples.groups[0])
    return pd.DataFrame(
        {
            "example": np.repeat(examples.numbers, wordings),
            "sentence": np.tile(range(wordings), len(examples.numbers)),
            "deviation": summary.deviations,
            "magnitude": summary.magnitudes,
        }
    )


@dataclass(frozen=True)
class _NullSample:
    """The examples and units on which the permutation null is estimated."""

    examples: range  # evenly spaced indices of examples: all where there are few
    is_sampled: NDArray[np.bool_]  # [units]

    def restricted(self, units: UnitIndices) -> UnitIndices:
        """A located set's units that are in the sample."""
        return units[self.is_sampled[units]]


def _sample_for_null(unit_count: int, examples: Examples, seed: int) -> _NullSample:
    step = math.ceil(len(examples.sentences) / NULL_SENTENCES)
    sampled_count = min(unit_count, NULL_UNITS)
    sampled_units = np.random.default_rng(seed).choice(unit_count, sampled_count, replace=False)
    is_sampled = np.zeros(unit_count, dtype=bool)
    is_sampled[sampled_units] = True
    return _NullSample(range(0, len(examples.numbers), step), is_sampled)


def _compare_examples(
    sentence_scores: Iterable[Scores],
    summary: _Summary,
    shares: Sequence[float],
    examples: Examples,
    sample: _NullSample,
) -> tuple[pd.DataFrame, list[list[UnitIndices]]]:
    """Each example's similarities, and for each share the located sets that the null deals."""
    sentence_count = len(examples.sentences)
    top_units = located_units(summary.sums / sentence_count, shares)
    similarities = []
    sampled_sets: list[list[UnitIndices]] = [[] for _ in shares]
    # One example's located sets are in memory at a time.
    located_sets = (located_units(scores, shares) for scores in sentence_scores)
    for index, sets_by_sentence in enumerate(_by_example(located_sets, examples)):
        labels = {"example": examples.numbers[index], "relation": examples.relations[index]}
        for share_index, share in enumerate(shares):
            sets = [sets_by_share[share_index] for sets_by_share in sets_by_sentence]
            similarity_values = example_similarities(
                sets,
                summary.located_counts[share_index],
                top_units[share_index],
                sentence_count,
                examples.subtask,
            )
            similarities.append({"share": share, **labels, **similarity_values})
            if index in sample.examples:
                sampled_sets[share_index] += [sample.restricted(units) for units in sets]
    return pd.DataFrame(similarities), sampled_sets


def _null_table(
    sampled_sets: Sequence[Sequence[UnitIndices]],
    shares: Sequence[float],
    examples: Examples,
    sample: _NullSample,
    *,
    permutations: int,
    seed: int,
) -> pd.DataFrame:
    """The permutation null of each share: sentences dealt among all examples, and inside relations."""
    wordings = len(examples.groups[0])
    sentence_indices = np.arange(len(sample.examples) * wordings).reshape(-1, wordings)
    relations = [examples.relations[index] for index in sample.examples]
    unit_count = len(sample.is_sampled)
    sampled_count = int(sample.is_sampled.sum())
    nulls_of_shares = []
    for share, sets in zip(shares, sampled_sets, strict=True):
        # The size of a whole located set, times the share of units that are sampled.
        set_size = located_count(unit_count, share) * sampled_count / unit_count
        similarities = similarity_matrix(sets, size=set_size)
        for shuffled, groups in (("all", None), ("relation", relations)):
            null_of_share = permutation_null(
                similarities,
                sentence_indices,
                examples.subtask,
                groups=groups,
                permutations=permutations,
                seed=seed,
            )
            nulls_of_shares.append({"share": share, "shuffled": shuffled, **null_of_share})
    return pd.DataFrame(nulls_of_shares)


def _mass_by_layer(layer_scores: Iterable[Scores], examples: Examples) -> pd.DataFrame:
    """Located mass per layer, averaged over an example's sentences."""
    mass_of_examples = [np.mean(scores, axis=0) for scores in _by_example(layer_scores, examples)]
    mass_by_example = pd.DataFrame(
        mass_of_examples, index=pd.Index(examples.numbers, name="example")
    )
    mass_by_row = mass_by_example.melt(
        ignore_index=False, var_name="layer", value_name="mass"
    ).reset_index()
    return mass_by_row.sort_values(["example", "layer"], ignore_index=True)


def _by_example(
    of_sentences: Iterable[OfSentence], examples: Examples
) -> Iterator[list[OfSentence]]:
    """What belongs to the sentences of each example, from what belongs to all sentences in order."""
    remaining_items = iter(of_sentences)
    for group in examples.groups:
        yield [next(remaining_items) for _ in group]
