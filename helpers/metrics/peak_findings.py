"""The paper's findings as differences that can be tested on any model (PEAK, Section 6).

Each finding is one or more comparisons of two sets of per-record values: paired where both come
from the same records, Welch otherwise. It *holds* where the 95 % interval of the difference lies on
the side the paper describes, is *reversed* where it lies on the other, and *open* in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from helpers.metrics.statistics import Estimate, mean_interval, welch_interval

Metrics = Mapping[str, pd.DataFrame]
"""For each method, one row per case_id and one column per metric."""

PLAIN = ("FT-L", "FT-M", "KN", "MEND", "ROME", "MEMIT")  # the editors of the paper
WITH_APP = ("FT-L", "FT-M", "MEND", "ROME", "MEMIT")


@dataclass(frozen=True)
class Evidence:
    """One comparison: ``difference`` in percentage points, positive where the paper says so."""

    finding: str
    measure: str
    difference: Estimate

    @property
    def verdict(self) -> str:
        """``holds``, ``reversed`` or ``open``."""
        if self.difference.low > 0:
            return "holds"
        return "reversed" if self.difference.high < 0 else "open"


def findings(
    counterfactual: Metrics, temporal: Metrics | None = None, larger: Metrics | None = None
) -> list[Evidence]:
    """Evidence for every finding that the runs at hand can speak to.

    Args:
        counterfactual: PEAK-CF on one model.
        temporal: PEAK-T on the same model.
        larger: PEAK-CF on a larger model; compared on the records both runs hold.
    """
    found = [*_within(counterfactual), *_app(counterfactual)]
    if temporal is not None:
        found += _temporal(*_common(counterfactual, temporal))
    if larger is not None:
        found += _larger(*_common(counterfactual, larger))
    return found


def findings_table(evidence: list[Evidence]) -> pd.DataFrame:
    """Evidence as text: difference ± half width of its interval, records, verdict."""
    rows = [
        {
            "finding": item.finding,
            "measure": item.measure,
            "difference": f"{100 * item.difference.mean:+.1f}"
            f" ± {50 * (item.difference.high - item.difference.low):.1f}",
            "n": item.difference.n,
            "verdict": item.verdict,
        }
        for item in evidence
    ]
    return pd.DataFrame(rows, columns=["finding", "measure", "difference", "n", "verdict"])


def _within(metrics: Metrics) -> Iterator[Evidence]:
    """Findings about the plain editors on one data set."""
    for name in ("AFF", "ANF") if _plain(metrics) else ():
        hard, random = (_mean(metrics, f"{name}_{kind}") for kind in ("hard", "random"))
        measure = f"{name} hard - {name} random, plain editors"
        yield _paired("hard answers suffer more than random ones", measure, random, hard)
    finding = "edits succeed, their lists do not survive"
    for method in ("ROME", "MEMIT"):
        if method in metrics:
            for metric, least in (("ES", 0.9), ("AFF_hard", 0.5)):
                above = mean_interval(metrics[method][metric] - least)
                measure = f"{metric} - {100 * least:.0f}, {method}".replace("_", " ")
                yield Evidence(finding, measure, above)
    if {"MEND", "ROME"} <= set(metrics):
        rome, mend = metrics["ROME"], metrics["MEND"]
        finding = "MEND perturbs little, at the price of locality"
        for metric in ("AFF_hard", "LS"):
            yield _paired(finding, f"{metric} ROME - MEND", mend[metric], rome[metric])
    if {"KN", "ROME"} <= set(metrics):
        rome, neurons = metrics["ROME"], metrics["KN"]
        yield _paired("KN edits weakly", "ES ROME - KN", neurons["ES"], rome["ES"])


def _app(metrics: Metrics) -> Iterator[Evidence]:
    """APP against the plain method, on the same records."""
    for method in WITH_APP:
        if {method, f"{method}+APP"} <= set(metrics):
            plain, careful = metrics[method], metrics[f"{method}+APP"]
            for metric in ("AFF_hard", "ANF_hard"):
                measure = f"{metric} {method} - {method}+APP"
                yield _paired("APP reduces perturbation", measure, careful[metric], plain[metric])
            measure = f"LS {method}+APP - {method}"
            yield _paired("APP also improves locality", measure, plain["LS"], careful["LS"])


def _temporal(counterfactual: Metrics, temporal: Metrics) -> Iterator[Evidence]:
    for metric in ("AFF_hard", "ANF_hard", "ES", "GS") if _plain(temporal) else ():
        measure = f"{metric} PEAK-CF - PEAK-T, plain editors"
        both = (_mean(metrics, metric) for metrics in (temporal, counterfactual))
        finding = "PEAK-T has lower AFF, ANF, ES and GS"
        yield Evidence(finding, measure.replace("_", " "), welch_interval(*both))


def _larger(smaller: Metrics, larger: Metrics) -> Iterator[Evidence]:
    for metric in ("AFF_hard", "ANF_hard") if _plain(larger) else ():
        measure = f"{metric} larger - smaller model, plain editors"
        finding = "larger models perturb more"
        yield _paired(finding, measure, _mean(smaller, metric), _mean(larger, metric))
        for method in _plain(larger):
            measure = f"{metric} larger - smaller model, {method}"
            yield _paired(finding, measure, smaller[method][metric], larger[method][metric])


def _common(first: Metrics, second: Metrics) -> tuple[Metrics, Metrics]:
    """Both without the methods that only one has."""
    shared = [method for method in first if method in second]
    return {m: first[m] for m in shared}, {m: second[m] for m in shared}


def _mean(metrics: Metrics, metric: str) -> pd.Series:
    """A metric per record, averaged over the plain editors at hand."""
    columns = [metrics[method][metric] for method in _plain(metrics)]
    return pd.concat(columns, axis=1).mean(axis=1)


def _plain(metrics: Metrics) -> list[str]:
    """The paper's editors among the methods at hand."""
    return [method for method in PLAIN if method in metrics]


def _paired(finding: str, measure: str, first: pd.Series, second: pd.Series) -> Evidence:
    """Second minus first on the records both have."""
    differences = (second - first).dropna()
    return Evidence(finding, measure.replace("_", " "), mean_interval(differences.to_numpy()))
