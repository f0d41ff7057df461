"""The paper's findings as differences that can be tested on any model (PEAK, Section 7).

Each finding is one or more comparisons of two sets of per-record values: paired where both come
from the same records, Welch otherwise. Every comparison of several editors weighs each of them
once. What APP costs is a finding like what it gains. Verdicts: ``helpers.results.text``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from helpers.peak.metrics import SHARES
from helpers.results.statistics import (
    mean_above,
    paired_means,
    paired_shares,
    share_above,
    unpaired_means,
)
from helpers.results.text import Evidence

Metrics = Mapping[str, pd.DataFrame]
"""For each method, one row per case_id and one column per metric."""

EDITORS = ("FT-L", "FT-M", "KN", "MEND", "ROME", "MEMIT")  # the paper's; FT in two forms
FINE_TUNING = ("FT-L", "FT-M")  # the first at hand stands for FT: FT-L is the paper's
WITH_APP = ("FT-L", "FT-M", "MEND", "ROME", "MEMIT")


def findings(
    counterfactual: Metrics, temporal: Metrics | None = None, larger: Metrics | None = None
) -> list[Evidence]:
    """Evidence for every finding that the runs at hand can speak to.

    Args:
        counterfactual: PEAK-CF on one model.
        temporal: PEAK-T on the same model.
        larger: PEAK-CF on a larger model; compared on the records both runs hold.
    """
    evidence = [*_within(counterfactual), *_app(counterfactual)]
    if temporal is not None:
        evidence += _temporal(*_common(counterfactual, temporal))
    if larger is not None:
        evidence += _larger(*_common(counterfactual, larger))
    return evidence


def paired(
    finding: str, measure: str, metric: str, first: pd.Series, second: pd.Series
) -> Evidence:
    """Second minus first of one metric on the records both have, by the test that fits the metric."""
    one, two = first.align(second, join="inner")
    test = paired_shares if metric in SHARES else paired_means
    return Evidence(finding, measure.replace("_", " "), test(one, two))


def above(finding: str, measure: str, metric: str, values: pd.Series, level: float) -> Evidence:
    """A metric's mean minus a level, by the test that fits the metric."""
    test = share_above if metric in SHARES else mean_above
    return Evidence(finding, measure.replace("_", " "), test(values, level))


def _within(metrics: Metrics) -> Iterator[Evidence]:
    """Findings about the plain editors on one data set."""
    for name in ("AFF", "ANF") if _plain(metrics) else ():
        hard, random = (_mean(metrics, f"{name}_{kind}") for kind in ("hard", "random"))
        measure = f"{name} hard - {name} random, plain editors"
        yield paired("hard answers suffer more than random ones", measure, name, random, hard)
    finding = "edits succeed, their lists do not survive"
    for method in ("ROME", "MEMIT"):
        if method in metrics:
            for metric, level in (("ES", 0.9), ("AFF_hard", 0.5)):
                measure = f"{metric} - {100 * level:.0f}, {method}"
                yield above(finding, measure, metric, metrics[method][metric], level)
    if {"MEND", "ROME"} <= set(metrics):
        rome, mend = metrics["ROME"], metrics["MEND"]
        finding = "MEND perturbs little, at the price of locality"
        for metric in ("AFF_hard", "LS"):
            yield paired(finding, f"{metric} ROME - MEND", metric, mend[metric], rome[metric])
    if {"KN", "ROME"} <= set(metrics):
        rome, neurons = metrics["ROME"], metrics["KN"]
        yield paired("KN edits weakly", "ES ROME - KN", "ES", neurons["ES"], rome["ES"])


def _app(metrics: Metrics) -> Iterator[Evidence]:
    """What APP gains and what it costs, on the same records as the plain method."""
    for method in WITH_APP:
        if {method, f"{method}+APP"} <= set(metrics):
            plain, careful = metrics[method], metrics[f"{method}+APP"]
            for metric in ("AFF_hard", "ANF_hard"):
                measure = f"{metric} {method} - {method}+APP"
                finding = "APP reduces perturbation"
                yield paired(finding, measure, metric, careful[metric], plain[metric])
            measure = f"LS {method}+APP - {method}"
            yield paired("APP also improves locality", measure, "LS", plain["LS"], careful["LS"])
            for metric in ("ES", "GS"):
                measure = f"{metric} {method} - {method}+APP"
                yield paired("APP costs edits", measure, metric, careful[metric], plain[metric])


def _temporal(counterfactual: Metrics, temporal: Metrics) -> Iterator[Evidence]:
    for metric in ("AFF_hard", "ANF_hard", "ES", "GS") if _plain(temporal) else ():
        measure = f"{metric} PEAK-CF - PEAK-T, plain editors"
        both = (_mean(metrics, metric) for metrics in (temporal, counterfactual))
        finding = "PEAK-T has lower AFF, ANF, ES and GS"
        yield Evidence(finding, measure.replace("_", " "), unpaired_means(*both))


def _larger(smaller: Metrics, larger: Metrics) -> Iterator[Evidence]:
    finding = "larger models perturb more"
    for metric in ("AFF_hard", "ANF_hard") if _plain(larger) else ():
        measure = f"{metric} larger - smaller model, plain editors"
        yield paired(finding, measure, metric, _mean(smaller, metric), _mean(larger, metric))
        for method in (name for name in EDITORS if name in larger):
            measure = f"{metric} larger - smaller model, {method}"
            yield paired(finding, measure, metric, smaller[method][metric], larger[method][metric])


def _common(first: Metrics, second: Metrics) -> tuple[Metrics, Metrics]:
    """Both without the methods that only one has."""
    shared = [method for method in first if method in second]
    return {m: first[m] for m in shared}, {m: second[m] for m in shared}


def _mean(metrics: Metrics, metric: str) -> pd.Series:
    """A metric per record, averaged over the plain editors at hand, each weighed once."""
    columns = [metrics[method][metric] for method in _plain(metrics)]
    return pd.concat(columns, axis=1).mean(axis=1)


def _plain(metrics: Metrics) -> list[str]:
    """The paper's editors among the methods at hand, FT in one of its forms."""
    tuned = [method for method in FINE_TUNING if method in metrics][:1]
    others = [method for method in EDITORS if method in metrics and method not in FINE_TUNING]
    return tuned + others
