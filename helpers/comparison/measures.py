"""What is stored of every editor, gathered into rows: a method of a model, with an estimate of each measure.

==================== =========================== =============================================
folder               measures                    cases
==================== =========================== =============================================
``peak``             ES, GS, LS, AFF, ANF        PEAK's records, each edited alone
``placebo``          the same                    each under another record's edit
``scorers``          naming in free text         PEAK's records, each edited alone
``thinkedit``        IFR, CKP, other facts, deep what the model recalls, alone or under a placebo
``ablations``        perplexity, exam            PEAK's records, each edited alone
``edit_costs``       CPU seconds, bytes          PEAK's records, edited together
==================== =========================== =============================================

A run under the name ``editors`` adds methods to that of its model and data. One under the name ``shown`` has
rows of its own: objectives were shown half of the answers, and the other half is scored.

The edits of one row have the same hyperparameters and objectives (``method_settings``); corpora, seeds and
types of weights are not compared. Where a folder's edits have others than the row, its measures are omitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from helpers.behaviour.agreement import named_table, naming_shares
from helpers.behaviour.exam import (
    ABILITY,
    ALONE,
    EXAM_TEXTS,
    mean_scores,
    perplexity_ratio,
    right_answer_change,
)
from helpers.editing.editors import EDITORS, method_named, split_method
from helpers.peak.metrics import metric_interval, metrics_table
from helpers.peak.tables import scores_of
from helpers.results.archive import HALF_SHOWN, PACKAGED_WORDS, Run, archive
from helpers.results.statistics import Estimate, share_interval
from helpers.thinkedit.metrics import DEEP, OWN
from helpers.thinkedit.modes import PLACEBO
from helpers.thinkedit.tables import is_recalled, measure_table, terms_of_runs

FURTHER_EDITORS = "editors"  # the label of runs
COSTS = "costs"  # the stored table of ``edit_costs``


@dataclass(frozen=True)
class Measure:
    """A column: how it is titled, and which group of cases it is a mean over."""

    name: str
    title: str  # with the direction that is better
    group: str
    in_percent: bool = False


LISTS, TEXT, GRAPHS, EXAM, COST = "lists", "text", "graphs", "exam", "cost"
GROUPS = (LISTS, TEXT, GRAPHS, EXAM, COST)
NAMING = "free text"
PERPLEXITY, RIGHT_ANSWERS = "perplexity", "right answers"
CPU_SECONDS, EDIT_BYTES = "CPU seconds", "bytes"
_PEAK = {"ES": "ES", "GS": "GS", "LS": "LS", "AFF_hard": "AFF", "ANF_hard": "ANF"}
MEASURES = (
    Measure("ES", "ES ↑", LISTS, in_percent=True),
    Measure("GS", "GS ↑", LISTS, in_percent=True),
    Measure("LS", "LS ↑", LISTS, in_percent=True),
    Measure("AFF", "AFF ↓", LISTS, in_percent=True),
    Measure("ANF", "ANF ↓", LISTS, in_percent=True),
    Measure(NAMING, "named in free text ↑", TEXT, in_percent=True),
    Measure(OWN, "subject's other facts ↑", GRAPHS),
    Measure("IFR", "IFR ↓", GRAPHS),
    Measure("CKP", "CKP ↑", GRAPHS),
    Measure(DEEP, "deep ↑", GRAPHS),
    Measure(PERPLEXITY, "perplexity, times ↓", EXAM),
    Measure(RIGHT_ANSWERS, "right answers, points ↑", EXAM, in_percent=True),
    Measure(CPU_SECONDS, "CPU seconds an edit ↓", COST),
    Measure(EDIT_BYTES, "bytes of an edit ↓", COST),
)


class RowKey(NamedTuple):
    """What a row is of."""

    model: str
    method: str  # such as "rome+app"
    placebo: bool = False  # each case is under another case's edit
    half_shown: bool = False  # objectives see half of the answers, the other half is scored

    @property
    def information(self) -> str:
        """What a sequence's edit is told: each request once, or all of them again (``EDITORS``)."""
        return split_method(self.method)[0].information


@dataclass
class Row:
    """The measures of one key, all of edits with the same ``settings`` (``method_settings``)."""

    settings: Any
    records: int = 0  # PEAK's records that were edited; of few of them a measure is not defined
    estimates: dict[str, Estimate] = field(default_factory=dict)  # by the measure's name


Rows = dict[RowKey, Row]


@cache
def stored_rows(dataset: str = "peak-cf", groups: tuple[str, ...] = GROUPS) -> Rows:
    """Every row of which something of these groups is stored, with PEAK's records of one data set."""
    rows: Rows = {}
    if LISTS in groups:
        for run in _runs_on_dataset("peak", dataset):
            _add_lists(rows, run)
        for run in _runs_on_dataset("placebo", dataset):
            _add_lists(rows, run, placebo=True)
    if TEXT in groups:
        for run in _runs_on_dataset("scorers", dataset):
            _add_naming(rows, run)
    if GRAPHS in groups:
        for run in _recalled_runs():
            _add_graphs(rows, run, mode="independent")
            _add_graphs(rows, run, mode=PLACEBO)
    if EXAM in groups:
        for run in _runs_on_dataset("ablations", dataset, further_names=("exam",)):
            _add_exam(rows, run)
    if COST in groups:
        for run in _runs_on_dataset("edit_costs", dataset):
            _add_costs(rows, run)
    return rows


