"""PEAK's tables from stored scores, with intervals, marks and what survives Holm's correction.

*figures/data/peak/<model>_<dataset>* holds scores before and after by method (``ROME+APP``), without
text: names of lists, numbers of answers, log-probabilities in single precision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from helpers.peak.metrics import (
    SHARES,
    Normalise,
    keep_answers,
    metric_interval,
    metrics_table,
    records_of,
    summarise,
)
from helpers.results.archive import Run, archive
from helpers.results.statistics import LEVEL, Contrast, holm, paired_means, paired_shares
from helpers.results.text import caption, in_points, mark, published_table

Metrics = Mapping[str, pd.DataFrame]
"""For each method one row of metrics per record."""

HARD_METRICS = ("ES", "GS", "LS", "AFF_hard", "ANF_hard")
MAIN_METRICS = (*HARD_METRICS, "AFF_random", "ANF_random")
PAPER_METRICS = (*SHARES, *MAIN_METRICS[3:])  # with the paper's two other readings of LS
MAIN_TABLES = ("peak_table_3", "peak_table_4", "peak_table_9")
PAPER_NAMES = {"FT-L": "FT", "FT-L+APP": "FT+APP"}  # whose FT has that objective
_WORDS: dict[Normalise, str] = {"mean": "geometric mean", "sum": "whole answer"}
_STORED = {"role": str, "list": str, "sum_before": float, "sum_after": float}


def scores_of(run: Run, *, only: Sequence[str] | None = None) -> dict[str, pd.DataFrame]:
    """A run's score tables, or those of ``only``, as the metrics take them, in the order of publication."""
    names = [name for name in run.tables if only is None or name in only]
    return {name: run.tables[name].astype(_STORED) for name in names}


def caption_of(run: Run, records: str = "") -> str:
    """What a run's tables are of; ``records`` words how many, default: those of the run."""
    source, known = run.about.source, run.about.caption
    counted = records or f"{known['records']} records"
    return caption(source, source["dataset"], counted, f"preset {known['preset']}")


