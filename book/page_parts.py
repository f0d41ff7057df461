"""What the site's pages are made from: stored runs in their order, and tables as HTML."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pandas as pd

from helpers.editing.editors import EditorError, Variant
from helpers.peak.metrics import metrics_table
from helpers.peak.tables import scores_of
from helpers.results.archive import PACKAGED_WORDS, Archive, Run
from helpers.results.show import table_html

_MARKUP = re.compile(r"([\\`*_{}\[\]<>&$|~])")
_MOST_ROWS = 12  # of a table that is in sight; a longer one is a click away


def escaped(text: object) -> str:
    """Text from data as the page shows it as it is, whatever Markdown or HTML is in it."""
    return _MARKUP.sub(r"\\\1", str(text).replace("\n", " "))


@cache
def runs_of(folder: Path) -> tuple[Run, ...]:
    """An archive's runs of their model and data: SmolLM2 before Gemma, then other models by name."""
    runs = (run for run in Archive(folder).runs() if "@" not in run.name)
    return tuple(sorted(runs, key=lambda run: model_order(run.about.source.get("model"))))


def model_order(model: object) -> int:
    """Where a model stands in the site's tables: the packaged ones first, all others after them."""
    known: list[object] = list(PACKAGED_WORDS)
    return known.index(model) if model in known else len(known)


@cache
def metrics_of(run: Run, table: str) -> pd.DataFrame:
    """PEAK's metrics of one of a run's tables, a row a record."""
    return metrics_table(scores_of(run, only=[table])[table])


def label_of(table: str) -> str:
    """The method's name for readers: tables of main runs have it, those of ablations a variant's."""
    try:
        return Variant.parse(table).label
    except EditorError:
        return table


def html(table: pd.DataFrame, *, in_sight: bool = False) -> str:
    """A table as ``show`` has it in notebooks; its look is the site's (site.css).

    A long one is folded away unless ``in_sight``.
    """
    text = table_html(table, decimals=3)
    return f"```{{raw}} html\n{text if in_sight else folded_if_long(text)}\n```"


def folded_if_long(text: str) -> str:
    """The HTML of a table, after what may precede it; its rows are a click away where they are many."""
    rows = text.count("<tr>") - 1
    if rows <= _MOST_ROWS:
        return text
    start = text.index('<div class="ke-table">')
    summary = f"<summary>Show the table ({rows} rows)</summary>"
    return f'{text[:start]}<details class="long">{summary}{text[start:]}</details>'
