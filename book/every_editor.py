"""One table of every editor on every measure, with what the papers print below ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from page_parts import html, label_of, metrics_of, runs_of

from helpers.editing.editors import method_label
from helpers.peak.ablations import variants_of
from helpers.peak.metrics import summarise
from helpers.peak.tables import MAIN_TABLES, PAPER_NAMES
from helpers.results.archive import Run
from helpers.results.text import published_table
from helpers.thinkedit import tables as thinkedit

DATASET, MODE = "peak-cf", "sequential"
# Column of the metrics: its title, with the direction that is better.
PEAK = {
    "AFF_hard": "AFF hard ↓",
    "ANF_hard": "ANF hard ↓",
    "AFF_random": "AFF random ↓",
    "ANF_random": "ANF random ↓",
    "ES": "ES ↑",
    "GS": "GS ↑",
    "LS_authors": "LS ↑",
}
THINKEDIT = {"IFR": "IFR ↓", "CKP": "CKP ↑", "Efficacy": "Efficacy ↑"}
_NOTE = (
    "One row per editor and model. The first line of a cell is ours with its 95 % interval. The range in "
    f"brackets is over the paper's own, larger models. PEAK's measures are of {DATASET}, in percent, with "
    "LS as the authors' code computes it; ThinkEdit's are of KnowGIC's sequential edits, exact "
    "probabilities, means over edits of at most 1 each (the paper pools). "
    "*n* counts PEAK's records; an editor with 20 comes from the ablations."
)
# Word joiners at its sides: a narrow column breaks the line before a range, not within it.
_DASH = "\u2060–\u2060"


def everything(data: Path) -> Iterator[str]:
    """The note and the table; nothing where no scores are stored."""
    table = every_editor(data)
    if len(table):
        yield _NOTE
        yield html(table, in_sight=True)


def every_editor(data: Path) -> pd.DataFrame:
    """One row per (editor, model), cells as text; a dash where an editor was not run."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for folder in ("peak", "ablations"):
        for run in runs_of(data / folder):
            if run.about.source["dataset"] == DATASET:
                _add_peak(rows, run)
    _add_thinkedit(rows, runs_of(data / "thinkedit"))
    titles = [*PEAK.values(), *THINKEDIT.values(), "n"]
    keys = ["editor", "model"]
    flat = [{**dict(zip(keys, key, strict=True)), **row} for key, row in rows.items()]
    return pd.DataFrame(flat, columns=[*keys, *titles]).fillna("–").set_index(keys)


def _add_peak(rows: dict[tuple[str, str], dict[str, str]], run: Run) -> None:
    """A run's editors, plain or with APP, that no run before it has."""
    for name in variants_of(run):
        key = (label_of(name), run.about.source["model"])
        if key in rows or "@" in name or "+all" in name:
            continue
        metrics = metrics_of(run, name)
        summary = summarise(metrics[list(PEAK)])
        cells = {m: _whole(100 * summary.loc[m]) for m in PEAK}
        rows[key] = {PEAK[m]: text + _paper_peak(key[0], m) for m, text in cells.items()}
        rows[key]["n"] = str(len(metrics))


def _add_thinkedit(rows: dict[tuple[str, str], dict[str, str]], runs: tuple[Run, ...]) -> None:
    stored = tuple(run for run in runs if "exact" in run.kinds and not thinkedit.is_recalled(run))
    if not stored:
        return
    terms = thinkedit.terms_of_runs(stored)
    shown = thinkedit.as_text(thinkedit.technique_table(terms, mode=MODE))
    for row in shown.table.to_dict("records"):
        label = method_label(row["method"])
        cells = {THINKEDIT[m]: row[m] + _paper_thinkedit(row["method"], m) for m in THINKEDIT}
        rows.setdefault((label, row["model"]), {}).update(cells)


def _whole(row: pd.Series) -> str:
    """A mean and its interval in whole percent: the tables below have the decimals."""
    return f"{row['mean']:.0f} [{row['low']:.0f}, {row['high']:.0f}]" if row["n"] else "n/a"


def _paper_peak(method: str, metric: str) -> str:
    printed = pd.concat([published_table(name) for name in MAIN_TABLES])
    named = PAPER_NAMES.get(method, method)
    chosen = printed[(printed["dataset"] == DATASET) & (printed["method"] == named)]
    values = chosen.loc[chosen["metric"] == metric.removesuffix("_authors"), "value"]
    return _range(values, digits=0)


def _paper_thinkedit(method: str, measure: str) -> str:
    printed = thinkedit.paper_techniques()
    return _range(printed.loc[printed["method"] == method, measure], digits=2)


def _range(values: pd.Series, *, digits: int) -> str:
    ends = [f"{value:.{digits}f}" for value in (values.min(), values.max())] if len(values) else []
    return f"\n({_DASH.join(dict.fromkeys(ends))})" if ends else ""