def models_of(rows: Rows) -> list[str]:
    """The models, packaged ones first."""
    names = dict.fromkeys(key.model for key in rows)
    packaged = [name for name in PACKAGED_WORDS if name in names]
    return [*packaged, *(name for name in names if name not in packaged)]


def in_order(rows: Rows) -> list[RowKey]:
    """Keys by model, then own edits before placebos, then by editor, plain before its objectives."""
    models = models_of(rows)
    editors = list(EDITORS)

    def place(key: RowKey) -> tuple[int, bool, bool, int, str]:
        editor, suffix = split_method(key.method)
        return (
            models.index(key.model),
            key.placebo,
            key.half_shown,
            editors.index(editor.name),
            suffix,
        )

    return sorted(rows, key=place)


def method_settings(settings: Mapping[str, Any]) -> list[Any]:
    """What makes edits of one method the same: hyperparameters, the wrapped editor's, objectives."""
    base = settings.get("base", {})
    return [
        settings["hyperparameters"],
        base.get("hyperparameters"),
        settings.get("app"),
        settings.get("icd"),
    ]


def _runs_on_dataset(
    folder: str, dataset: str, further_names: tuple[str, ...] = ()
) -> Iterator[Run]:
    """The runs of a folder on a data set, those under one of our names after the one without."""
    for run in archive(folder).runs():
        name, _, label = run.name.partition("@")
        is_of_dataset = run.about.source.get("dataset") == dataset and name.endswith(f"_{dataset}")
        if is_of_dataset and label in ("", FURTHER_EDITORS, HALF_SHOWN, *further_names):
            yield run


def _recalled_runs() -> Iterator[Run]:
    for run in archive("thinkedit").runs():
        if is_recalled(run) and run.name.partition("@")[2] in ("", FURTHER_EDITORS, HALF_SHOWN):
            yield run


def _key(run: Run, method: str, *, placebo: bool = False) -> RowKey:
    half_shown = run.name.endswith(f"@{HALF_SHOWN}")
    return RowKey(run.about.source["model"], method, placebo, half_shown)


def _row_with_settings(rows: Rows, key: RowKey, settings: Mapping[str, Any]) -> Row | None:
    """The row of a key, made where there is none; None where it is of edits with other settings."""
    row = rows.setdefault(key, Row(method_settings(settings)))
    return row if row.settings == method_settings(settings) else None


def _add_lists(rows: Rows, run: Run, *, placebo: bool = False) -> None:
    for label, scores in scores_of(run).items():
        key = _key(run, method_named(label), placebo=placebo)
        row = _row_with_settings(rows, key, run.about.settings[label])
        if row is not None:
            by_record = metrics_table(scores)
            row.records = len(by_record)
            for metric, name in _PEAK.items():
                row.estimates[name] = metric_interval(metric, by_record[metric])


def _add_naming(rows: Rows, run: Run) -> None:
    relations = {int(case): name for case, name in run.about.caption["relations"].items()}
    for table_key in run.keys:
        if not table_key.is_method:
            continue
        method = table_key.method
        row = _row_with_settings(rows, _key(run, method), run.about.settings[method])
        if row is not None:
            answers_named = run.tables[named_table(method)].astype({"form": str, "list": str})
            shares = naming_shares(answers_named)["free, greedy"]
            relation_of_case = shares.index.map(relations).rename("relation")
            by_record = shares.set_axis([shares.index, relation_of_case])
            row.estimates[NAMING] = share_interval(by_record)


def _add_graphs(rows: Rows, run: Run, *, mode: str) -> None:
    names = (OWN, "IFR", "CKP", DEEP)
    terms = terms_of_runs((run,))
    if mode not in set(terms["mode"]):
        return
    for of_method in measure_table(terms, names, mode=mode).to_dict("records"):
        method = str(of_method["method"])
        settings = run.about.settings[f"exact: {method}, {mode}"]
        row = _row_with_settings(rows, _key(run, method, placebo=mode == PLACEBO), settings)
        if row is not None:
            for name in names:
                ends = (of_method[name], of_method[f"{name} low"], of_method[f"{name} high"])
                if not np.isnan(ends[0]):
                    row.estimates[name] = Estimate(*ends, int(of_method[f"{name} edits"]))


def _add_exam(rows: Rows, run: Run) -> None:
    for table_key in run.keys:
        if table_key.kind != ABILITY or table_key.mode != ALONE:
            continue
        settings = run.about.settings[str(table_key)]
        row = _row_with_settings(rows, _key(run, table_key.method), settings)
        if row is not None:
            means = mean_scores(run, table_key)
            roles = means.index.get_level_values("role")
            row.estimates[PERPLEXITY] = perplexity_ratio(means[roles.isin(EXAM_TEXTS)])
            about_facts = pd.DataFrame(means.xs("facts", level="role"))
            row.estimates[RIGHT_ANSWERS] = right_answer_change(about_facts).difference


def _add_costs(rows: Rows, run: Run) -> None:
    for measured in run.tables[COSTS].to_dict("records"):
        method = str(measured["method"])
        row = _row_with_settings(rows, _key(run, method), run.about.settings[method])
        if row is not None:
            edits = int(measured["edits"])
            nan = float("nan")
            row.estimates[CPU_SECONDS] = Estimate(measured["cpu_seconds"], nan, nan, edits)
            row.estimates[EDIT_BYTES] = Estimate(measured["bytes"], nan, nan, edits)
