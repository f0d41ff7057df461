"""Locators over KLoB's subtasks: from scores to the tables of an evaluation.

A finished (locator, subtask) is never computed again; inside one, finished examples are read back, so
an interrupted run resumes where it stopped.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from helpers.klob.examples import Examples, Subtask, load_examples
from helpers.klob.metrics import (
    SHARES,
    Units,
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
MOST = 1 << 29  # scores in memory: 2 GiB
Tables = dict[str, pd.DataFrame]


def run_locators(
    lm: LanguageModel,
    locators: Sequence[str],
    source: str,
    counts: Mapping[Subtask, int | None],
    *,
    store: ResultsStore,
    seed: int = 0,
    finished: bool = False,
    **how: Any,
) -> Tables:
    """``evaluate`` locators by name, resuming what an earlier run left; or, if ``finished``, read what is.

    ``counts`` examples of a source (``helpers.klob.examples``) are chosen by ``seed``; None takes all.
    ``how``: shares and permutations.
    """
    load = partial(load_examples, source=source, seed=seed, asked=lm)
    loaded = [load(subtask, count=count) for subtask, count in counts.items()]
    how = {"shares": SHARES, "permutations": 1_000, **how}
    settings = {
        **lm.identity,
        "source": source,
        "seed": seed,
        **how,
        "version": VERSION,
    }
    tables: dict[str, list[pd.DataFrame]] = {table: [] for table in TABLES}
    for name, examples in product(locators, loaded):
        key = {"subtask": examples.subtask, "examples": settings_key(asdict(examples))}
        locator = make_locator(name, seed)
        of_locator = {**settings, "locator": locator.settings(), **key}
        results = store.open(of_locator)
        if not (finished or results.done("sentences")):
            scores = store.open({**of_locator, "kept": "scores"})
            made = evaluate_locator(lm, locator, examples, kept=scores, seed=seed, **how)
            last = made.pop("sentences")  # it marks all as done
            made = {**made, "sentences": last}
            results.add({kind: table.assign(case_id=0) for kind, table in made.items()})
            shutil.rmtree(scores.folder)  # they are large
        named = {"model": lm.name, "locator": name, "subtask": examples.subtask}
        for kind in TABLES:
            rows = results.read(kind).drop(columns="case_id")
            same = pd.DataFrame(named, index=rows.index)
            tables[kind].append(pd.concat([same, rows], axis=1))
    return {table: pd.concat(parts, ignore_index=True) for table, parts in tables.items()}


def evaluate_locator(
    lm: LanguageModel,
    locator: Locator,
    examples: Examples,
    *,
    shares: Sequence[float] = SHARES,
    permutations: int = 1_000,
    seed: int = 0,
    kept: Results | None = None,
) -> Tables:
    """Run a locator over a subtask at its own and every coarser granularity.

    Scores are ``kept`` until all are there; where they are more than ``MOST`` they are computed anew.

    *sentences* have the spread and mean magnitude, *similarities* each example's Sim_cand and both Sim_all,
    *null* the permutation null over all and inside relations, *layers* each example's mean pooled scores.
    """
    queries = own_answers(lm, encode(lm, examples.sentences))
    rows: Iterable[Scores] = _Scored(lm, locator, queries)
    shape, views = locator.shape(lm.layout), list[Tables]()
    if kept is not None and len(queries) * np.prod(shape) <= MOST:

        def make(chosen: Sequence[int]) -> Tables:
            scores = list(_Scored(lm, locator, [queries[n] for n in chosen]))
            return {"scores": pd.DataFrame({"case_id": chosen, "scores": scores})}

        cases = Cases({number: number for number in range(len(queries))})
        rows = cases.completed(kept, make)["scores"].tolist()
    for depth in range(len(shape), 0, -1):
        granularity = GRANULARITIES[depth - 1]
        if depth < len(shape):  # a mean of means: pooled from the next finer view
            finer = shape[: depth + 1]
            rows = [pool(row[None], finer, granularity)[0] for row in rows]
        tables = _view(rows, int(np.prod(shape[:depth])), examples, shares, permutations, seed)
        for table in tables.values():
            table.insert(0, "granularity", granularity)
        views.insert(0, tables)
    found = {name: pd.concat([v[name] for v in views], ignore_index=True) for name in views[0]}
    found["layers"] = _mass_by_layer(rows, examples)  # the last view is of layers
    return found


@dataclass(frozen=True)
class _Scored:
    """Scores of one sentence after the other [units], computed anew each time, in batches."""

    lm: LanguageModel
    locator: Locator
    queries: Sequence[Query]

    def __iter__(self) -> Iterator[Scores]:
        scores = partial(self.locator.scores, self.lm)
        for start in range(0, len(self.queries), self.locator.at_a_time):
            batch = self.queries[start : start + self.locator.at_a_time]
            for part in run_halving(batch, scores):
                yield from part


def _view(
    rows: Iterable[Scores],
    units: int,
    examples: Examples,
    shares: Sequence[float],
    deals: int,
    seed: int,
) -> Tables:
    """The tables of one granularity, from scores that are read twice."""
    compared = [] if examples.subtask == "unbiasedness" else list(shares)
    width, total = len(examples.groups[0]), len(examples.sentences)
    spread, sums = [], np.zeros(units)
    counts = np.zeros((len(compared), units), dtype=np.int32)
    for row in rows:
        spread.append((row.std(dtype=np.float64), np.abs(row).mean(dtype=np.float64)))
        if compared:
            sums += row
            for count, located in zip(counts, located_units(row, compared), strict=True):
                count[located] += 1
    sentences = pd.DataFrame(spread, columns=["deviation", "magnitude"])
    sentences.insert(0, "example", np.repeat(examples.numbers, width))
    sentences.insert(1, "sentence", np.tile(range(width), len(examples.numbers)))
    if not compared:
        return {"sentences": sentences}
    tops = located_units(sums / total, compared)
    # Evenly spaced examples are dealt: all of them where there are few.
    dealt = range(0, len(examples.numbers), -(-total // NULL_SENTENCES))
    sample = np.zeros(units, dtype=bool)
    few = min(units, NULL_UNITS)
    sample[np.random.default_rng(seed).choice(units, few, replace=False)] = True
    found, sets = [], [list[Units]() for _ in compared]
    each = (located_units(row, compared) for row in rows)
    for place, group in enumerate(zip(*[each] * width, strict=True)):
        labels = {"example": examples.numbers[place], "relation": examples.relations[place]}
        for k, own in enumerate(zip(*group, strict=True)):
            values = example_similarities(own, counts[k], tops[k], total, examples.subtask)
            found.append({"share": compared[k], **labels, **values})
            if place in dealt:
                sets[k] += [located[sample[located]] for located in own]
    sizes = [located_count(units, share) * few / units for share in compared]
    relations = [examples.relations[place] for place in dealt]
    table = np.arange(len(dealt) * width).reshape(-1, width)
    nulls = []
    for share, size, chosen in zip(compared, sizes, sets, strict=True):
        similarities = similarity_matrix(chosen, size=size)
        for shuffled, inside in (("all", None), ("relation", relations)):
            how: dict[str, Any] = {"groups": inside, "permutations": deals, "seed": seed}
            null = permutation_null(similarities, table, examples.subtask, **how)
            nulls.append({"share": share, "shuffled": shuffled, **null})
    compared_tables = {"similarities": pd.DataFrame(found), "null": pd.DataFrame(nulls)}
    return {"sentences": sentences, **compared_tables}


def _mass_by_layer(rows: Iterable[Scores], examples: Examples) -> pd.DataFrame:
    """Located mass per layer, averaged over an example's sentences."""
    again = iter(rows)
    mass = [np.mean([next(again) for _ in group], axis=0) for group in examples.groups]
    wide = pd.DataFrame(mass, index=pd.Index(examples.numbers, name="example"))
    long = wide.melt(ignore_index=False, var_name="layer", value_name="mass").reset_index()
    return long.sort_values(["example", "layer"], ignore_index=True)