def unedited(scores: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The unedited model's metrics on a run's records, under the label ``unedited``."""
    table = next(iter(scores.values()))
    return {"unedited": metrics_table(table.assign(sum_after=table["sum_before"]))}


def metric_contrast(metric: str, first: pd.Series, second: pd.Series) -> Contrast:
    """Second minus first of one metric on the records both have, by the test that fits the metric.

    AFF and ANF: the paired t-test, the paper's. Shares: ``helpers.results.statistics.paired_shares``.
    """
    one, two = first.align(second, join="inner")
    return (paired_shares if metric in SHARES else paired_means)(one, two)


def app_contrast(by_record: Metrics, method: str, metric: str) -> Contrast | None:
    """``metric_contrast`` of a ``+APP`` method with the plain one; None for any other method."""
    plain = method.removesuffix("+APP")
    if plain == method or not {plain, method} <= set(by_record):
        return None
    return metric_contrast(metric, by_record[plain][metric], by_record[method][metric])


def percent_cells(
    table: pd.DataFrame,
    metrics: Sequence[str],
    *,
    common: Mapping[str, int] | None = None,
    intervals: bool = True,
) -> list[str]:
    """Each metric's mean in percent with its interval, and with *n* where that is not what is expected.

    Args:
        table: one row of metrics per record.
        metrics: columns.
        common: the n that the column's title reports; default: all records.
        intervals: whether intervals are shown.
    """
    cells = []
    for metric in metrics:
        found = metric_interval(metric, table[metric])
        if not intervals:
            found = replace(found, low=np.nan, high=np.nan)
        fewer = found.n < ((common or {}).get(metric) or len(table))
        cells.append(in_points(found) + f" (n={found.n})" * fewer)
    return cells


def editing_table(by_record: Metrics, *, metrics: Sequence[str] = MAIN_METRICS) -> pd.DataFrame:
    """Mean percentage of each metric, methods as rows, as rounded text (PEAK, Tables 3, 4 and 9).

    Cells read ``mean ± half width of the 95 % interval``, or ``mean [low, high]`` where the sides
    differ (``metric_interval``). In a ``+APP`` row † is significantly better and ‡ significantly worse
    than the plain method on the same records (p < 0.05, ``app_contrast``).

    Returns:
        Index method; ``records``, one column per metric, and where there are +APP rows ``Holm``:
        which of the row's marks survive the correction for all tests of the table. Where fewer
        records than all are behind a mean, *n* is in the column's title if it is one for all
        methods, else in the cell.
    """
    common = {metric: _common_n(by_record, metric) for metric in metrics}
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
        cells, marks = percent_cells(table, metrics, common=common), {}
        for place, metric in enumerate(metrics):
            contrast = tests.get((method, metric))
            if contrast and (sign := mark(contrast, higher_is_better=metric in SHARES)):
                cells[place] += sign
                marks[metric] = bool(survives[method, metric])
        rows[method] = [str(len(table)), *cells, *([_surviving(marks)] if tests else [])]
    titles = [f"{metric} (n={n})" if n else metric for metric, n in common.items()]
    columns = ["records", *titles, *(["Holm"] if tests else [])]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("method")


def other_choices(scores: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Metrics under the filter's other thresholds, and with P = exp(sum), as text (PEAK, Section 5.1).

    Args:
        scores: score tables by method.

    Returns:
        Index threshold of ``keep_answers`` (0.2 is the authors' and the default, and the only one
        under P = exp(sum)) and P; ``n``, the records that count, and one column per method and factor.
    """
    thresholds: list[tuple[float, Normalise]] = [(k / 10, "mean") for k in range(1, 6)]
    rows = {}
    for share, normalise in [*thresholds, (0.2, "sum")]:
        cells, counts = {}, set()
        for method, table in scores.items():
            by_record = metrics_table(table, hard_share=share, normalise=normalise)
            for metric in ("AFF_hard", "ANF_hard"):
                estimate = metric_interval(metric, by_record[metric])
                counts.add(estimate.n)
                cells[f"{method} {metric}"] = in_points(estimate)
        rows[share, _WORDS[normalise]] = {"n": "–".join(map(str, sorted(counts))), **cells}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["threshold", "P"])


@dataclass(frozen=True)
class PaperSetting:
    """One model on one data set in one of the paper's tables."""

    table: str
    model: str
    dataset: str

    @property
    def label(self) -> str:
        """``PEAK, Table 3: gpt2-xl, peak-cf``."""
        return f"PEAK, Table {self.table.rsplit('_', 1)[1]}: {self.model}, {self.dataset}"

    def rows(self) -> pd.DataFrame:
        """The setting's published rows; LS, which its authors' code computes, as ``LS_authors``."""
        rows = published_table(self.table).replace({"metric": {"LS": "LS_authors"}})
        return rows[(rows["model"] == self.model) & (rows["dataset"] == self.dataset)]


def paper_setting(model: str, dataset: str) -> list[PaperSetting]:
    """What the paper has for a run's data set: its same model, or all its models.

    Packaged and other sets are compared with the official one of their kind: PEAK-T where the name
    ends in ``-t``, else PEAK-CF.
    """
    kind = "peak-t" if dataset.endswith("-t") else "peak-cf"
    tables = {name: published_table(name) for name in MAIN_TABLES}
    every = [
        PaperSetting(name, each, kind)
        for name, rows in tables.items()
        for each in rows.loc[rows["dataset"] == kind, "model"].drop_duplicates()
    ]
    return [setting for setting in every if setting.model == model] or every


