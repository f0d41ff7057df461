"""The measures of a lifelong run: definitions, estimates from the published tables, and the collapse rule.

A published table has a row for each number: ``case_id`` (edits made), ``measure``, ``item``, ``unit`` (which
items that are alike share: a request's subject, else the item itself) and ``value``. Intervals are by unit
where units have several items.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd

from helpers.peak.metrics import Metric
from helpers.results.archive import Run
from helpers.results.statistics import Estimate, Kind, interval, mean_interval

MOST_PERPLEXITY = 100.0  # times that of the unedited model
LEAST_EFFICACY = 0.1
FEWEST_FOR_EFFICACY = 10  # requests: of fewer none may be written by chance
TABLES_KIND = "measures"  # of the published tables
COLUMNS = ["case_id", "measure", "item", "unit", "value"]
_Direction = Literal["higher", "lower"]
# Name: kind, which is better, words.
_DEFINITIONS: dict[str, tuple[Kind, _Direction, str]] = {
    "at once": ("share", "higher", "efficacy at once"),
    "now": ("share", "higher", "efficacy now"),
    "retention": ("share", "higher", "retention"),
    "generality": ("share", "higher", "generality now"),
    "free text": ("share", "higher", "free text now"),
    "new above old": ("share", "higher", "new above old now"),
    "newest above older": ("share", "higher", "newest above contradicted"),
    "locality": ("share", "higher", "locality"),
    "P(known)": ("fraction", "higher", "P of known facts"),
    "KL": ("number", "lower", "KL of known facts"),
    "perplexity": ("number", "lower", "perplexity ratio"),
    "exam": ("share", "higher", "exam"),
    "fired": ("share", "lower", "gate fired"),
    "ES": ("share", "higher", "ES of a further edit"),
    "AFF": ("fraction", "lower", "AFF of a further edit"),
    "ANF": ("fraction", "lower", "ANF of a further edit"),
    "IFR": ("fraction", "lower", "IFR of a further edit"),
    "CKP": ("fraction", "higher", "CKP of a further edit"),
    "own": ("fraction", "higher", "its subject's other facts"),
    "weights": ("number", "lower", "‖W‖/‖W₀‖"),
    "change": ("number", "lower", "‖ΔW‖/‖W₀‖"),
    "bytes": ("number", "lower", "bytes"),
    "seconds": ("number", "lower", "CPU-s an edit"),
}
METRICS = {
    name: Metric(name, name, kind, direction, label)
    for name, (kind, direction, label) in _DEFINITIONS.items()
}
# Measures whose first sign of collapse is looked for, and the value beyond which it is one. The subject's
# other facts, and the exam above chance, are next to their own value at 0 edits.
SIGNS: dict[str, float] = {
    "weights": 1.1,
    "own": 0.5,
    "retention": 0.5,
    "locality": 0.5,
    "exam": 0.5,
    "perplexity": 2.0,
}
# Values at which nothing is left of the measures that are next to 0 edits; of the exam it is chance.
NOTHING_LEFT = {"own": 0.0, "exam": 0.25}
LEAST_TO_LOSE = 0.1  # of such a measure at 0 edits: below, a change of it is no sign
FEWEST_ON_TOP = 3  # records or graphs of a further edit's mean that is shown or counts


def measures_of_run(run: Run) -> pd.DataFrame:
    """All measures of a run, with ``method``, ``mode`` (turns and order) and ``edits`` for ``case_id``."""
    tables = []
    for key in run.keys:
        if key.kind == TABLES_KIND:
            table = run.tables[str(key)].rename(columns={"case_id": "edits"})
            measure_names = table["measure"].astype(str)
            tables.append(table.assign(measure=measure_names, method=key.method, mode=key.mode))
    return pd.concat(tables, ignore_index=True)


def estimate(measures: pd.DataFrame, measure: str, edits: int) -> Estimate:
    """A measure of one method after ``edits`` edits, with its 95 % interval by unit; NaN where there is none.

    Retention is the share of the sampled requests that were written right after their turn and still are;
    perplexity is exp of the mean change of the loss, infinite where a window's is no number; of matrices the
    largest counts.
    """
    at_checkpoint = measures[measures["edits"] == edits]

    def rows_of(name: str) -> pd.DataFrame:
        return at_checkpoint[at_checkpoint["measure"] == name]

    if measure == "retention":
        made = rows_of("made")
        made_items = made.loc[made["value"] == 1.0, "item"]
        now = rows_of("now")
        return interval(values_by_unit(now[now["item"].isin(made_items)]), METRICS[measure].kind)
    if measure == "perplexity":
        changes = _loss_changes(values_by_unit(rows_of("text")))
        if np.isinf(changes).any():
            return Estimate(float("inf"), float("nan"), float("nan"), len(changes))
        change = mean_interval(changes)
        mean, low, high = np.exp([change.mean, change.low, change.high])
        return Estimate(float(mean), float(low), float(high), change.n)
    values = values_by_unit(rows_of(measure).dropna(subset=["value"]))
    if measure in ("weights", "change", "bytes", "seconds"):
        largest = float(values.max()) if len(values) else float("nan")
        return Estimate(largest, float("nan"), float("nan"), len(values))
    return interval(values, METRICS[measure].kind)


def values_by_unit(rows: pd.DataFrame) -> pd.Series:
    """Values of one measure, an item each; to an interval, units that repeat are relations."""
    values = pd.Series(rows["value"].to_numpy(float), pd.Index(rows["item"], name="item"))
    if not rows["unit"].duplicated().any():
        return values
    units = pd.Index(rows["unit"], name="relation")
    return values.set_axis(pd.MultiIndex.from_arrays([values.index, units]))


def curve(measures: pd.DataFrame, measure: str) -> pd.DataFrame:
    """A measure of one method at each of its checkpoints that has it: mean, low, high and n by ``edits``."""
    rows = {}
    for edits in sorted(measures["edits"].unique()):
        at_checkpoint = estimate(measures, measure, int(edits))
        if not np.isnan(at_checkpoint.mean):
            rows[int(edits)] = vars(at_checkpoint)
    return pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "low", "high", "n"])


def collapse(measures: pd.DataFrame) -> int:
    """The edits after which a method had collapsed: its second bad checkpoint in a row; 0: it has not.

    A checkpoint is bad where perplexity is above ``MOST_PERPLEXITY`` times the unedited model's, or fewer
    than ``LEAST_EFFICACY`` of the latest requests were written. ``edits`` may be called ``case_id``.
    """
    table = measures.rename(columns={"case_id": "edits"})
    was_bad = False
    for edits in sorted(set(table["edits"]) - {0}):
        at_checkpoint = table[table["edits"] == edits]
        is_text = at_checkpoint["measure"] == "text"
        text_changes = _loss_changes(at_checkpoint.loc[is_text, "value"])
        latest = at_checkpoint.loc[at_checkpoint["measure"] == "at once", "value"]
        is_bad = bool(text_changes.mean() > np.log(MOST_PERPLEXITY))
        if len(latest) >= FEWEST_FOR_EFFICACY:
            is_bad |= bool(latest.mean() < LEAST_EFFICACY)
        if is_bad and was_bad:
            return int(edits)
        was_bad = is_bad
    return 0


def _loss_changes(changes: pd.Series) -> pd.Series:
    """Changes of the loss by window; one that is no finite number is infinite."""
    return changes.astype(float).where(np.isfinite(changes.astype(float)), np.inf)


def ending(measures: pd.DataFrame) -> str:
    """Why a method has no later checkpoint, in words; empty where nothing stopped it."""
    table = measures.rename(columns={"case_id": "edits"})
    outgrown = table.loc[table["measure"] == "outgrew", "value"]
    if len(outgrown):
        return f"outgrew the context before {int(outgrown.iloc[0])}"
    collapsed_at = collapse(table)
    return f"collapsed at {collapsed_at}" if collapsed_at else ""


def first_signs(measures: pd.DataFrame) -> dict[str, int | None]:
    """By measure the first checkpoint of one method beyond its value of ``SIGNS``; None: none is.

    Without measures that are below ``LEAST_TO_LOSE`` at 0 edits or cannot be measured there, and without
    those that are not beyond their value and cannot be measured at the last checkpoint.
    """
    signs: dict[str, int | None] = {}
    last = int(measures["edits"].max())
    for measure, level in SIGNS.items():
        of_measure = curve(measures, measure)
        if measure == "own":
            of_measure = of_measure[of_measure["n"] >= FEWEST_ON_TOP]
        means = of_measure["mean"]
        if measure in NOTHING_LEFT:
            if 0 not in means.index:
                continue
            means = means - NOTHING_LEFT[measure]
            if means[0] < LEAST_TO_LOSE:
                continue
            means = means / means[0]
        means = means.drop(index=0, errors="ignore")
        is_beyond = means > level if level > 1 else means < level
        beyond = means.index[is_beyond]
        if len(beyond):
            signs[measure] = int(beyond[0])
        elif last in means.index:
            signs[measure] = None
    return signs
