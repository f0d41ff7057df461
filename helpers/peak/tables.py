"""PEAK's tables from stored scores, with intervals, marks and what survives Holm's correction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from helpers.peak.metrics import SHARES
from helpers.peak.metrics_table import metrics_table, summarise
from helpers.peak.records import PeakData
from helpers.peak.schema import PeakRecord
from helpers.records import skipped_words
from helpers.results.statistics import LEVEL, Contrast, Estimate, holm, paired_means, paired_shares
from helpers.results.text import in_points, mark, model_words

MAIN_METRICS = (
    *SHARES,
    *("AFF_hard", "ANF_hard", "AFF_random", "ANF_random"),
)


@dataclass(frozen=True)
class Caption:
    """What every table of ours says about itself."""

    model: str
    dataset: str
    records: int
    preset: str
    dtype: str
    device: str
    skipped: int = 0  # records that could not be used

    def __str__(self) -> str:
        return self.words(records=f"{self.records} records")

    def words(self, *, records: str) -> str:
        """The caption of tables with other ``records`` behind them, which the argument words."""
        return (
            f"ours: {model_words(self.model)}, {self.dataset}, {records}{skipped_words(self.skipped)},"
            f" preset {self.preset},"
            f" {self.dtype} on {self.device}"
        )


def method_metrics(
    scores: Mapping[str, pd.DataFrame], **switches: object
) -> dict[str, pd.DataFrame]:
    """``metrics_table`` of each method's scores; switches as there."""
    return {method: metrics_table(table, **switches) for method, table in scores.items()}  # type: ignore[arg-type]


def unedited(scores: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The unedited model's metrics on a run's records, under the label ``unedited``."""
    table = next(iter(scores.values()))
    return {"unedited": metrics_table(table.assign(sum_after=table["sum_before"]))}


def editing_table(
    by_record: Mapping[str, pd.DataFrame],
    *,
    metrics: Sequence[str] = MAIN_METRICS,
    intervals: bool = True,
) -> pd.DataFrame:
    """Mean percentage of each metric, methods as rows, as rounded text (PEAK, Tables 3, 4 and 9).

    Cells read ``mean ± half width of the 95 % interval``, or ``mean [low, high]`` where the sides
    differ (``metrics_table.metric_interval``). In a ``+APP`` row † is significantly better and ‡
    significantly worse than the plain method on the same records (p < 0.05, ``app_contrast``).

    Returns:
        Index method; ``records``, one column per metric, and where there are +APP rows ``Holm``:
        which of the row's marks survive the correction for all tests of the table. Where fewer
        records than all stand behind a mean, *n* stands in the column's title if it is one for
        all methods, else in the cell.
    """
    titles = {metric: _common_n(by_record, metric) for metric in metrics}
    tests = {
        (method, metric): contrast
        for method in by_record
        for metric in metrics
        if (contrast := app_contrast(by_record, method, metric))
    }
    corrected = holm([contrast.p_value for contrast in tests.values()])
    survives = dict(zip(tests, corrected < LEVEL, strict=True))
    rows = {}
    for method, table in by_record.items():
        summary = summarise(table[list(metrics)])
        cells, marks = [str(len(table))], {}
        for metric in metrics:
            common = titles[metric]
            text = percent_cell(summary, metric, common or len(table), intervals=intervals)
            if contrast := tests.get((method, metric)):
                better = metric in SHARES
                if sign := mark(contrast, higher_is_better=better):
                    text, marks[metric] = text + sign, bool(survives[method, metric])
            cells.append(text)
        rows[method] = [*cells, *([_surviving(marks)] if tests else [])]
    named = [f"{metric} (n={n})" if n else metric for metric, n in titles.items()]
    columns = ["records", *named, *(["Holm"] if tests else [])]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("method")


def app_contrast(
    by_record: Mapping[str, pd.DataFrame], method: str, metric: str
) -> Contrast | None:
    """``paired_contrast`` of a ``+APP`` method with the plain one; None for any other method."""
    plain = method.removesuffix("+APP")
    if plain == method or not {plain, method} <= set(by_record):
        return None
    return paired_contrast(metric, by_record[plain], by_record[method])


def paired_contrast(metric: str, first: pd.DataFrame, second: pd.DataFrame) -> Contrast:
    """Second minus first of one metric on the records both have, by the test that fits the metric.

    AFF and ANF: the paired t-test, the paper's. Shares: ``helpers.results.statistics.paired_shares``.
    """
    one, two = first[metric].align(second[metric], join="inner")
    return (paired_shares if metric in SHARES else paired_means)(one, two)


def _common_n(by_record: Mapping[str, pd.DataFrame], metric: str) -> int:
    """The records behind a metric where every method has the same number, fewer than all; else 0."""
    counts = {(len(table), int(table[metric].notna().sum())) for table in by_record.values()}
    records, n = counts.pop()
    return n if not counts and 0 < n < records else 0


def _surviving(marks: Mapping[str, bool]) -> str:
    """Which of a row's marks survive: ``all``, ``all but GS``, ``none``; nothing without marks."""
    if not marks or all(marks.values()):
        return "all" if marks else ""
    lost = [metric for metric, kept in marks.items() if not kept]
    return "none" if len(lost) == len(marks) else f"all but {', '.join(lost)}"


def percent_cell(
    summary: pd.DataFrame, metric: str, records: int, *, intervals: bool = True
) -> str:
    """A metric of ``summarise`` in percent, with *n* where that is below ``records``."""
    mean, low, high, n = map(float, summary.loc[metric].to_numpy())
    if not intervals:
        low = high = float("nan")
    text = in_points(Estimate(mean, low, high, int(n)))
    return text + (f" (n={n:.0f})" if n < records else "")


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
    at_edit = scores[(scores["case_id"] == record.case_id) & (scores["role"] == "edit")]
    order = (at_edit[column] / at_edit["tokens"]).sort_values(ascending=False).index[:first]
    words = []
    for name, index in zip(
        at_edit.loc[order, "list"], at_edit.loc[order, "answer_index"], strict=True
    ):
        answer = record.lists[name][index]
        marks = {"target": f"[{answer}]", "correct": f"{answer}*"}
        words.append(marks.get(name, answer))
    return ", ".join(words)
