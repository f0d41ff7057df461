"""The comparison as tables: one for readers, one of numbers for other programs, and the README's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from helpers.comparison.measures import (
    COST,
    GRAPHS,
    LISTS,
    MEASURES,
    RIGHT_ANSWERS,
    Measure,
    Row,
    RowKey,
    Rows,
    in_order,
)
from helpers.editing.editors import method_label
from helpers.results.notes import ShownTable
from helpers.results.statistics import Estimate
from helpers.results.text import in_points, with_interval
from helpers.thinkedit.metrics import DEEP
from helpers.thinkedit.tables import UNDERTRAINED

NOTE = (
    "Means with 95 % intervals; ES to ANF, free text and right answers in percent or points; n: cases behind"
    " a mean. Placebo: each case is under another case's edit. Empty: not stored, or stored of edits with"
    " other hyperparameters. Information: what a sequence's edit is told, each request once or all of them"
    " again"
)


def row_heading(key: RowKey) -> str:
    """A row's heading: the method, and how it differs from an edit of the case's own, with all answers."""
    label = method_label(key.method)
    if key.half_shown:
        label += ", half shown"
    return f"{label}, placebo" if key.placebo else label


def comparison_table(rows: Rows, *, model: str = "") -> ShownTable:
    """Every row with each measure that is stored of one of them, or the rows of one ``model``.

    Of each group of measures *n* is the number of cases behind its means, or their range: lists and text are
    PEAK's records, graphs are edits of what the model recalls.
    """
    keys = [key for key in in_order(rows) if model in ("", key.model)]
    measures = _measured(rows, keys)
    texts = []
    for key in keys:
        row = rows[key]
        cells: dict[str, str] = {} if model else {"model": key.model}
        cells["method"] = row_heading(key)
        for group in dict.fromkeys(measure.group for measure in measures):
            of_group = [measure for measure in measures if measure.group == group]
            for measure in of_group:
                cells[measure.title] = _cell(measure, row.estimates.get(measure.name))
            cells[f"n, {group}"] = _case_counts_in_words(row, of_group)
        cells["information"] = key.information
        texts.append(cells)
    index = ["method"] if model else ["model", "method"]
    has_mend = any(key.method.startswith("mend") for key in keys)
    notes = [NOTE, UNDERTRAINED] if has_mend else [NOTE]
    return ShownTable(pd.DataFrame(texts).set_index(index), "; ".join(notes))


def comparison_values(rows: Rows) -> pd.DataFrame:
    """The same as numbers, a row an estimate: mean, 95 % interval and n; fractions instead of percent."""
    values = []
    for key in in_order(rows):
        for measure in MEASURES:
            estimate = rows[key].estimates.get(measure.name)
            if estimate is not None:
                values.append(
                    {
                        "model": key.model,
                        "method": key.method,
                        "edit": "placebo" if key.placebo else "own",
                        "answers": "half shown" if key.half_shown else "all",
                        "information": key.information,
                        "measure": measure.name,
                        "cases": measure.group,
                        "mean": estimate.mean,
                        "low": estimate.low,
                        "high": estimate.high,
                        "n": estimate.n,
                    }
                )
    return pd.DataFrame(values)


def short_table(rows: Rows, main_model: str) -> pd.DataFrame:
    """Every plain editor's means, one row an editor and model; ``n`` records, ``m`` edits of graphs."""
    titles = [measure.name for measure in MEASURES if measure.group == LISTS]
    short_rows: dict[tuple[str, str], dict[str, str]] = {}
    for key, row in rows.items():
        is_plain = "+" not in key.method and not (key.placebo or key.half_shown)
        if not is_plain or not row.records:
            continue
        cells = {title: f"{100 * row.estimates[title].mean:.0f}" for title in titles}
        cells["n"] = str(row.records)
        if DEEP in row.estimates:
            cells["deep"] = f"{row.estimates[DEEP].mean:.2f}"
            if "CKP" in row.estimates:  # undefined where no fact of another subject was known
                cells["CKP"] = f"{row.estimates['CKP'].mean:.2f}"
            cells["m"] = str(row.estimates[DEEP].n)
        short_rows[method_label(key.method), key.model] = cells
    table = pd.DataFrame.from_dict(
        short_rows, orient="index", columns=[*titles, "n", "deep", "CKP", "m"]
    ).fillna("–")
    editors = list(dict.fromkeys(editor for editor, _ in short_rows))
    ordered = sorted(short_rows, key=lambda row: (editors.index(row[0]), row[1] != main_model))
    return table.loc[ordered].rename_axis(["editor", "model"])


def _measured(rows: Rows, keys: Sequence[RowKey]) -> list[Measure]:
    """The measures that one of the rows has."""
    stored_names = {name for key in keys for name in rows[key].estimates}
    return [measure for measure in MEASURES if measure.name in stored_names]


def _cell(measure: Measure, estimate: Estimate | None) -> str:
    if estimate is None or np.isnan(estimate.mean):
        return ""
    if measure.in_percent:
        return in_points(estimate, signed=measure.name == RIGHT_ANSWERS)
    if measure.group == COST:
        return f"{estimate.mean:,.3g}" if estimate.mean < 1000 else f"{estimate.mean:,.0f}"
    return with_interval(estimate, digits=2 if measure.group == GRAPHS else 3)


def _case_counts_in_words(row: Row, measures: Sequence[Measure]) -> str:
    """The number of cases behind the means, or from the fewest to the most."""
    counts = [row.estimates[m.name].n for m in measures if m.name in row.estimates]
    ends = dict.fromkeys((min(counts), max(counts))) if counts else ()
    return "–".join(map(str, ends))
