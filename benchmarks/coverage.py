"""How often intervals cover, and tests reject, when records are drawn from those that are published.

    python -m benchmarks.coverage

The stored values of a metric, of one method on one run, are a population. Samples of n records, or of k
relations, are drawn from it with replacement; an interval should hold the population's mean in 95 % of them.
Under the null of the tests each drawn change has a random sign; 5 % should be rejected. Rows pool all
populations of a metric, each sample being of a random one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from helpers.behaviour.agreement import by_state, kind_of_scorer
from helpers.cli import run_command
from helpers.peak.metrics import kind_of_metric, method_metrics
from helpers.peak.tables import scores_of
from helpers.results.archive import archive
from helpers.results.statistics import (
    Contrast,
    Kind,
    Units,
    interval,
    paired,
    standard_error,
    units_of,
)

Numbers = NDArray[np.float64]
Ends = tuple[float, float]
Rows = dict[tuple[str, Kind, int], dict[tuple[str, str], float]]  # by metric, kind and size
RECORDS = (10, 18, 38, 112)
RELATIONS = (8, 12, 18, 29)
METRICS = ("ES", "GS", "LS", "AFF_hard", "ANF_hard")
SCORED = ("yes", "free, greedy", "free, sampled", "asked, sampled", "tokens", "choice")
SAMPLES, PAIRED_SAMPLES = 1_000, 200
RESAMPLES = 200
SEED = 0
_LEAST = 30  # values of a population
_LABELS = pd.Index([f"P{number}" for number in range(max(RELATIONS))], name="relation")


def populations() -> Iterator[tuple[str, Kind, pd.Series]]:
    """Every metric and scorer of every published method with values that differ."""
    for run in archive("peak").runs():
        for table in method_metrics(scores_of(run)).values():
            yield from (
                (metric, kind_of_metric(metric), table[metric].dropna()) for metric in METRICS
            )
    for run in archive("scorers").runs():
        for table in by_state(run).values():
            known = [scorer for scorer in SCORED if scorer in table]
            yield from (
                (scorer, kind_of_scorer(scorer), table[scorer].dropna()) for scorer in known
            )


def paired_populations() -> Iterator[tuple[str, Kind, pd.Series]]:
    """What APP changes in each metric."""
    for run in archive("peak").runs():
        tables = method_metrics(scores_of(run))
        for method in (name for name in tables if name.endswith("+APP")):
            plain = tables[method.removesuffix("+APP")]
            for metric in METRICS:
                yield (
                    metric,
                    kind_of_metric(metric),
                    (tables[method][metric] - plain[metric]).dropna(),
                )


def as_records(units: Units) -> pd.Series:
    """Drawn units as values that the package takes: records alone, or those of relations."""
    if (units.sizes == 1).all() and not units.by_relation:
        return pd.Series(units.sums)
    labels = _LABELS[: len(units.sizes)].repeat(units.sizes.astype(int))
    means = (units.sums / units.sizes).repeat(units.sizes.astype(int))
    return pd.Series(means, labels)


def bootstrapped(units: Units, rng: np.random.Generator) -> Ends:
    """The percentile bootstrap over units."""
    count = len(units.sizes)
    weights = rng.multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    means = (weights @ units.sums) / (weights @ units.sizes)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def student(units: Units) -> Ends:
    """The mean and 2.5 % points of t times the robust error (CR2; of records s / sqrt(n))."""
    error, freedom = standard_error(units)
    half = float(stats.t.isf(0.025, freedom)) * error
    return units.mean - half, units.mean + half


def jeffreys(units: Units) -> Ends:
    """Beta quantiles of the sum and half a success and failure."""
    successes, failures = units.sums.sum() + 0.5, (units.sizes - units.sums).sum() + 0.5
    low, high = stats.beta.ppf([0.025, 0.975], successes, failures)
    return float(low), float(high)


def wilson(units: Units) -> Ends:
    """The score interval of the sum."""
    n, share, z = units.records, units.mean, 1.959964
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * (share * (1 - share) / n + z**2 / (4 * n**2)) ** 0.5
    return float(centre - half), float(centre + half)


def ours(units: Units, kind: Kind) -> Ends:
    """The package's interval of a kind."""
    found = interval(as_records(units), kind)
    return found.low, found.high


def contrast(units: Units, kind: Kind) -> Contrast:
    """The package's paired difference of units of changes."""
    changes = as_records(units)
    return paired(changes * 0, changes, kind)


def drawn(source: Units, count: int, rng: np.random.Generator, relations: int | None) -> Units:
    """A sample of ``count`` units of a population."""
    places = rng.integers(len(source.sizes), size=count)
    return Units(source.sums[places], source.sizes[places], relations)


def covered(ends: Ends, mean: float) -> tuple[float, float]:
    """Whether an interval holds the mean, and its width."""
    low, high = ends
    return float(low - 1e-9 <= mean <= high + 1e-9), high - low