def beside_paper(
    by_record: Metrics,
    settings: Sequence[PaperSetting],
    *,
    metrics: Sequence[str] = PAPER_METRICS,
) -> pd.DataFrame:
    """Our means, and under each method the paper's, as text; ``*`` marks a slip in the paper.

    The paper's LS is what its code computes: it is in ``LS_authors``, which is always next to our own
    LS. That one is titled ``LS_held``: each prompt's own answer, where it held before.
    """
    both = ((m, "LS_authors") if m == "LS" else (m,) for m in metrics)
    metrics = list(dict.fromkeys(metric for group in both for metric in group))
    rows = []
    for method, table in by_record.items():
        means = 100 * summarise(table[list(metrics)])["mean"]
        rows.append((method, "ours", *(f"{means[metric]:.1f}" for metric in metrics)))
        fairer, plus, _ = method.partition("+ (")  # a weighting of a baseline
        named = fairer + "+" if plus else PAPER_NAMES.get(method, method)
        for setting in settings:
            rows_of = setting.rows()
            printed = rows_of[rows_of["method"] == named].set_index("metric")
            if len(printed):
                rows.append((method, setting.label, *(_printed(printed, m) for m in metrics)))
    columns = ["method", "source", *("LS_held" if m == "LS" else m for m in metrics)]
    return pd.DataFrame(rows, columns=columns).set_index(["method", "source"])


def paper_notes(settings: Sequence[PaperSetting]) -> list[str]:
    """What is wrong with the numbers marked ``*``, one line per method."""
    lines = []
    for setting in settings:
        slips = setting.rows().query("note.str.contains('slip')")
        for (method, note), group in slips.groupby(["method", "note"]):
            lines.append(f"* {setting.label}, {method}, {', '.join(group['metric'])}: {note}")
    return lines


def sample_table(names: Sequence[str]) -> pd.DataFrame:
    """What part of their official files the published runs' records are, runs as rows.

    The counts of the files are stored (``tools.peak_runs``), the filter's come from the scores.
    """
    rows = {}
    for name in names:
        counts = archive("peak_samples").get(name).tables["counts"].iloc[0]
        asked, kept = [], []
        for _, record in records_of(next(iter(scores_of(archive("peak").get(name)).values()))):
            for prompt in (record.edit, *record.paraphrases):
                found = keep_answers(*(prompt[which][0] for which in ("correct", "hard", "random")))
                if found.usable:
                    asked.append(prompt["correct"].shape[1])
                    kept.append(len(found.correct))
        rows[name] = {
            "records": f"{counts['records']} of {counts['records_whole']}",
            "relations": f"{counts['relations']} of {counts['relations_whole']}",
            "prompt begins with subject": counts["subject_first"],
            "correct answers kept": f"{100 * sum(kept) / sum(asked):.0f} %",
            "median kept at a prompt": float(np.median(kept)),
        }
    return pd.DataFrame(rows).T.rename_axis("run")


def edits_table(name: str) -> pd.DataFrame:
    """How a published run's edits went, methods as rows; nothing where none are stored.

    ``agreement``: the largest difference in log-probability from the published scores, over the
    answers of the first records, when the edits were made again (``tools.peak_runs``).
    """
    stored = archive("peak_edits").known(name)
    if stored is None:
        return pd.DataFrame()
    rows = {}
    for label, edits in stored.tables["edits"].groupby("method", sort=False):
        gap = stored.about.settings[str(label)]["largest_difference"]
        rows[str(label)] = {
            "edits": len(edits),
            "given up": int((edits["failure"] != "").sum()),
            "flagged": int(edits["exploding"].sum()),
            "median steps": edits["steps"].median(),
            "median |dW|/|W|": edits["relative_norm"].median(),
            "largest |dW|/|W|": edits["relative_norm"].max(),
            "agreement": "" if gap is None else f"{gap:.4f}",
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")


def null_spaces(name: str) -> pd.DataFrame:
    """The dimension of AlphaEdit's null space by layer, as stored with a run's edits."""
    stored = archive("peak_edits").known(name)
    settings = stored.about.settings if stored else {}
    known = {label: how["null_space"] for label, how in settings.items() if "null_space" in how}
    return pd.DataFrame(known).T.rename_axis("layer", axis=1)


def _common_n(by_record: Metrics, metric: str) -> int:
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


def _printed(rows: pd.DataFrame, metric: str) -> str:
    """A number of the paper, by metric."""
    if metric not in rows.index:
        return "–"
    row = rows.loc[metric]
    return f"{row['value']:.1f}" + "*" * ("slip" in row["note"])
