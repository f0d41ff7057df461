"""Which measure of an edit predicts that the edited model generates the new answer.

An edit is a record edited by a method. A measure predicts naming as well as it ranks the edits whose greedy
response names o* above those whose response does not: its AUC, the share of such pairs that it ranks so, ties
counted half. 0.5 is chance. *Within* methods only pairs of edits by one method are compared, so that what is
predicted is which edit succeeds and not which editor does; *across* methods all pairs are.

An edit's records, and with them the records of their relation, are drawn together in the bootstrap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from helpers.behaviour.agreement import PROBABILITY, UNEDITED
from helpers.editing.editors import distinct
from helpers.peak.tables import Metrics
from helpers.results.notes import ShownTable, with_power, with_relations
from helpers.results.statistics import (
    LEVEL,
    Contrast,
    Estimate,
    Numbers,
    holm,
    relation_count_of,
    unit_draws,
)
from helpers.results.text import with_interval
from helpers.samples.design import POWER

NAMED_IN = "free, greedy"  # the scorer that is predicted
PREDICTORS = {  # columns of ``agreement.successes``, and their titles
    PROBABILITY: "P(o*)",
    "tokens": "token match",
    "GS": "GS",
    "ES": "ES",
}
REFERENCE = PROBABILITY  # of these the others are compared with it
_ENDS = [100 * LEVEL / 2, 100 - 100 * LEVEL / 2]  # percentiles of a 95 % interval


@dataclass(frozen=True, eq=False)
class EditMeasures:
    """The edits of one method that have all measures, in the order of their records."""

    record_indices: np.ndarray  # [n], in the columns of the drawn weights
    is_named: np.ndarray  # [n], boolean
    measures: pd.DataFrame  # [n, predictors]


@dataclass(frozen=True, eq=False)
class Prediction:
    """How well measures predict naming, each AUC [1 + draws]: in the sample, then in draws of its units."""

    within: dict[str, Numbers]
    across: dict[str, Numbers]
    edits: int
    named: int
    methods: int
    relation_count: int | None


def prediction_of(tables_by_state: Metrics) -> Prediction:
    """The AUCs of ``PREDICTORS`` for a published run's states (``agreement.by_state``), without KN.

    KN is omitted, because an editor that edits almost nothing makes every measure look good.
    """
    methods = distinct(state for state in tables_by_state if state not in (UNEDITED, "KN"))
    records = _records_of_any(tables_by_state[method] for method in methods)
    weights = unit_draws(pd.Series(1.0, records))  # [1 + draws, records]
    edits_of_methods = [_edits_of(tables_by_state[method], records) for method in methods]
    within = {}
    across = {}
    for name in PREDICTORS:
        pairs_of_methods = [
            _ranked_pairs([edits], name, weights)
            for edits in edits_of_methods
            if 0 < edits.is_named.sum() < len(edits.is_named)
        ]
        none = np.zeros(len(weights))
        ranked = sum((ranked for ranked, _ in pairs_of_methods), none)
        pairs = sum((pairs for _, pairs in pairs_of_methods), none)
        with np.errstate(invalid="ignore"):  # a draw without an edit that is named, or that is not
            within[name] = ranked / pairs
        ranked_across, pairs_across = _ranked_pairs(edits_of_methods, name, weights)
        with np.errstate(invalid="ignore"):
            across[name] = ranked_across / pairs_across
    return Prediction(
        within=within,
        across=across,
        edits=sum(len(edits.is_named) for edits in edits_of_methods),
        named=int(sum(edits.is_named.sum() for edits in edits_of_methods)),
        methods=len(methods),
        relation_count=relation_count_of(pd.Series(1.0, records)),
    )


def estimate_of(draws: Numbers, n: int) -> Estimate:
    """The value in the sample with the percentile interval of its draws; none where many have no value."""
    low, high = float("nan"), float("nan")
    if np.isnan(draws).mean() < LEVEL:
        low, high = np.nanpercentile(draws[1:], _ENDS)
    return Estimate(float(draws[0]), float(low), float(high), n)


def contrast_of(first: Numbers, second: Numbers, n: int) -> Contrast:
    """Second minus first of two values drawn together; p is twice the share of draws beyond zero."""
    differences = second - first
    draws = differences[1:][~np.isnan(differences[1:])]
    beyond = min((draws <= 0).sum(), (draws >= 0).sum())
    p_value = min(1.0, 2 * (1 + beyond) / (1 + len(draws)))
    return Contrast(estimate_of(differences, n), float(p_value))


def predictor_table(tables_by_state: Metrics) -> ShownTable:
    """A row a measure: its AUC within and across methods, and that within minus that of P(o*).

    *Holm* corrects for the three comparisons. Intervals are bootstrap ones over relations, or
    over records where there are few relations.
    """
    prediction = prediction_of(tables_by_state)
    n = prediction.edits
    contrasts = {
        name: contrast_of(prediction.within[REFERENCE], prediction.within[name], n)
        for name in PREDICTORS
        if name != REFERENCE
    }
    corrected = holm([contrast.p_value for contrast in contrasts.values()])
    survives = dict(zip(contrasts, corrected < LEVEL, strict=True))
    rows_of_measures = []
    for name, title in PREDICTORS.items():
        row_of_measure: dict[str, object] = {
            "measure": title,
            "AUC within methods": with_interval(estimate_of(prediction.within[name], n)),
            "AUC across methods": with_interval(estimate_of(prediction.across[name], n)),
            f"minus {PREDICTORS[REFERENCE]}": "–",
            "Holm": "–",
        }
        if name in contrasts:
            difference = with_interval(contrasts[name].difference, signed=True)
            row_of_measure[f"minus {PREDICTORS[REFERENCE]}"] = difference
            row_of_measure["Holm"] = "significant" if survives[name] else "inconclusive"
        row_of_measure |= {"edits": n, "named": prediction.named, "methods": prediction.methods}
        rows_of_measures.append(row_of_measure)
    least = [
        POWER * float(np.nanstd(prediction.within[name][1:] - prediction.within[REFERENCE][1:]))
        for name in contrasts
    ]
    shown = with_power(
        pd.DataFrame(rows_of_measures), least, [n] * len(least), unit=" of AUC", digits=2
    )
    return with_relations(shown, [next(iter(tables_by_state.values()))[NAMED_IN]])


def _records_of_any(tables: Iterable[pd.DataFrame]) -> pd.Index:
    records = None
    for table in tables:
        records = table.index if records is None else records.union(table.index)
    assert records is not None
    return records


def _edits_of(table: pd.DataFrame, records: pd.Index) -> EditMeasures:
    complete = table[[*PREDICTORS, NAMED_IN]].dropna()
    return EditMeasures(
        records.get_indexer(complete.index),
        complete[NAMED_IN].to_numpy(float) > 0,
        complete[list(PREDICTORS)],
    )


def _ranked_pairs(
    edits_of_methods: Sequence[EditMeasures], name: str, weights: Numbers
) -> tuple[Numbers, Numbers]:
    """Pairs of a named and an unnamed edit that a measure ranks so, and all pairs, each [1 + draws]."""
    values = np.concatenate([edits.measures[name].to_numpy(float) for edits in edits_of_methods])
    is_named = np.concatenate([edits.is_named for edits in edits_of_methods])
    records = np.concatenate([edits.record_indices for edits in edits_of_methods])
    named_values = values[is_named]
    other_values = values[~is_named]
    is_above = named_values[:, None] > other_values[None, :]
    is_level = named_values[:, None] == other_values[None, :]
    ranked = is_above + 0.5 * is_level  # [named, others]
    named_weights = weights[:, records[is_named]]  # [1 + draws, named]
    other_weights = weights[:, records[~is_named]]
    ranked_weight = ((named_weights @ ranked) * other_weights).sum(axis=1)
    return ranked_weight, named_weights.sum(axis=1) * other_weights.sum(axis=1)