def sources(found: Iterator[tuple[str, Kind, pd.Series]], *, whole: bool) -> dict[str, list[Units]]:
    """Populations by metric, of relations if ``whole`` and of records otherwise."""
    grouped: dict[str, list[Units]] = {}
    for metric, _, values in found:
        if len(values) < _LEAST or values.nunique() < 2:
            continue
        units = units_of(values if whole else values.to_numpy())
        if units.by_relation == whole:
            grouped.setdefault(metric, []).append(units)
    return grouped


def coverage_of_means(*, by_relation: bool) -> Rows:
    """Coverage and mean width of every interval, a row a metric and size."""
    rng = np.random.default_rng(SEED)
    kinds = {metric: kind for metric, kind, _ in populations()}
    rows: Rows = {}
    grouped = sources(populations(), whole=by_relation)
    for (metric, of_metric), count in product(
        grouped.items(), RELATIONS if by_relation else RECORDS
    ):
        candidates: dict[str, Callable[[Units], Ends]] = {
            "bootstrap": partial(bootstrapped, rng=rng),
            "t": student,
        }
        if by_relation:
            candidates["share, fraction"] = partial(ours, kind=kinds[metric])
        else:
            candidates |= {"Wilson": wilson, "Jeffreys": jeffreys}
            candidates |= {"share": partial(ours, kind="share")}
            candidates |= {"fraction": partial(ours, kind="fraction")}
        seen: dict[str, list[tuple[float, float]]] = {name: [] for name in candidates}
        for _ in range(SAMPLES // 2 if by_relation else SAMPLES):
            source = of_metric[rng.integers(len(of_metric))]
            sample = drawn(source, count, rng, count if by_relation else None)
            for name, make in candidates.items():
                seen[name].append(covered(make(sample), source.mean))
        rows[metric, kinds[metric], count] = _summary(seen)
    return rows


def coverage_of_changes(*, by_relation: bool) -> Rows:
    """The same of paired differences, and how often each test rejects where there is no difference."""
    rng = np.random.default_rng(SEED)
    kinds = {metric: kind for metric, kind, _ in paired_populations()}
    grouped = sources(paired_populations(), whole=by_relation)
    rows: Rows = {}
    for (metric, of_metric), count in product(
        grouped.items(), RELATIONS if by_relation else RECORDS
    ):
        names = ("bootstrap", "t", "flips")
        seen: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        rejected: dict[str, list[bool]] = {name: [] for name in names}
        for _ in range(PAIRED_SAMPLES):
            source = of_metric[rng.integers(len(of_metric))]
            sample = drawn(source, count, rng, count if by_relation else None)
            found = contrast(sample, kinds[metric]).difference
            intervals = bootstrapped(sample, rng), student(sample), (found.low, found.high)
            for name, ends in zip(names, intervals, strict=True):
                seen[name].append(covered(ends, source.mean))
            signs = rng.choice((-1.0, 1.0), size=count)
            null = Units(sample.sums * signs, sample.sizes, sample.relation_count)
            for name, (low, high) in (("bootstrap", bootstrapped(null, rng)), ("t", student(null))):
                rejected[name].append(low > 0 or high < 0)
            rejected["flips"].append(contrast(null, kinds[metric]).p_value < 0.05)
        errors = {(name, "rejects"): float(np.mean(each)) for name, each in rejected.items()}
        rows[metric, kinds[metric], count] = _summary(seen) | errors
    return rows


def _summary(seen: Mapping[str, list[tuple[float, float]]]) -> dict[tuple[str, str], float]:
    means = {name: np.mean(pairs, axis=0) for name, pairs in seen.items()}
    covers = {(name, "covers"): float(mean[0]) for name, mean in means.items()}
    return covers | {(name, "width"): float(mean[1]) for name, mean in means.items()}


def markdown(rows: Rows, size: str) -> str:
    """A table for a page: ``0.95 (0.31)`` is a coverage and a mean width, and then what a test rejects."""
    names = list(dict.fromkeys(name for row in rows.values() for name, _ in row))
    lines = [["metric", "kind", size, *names], ["---"] * (3 + len(names))]
    for (metric, kind, count), row in rows.items():
        cells = [f"{row[name, 'covers']:.2f} ({row[name, 'width']:.2f})" for name in names]
        for place, name in enumerate(names):
            if (name, "rejects") in row:
                cells[place] += f", {row[name, 'rejects']:.3f}"
        lines.append([metric, kind, str(count), *cells])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Print the four tables of docs/statistics.md."""
    for title, make in (("Means", coverage_of_means), ("Paired differences", coverage_of_changes)):
        for by_relation in (False, True):
            unit = "relation" if by_relation else "record"
            print(f"\n{title}, by {unit}\n")
            rows = make(by_relation=by_relation)
            print(markdown(rows, "k" if by_relation else "n"), flush=True)


if __name__ == "__main__":
    run_command(main)
