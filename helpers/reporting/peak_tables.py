"""PEAK's tables from stored scores, with the paper's numbers in rows of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from helpers.data.peak import PeakData
from helpers.data.peak_record import PeakRecord
from helpers.metrics.peak_tables import metrics_table, summarise
from helpers.metrics.statistics import dagger
from helpers.reporting.published import published_table

MAIN_METRICS = ("ES", "GS", "LS", "AFF_hard", "ANF_hard", "AFF_random", "ANF_random")
MAIN_TABLES = ("peak_table_3", "peak_table_4", "peak_table_9")
PAPER_NAMES = {"FT-L": "FT", "FT-L+APP": "FT+APP"}  # whose FT has that objective
HIGHER_IS_BETTER = ("ES", "GS", "LS", "LS_unfiltered")


@dataclass(frozen=True)
class Caption:
    """What every table of ours says about itself."""

    model: str
    dataset: str
    records: int
    preset: str
    dtype: str
    device: str

    def __str__(self) -> str:
        return (
            f"ours: {self.model}, {self.dataset}, {self.records} records, preset {self.preset},"
            f" {self.dtype} on {self.device}"
        )


def method_metrics(
    scores: Mapping[str, pd.DataFrame], **switches: object
) -> dict[str, pd.DataFrame]:
    """``metrics_table`` of each method's scores; switches as there."""
    return {method: metrics_table(table, **switches) for method, table in scores.items()}  # type: ignore[arg-type]


def editing_table(
    by_record: Mapping[str, pd.DataFrame],
    *,
    metrics: Sequence[str] = MAIN_METRICS,
    intervals: bool = True,
) -> pd.DataFrame:
    """Mean percentage of each metric, methods as rows, as rounded text (PEAK, Tables 3, 4 and 9).

    Cells read ``mean ± half width of the 95 % interval``, with † where a ``+APP`` row is
    significantly better than the plain method on the same records, and ``(n)`` where fewer records
    than all stand behind the mean; ``records`` counts a method's records.
    """
    rows = {}
    for method, table in by_record.items():
        summary = summarise(table[list(metrics)])
        cells = [str(len(table))]
        for metric in metrics:
            text = percent_cell(summary, metric, len(table), intervals=intervals)
            cells.append(text + _mark(method, metric, by_record))
        rows[method] = cells
    columns = ["records", *metrics]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("method")


def percent_cell(
    summary: pd.DataFrame, metric: str, records: int, *, intervals: bool = True
) -> str:
    """A metric of ``summarise`` as ``mean ± half width``, with *n* where that is below ``records``."""
    row = summary.loc[metric]
    text = f"{100 * row['mean']:.1f}" if row["n"] else "n/a"
    if intervals and row["n"] > 1:
        text += f" ± {50 * (row['high'] - row['low']):.1f}"
    return text + (f" (n={row['n']:.0f})" if row["n"] < records else "")


def beside_paper(
    by_record: Mapping[str, pd.DataFrame],
    *,
    table: str,
    model: str,
    dataset: str,
    metrics: Sequence[str] = MAIN_METRICS,
) -> pd.DataFrame:
    """Our means and the paper's for the methods both have, labelled row by row."""
    published = published_table(table)
    chosen = published[(published["model"] == model) & (published["dataset"] == dataset)]
    wide = chosen.pivot(index="method", columns="metric", values="value")
    ours = {m: 100 * summarise(t[list(metrics)])["mean"] for m, t in by_record.items()}
    rows = []
    for method, means in ours.items():
        rows.append(("ours", method, *(f"{means[metric]:.1f}" for metric in metrics)))
        name = PAPER_NAMES.get(method, method)
        if name in wide.index:
            numbers = (wide.loc[name].get(metric) for metric in metrics)
            texts = ("–" if pd.isna(value) else f"{value:.1f}" for value in numbers)
            rows.append((f"paper ({model})", method, *texts))
    return pd.DataFrame(rows, columns=["source", "method", *metrics]).set_index(
        ["method", "source"]
    )


def paper_setting(model: str, dataset: str) -> dict[str, str]:
    """Where the paper has a model on a data set: table, model and data set for ``beside_paper``.

    Of what it does not have, GPT-2 XL on PEAK-CF, its smallest model, stands for orientation.
    """
    for table in MAIN_TABLES:
        rows = published_table(table)
        if ((rows["model"] == model) & (rows["dataset"] == dataset)).any():
            return {"table": table, "model": model, "dataset": dataset}
    return {"table": "peak_table_3", "model": "gpt2-xl", "dataset": "peak-cf"}


def _mark(method: str, metric: str, by_record: Mapping[str, pd.DataFrame]) -> str:
    plain = method.removesuffix("+APP")
    if plain == method or plain not in by_record:
        return ""
    pair = by_record[plain][metric].to_frame("plain").join(by_record[method][metric].rename("app"))
    better = metric in HIGHER_IS_BETTER
    return dagger(pair["plain"].to_numpy(), pair["app"].to_numpy(), higher_is_better=better)


def by_relation(
    by_record: Mapping[str, pd.DataFrame], data: PeakData, *, metric: str
) -> pd.DataFrame:
    """Mean percentage of one metric per relation, relations with most records first."""
    relations = {record.case_id: record.relation for record in data.records}
    columns = {}
    for method, table in by_record.items():
        values = 100 * table[metric].dropna()
        columns[method] = values.groupby(values.index.map(relations)).mean().round(1)
    counts = pd.Series(relations).value_counts().rename("records")
    joined = pd.concat([counts, pd.DataFrame(columns)], axis=1).rename_axis("relation")
    return joined.sort_values(["records", "relation"], ascending=[False, True])


def worst_record(table: pd.DataFrame, metric: str, data: PeakData) -> PeakRecord | None:
    """The record with the highest value of a metric, the first in case of a tie; None without any."""
    values = table[metric].dropna()
    if values.empty:
        return None
    case_id = values.idxmax()
    return next(record for record in data.records if record.case_id == case_id)


def ranking_in_words(
    scores: pd.DataFrame, record: PeakRecord, column: str, *, first: int = 8
) -> str:
    """The most probable answers at the edit prompt: [appended], correct*, false."""
    chosen = scores[(scores["case_id"] == record.case_id) & (scores["role"] == "edit")]
    order = (chosen[column] / chosen["tokens"]).sort_values(ascending=False).index[:first]
    words = []
    for name, index in zip(
        chosen.loc[order, "list"], chosen.loc[order, "answer_index"], strict=True
    ):
        answer = record.lists[name][index]
        marks = {"target": f"[{answer}]", "correct": f"{answer}*"}
        words.append(marks.get(name, answer))
    return ", ".join(words)
