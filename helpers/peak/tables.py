"""PEAK's tables from stored scores, with intervals, marks and what survives Holm's correction.

*figures/data/peak/<model>_<dataset>* holds scores before and after by method (``ROME+APP``), without
text: names of lists, numbers of answers, log-probabilities in single precision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from helpers import UserError
from helpers.editing.editors import distinct
from helpers.paths import run_name
from helpers.peak.metrics import (
    DEFAULT_FILTER,
    METRICS,
    SHARES,
    AnswerFilter,
    kind_of_metric,
    metric_interval,
    metrics_table,
    summarise,
)
from helpers.results.archive import Run, archive
from helpers.results.notes import ShownTable, method_notes, with_note, with_relations
from helpers.results.statistics import LEVEL, Contrast, holm, paired, post_stratified
from helpers.results.text import caption, in_points, mark, published_table

Metrics = Mapping[str, pd.DataFrame]  # for each method one row of metrics per record

DATASETS = ("peak-cf", "peak-t")
HARD_METRICS = ("ES", "GS", "LS", "AFF_hard", "ANF_hard")
MAIN_METRICS = (*HARD_METRICS, "AFF_random", "ANF_random")
PAPER_METRICS = (*SHARES, *MAIN_METRICS[3:])  # with the paper's two other readings of LS
MAIN_TABLES = ("peak_table_3", "peak_table_4", "peak_table_9")
PAPER_NAMES = {"FT-L": "FT", "FT-L+APP": "FT+APP"}  # whose FT has that objective
_PAPERS_MARK = (
    "† of the paper: with APP differs from without (paired t-test over records, p < 0.05)"
)
_PRINTED = ["metric", "value", "note", "dagger"]
_STORED = {"role": str, "list": str, "sum_before": float, "sum_after": float}


def published_runs(names: Iterable[str]) -> list[Run]:
    """The stored runs of the names, in their order: a model's on PEAK-CF and on PEAK-T, or a run's own.

    A model may have one of the two. Tables and tests go by model and data set, so that each pair may occur
    in one run only.
    """
    peak_archive = archive("peak")
    runs: dict[tuple[str, str], Run] = {}
    for name in names:
        runs_of_model = [peak_archive.known(run_name(name, dataset)) for dataset in DATASETS]
        for run in [run for run in runs_of_model if run] or [peak_archive.get(name)]:
            model_and_dataset = (run.about.source["model"], run.about.source["dataset"])
            earlier_run = runs.setdefault(model_and_dataset, run)
            if earlier_run.name != run.name:
                model, dataset = model_and_dataset
                raise UserError(
                    f"published: {earlier_run.name} and {run.name} are both of {model} on {dataset}:"
                    " name one of them"
                )
    return list(runs.values())


def fewer_records(run: Run) -> list[str]:
    """The methods that were run on fewer records than a caption states, each with its number."""
    notes = []
    for name, table in run.tables.items():
        records = table["case_id"].nunique()
        if records < run.about.caption["records"]:
            notes.append(f"{name}: {records} records")
    return notes


def scores_of(run: Run, *, only: Sequence[str] | None = None) -> dict[str, pd.DataFrame]:
    """A run's score tables, or those of ``only``, as the metrics take them, with each record's relation."""
    names = [name for name in run.tables if only is None or name in only]
    of = run.about.caption.get("relations", {})  # by case_id as text, as JSON keeps it
    tables = {name: run.tables[name].astype(_STORED) for name in names}
    return {n: t.assign(relation=t["case_id"].astype(str).map(of)) for n, t in tables.items()}


def data_of(run: Run, records: str = "") -> str:
    """A run's records in words: ``peak-cf, 40 records``; ``records`` is as ``caption_of`` has it."""
    about_records = run.about.caption
    counted = records or f"{about_records['records']} records"
    return ", ".join(
        filter(None, [run.about.source["dataset"], counted, about_records.get("sample")])
    )


def caption_of(run: Run, records: str = "", *, answer_filter: AnswerFilter | None = None) -> str:
    """What a run's tables are of; ``records`` words how many, default: those of the run.

    ``answer_filter`` is named where it is given.
    """
    filter_words = f"answers kept by {answer_filter}" if answer_filter else ""
    preset = f"preset {run.about.caption['preset']}"
    return caption(run.about.source, data_of(run, records), filter_words, preset)


def unedited(
    scores: Mapping[str, pd.DataFrame], answer_filter: AnswerFilter = DEFAULT_FILTER
) -> dict[str, pd.DataFrame]:
    """The unedited model's metrics on a run's records, under the label ``unedited``."""
    table = max(scores.values(), key=len)  # the one of the most records
    unchanged = table.assign(sum_after=table["sum_before"])
    return {"unedited": metrics_table(unchanged, answer_filter)}


def metric_contrast(metric: str, first: pd.Series, second: pd.Series) -> Contrast:
    """Second minus first of one metric on the records both have: ``helpers.results.statistics.paired``."""
    one, two = first.align(second, join="inner")
    return paired(one, two, kind_of_metric(metric))


def objective_contrast(by_record: Metrics, method: str, metric: str) -> Contrast | None:
    """``metric_contrast`` of a ``+APP`` or ``+ICD`` method with the plain one; None for any other method."""
    plain = method.removesuffix("+APP").removesuffix("+ICD")
    if plain == method or not {plain, method} <= set(by_record):
        return None
    return metric_contrast(metric, by_record[plain][metric], by_record[method][metric])


def editing_table(by_record: Metrics, *, metrics: Sequence[str] = MAIN_METRICS) -> ShownTable:
    """Mean percentage of each metric, methods as rows, as rounded text (PEAK, Tables 3, 4, 5 and 9).

    Cells read ``mean ± half width of the 95 % interval``, or ``mean [low, high]`` where the sides
    differ. In a ``+APP`` or ``+ICD`` row † is significantly better and ‡ significantly worse than the plain
    method on the same records (p < 0.05); ``Holm`` reports which of these survive the correction for all
    tests of the table. Where the records are of fewer than eight relations there are no tests and no marks,
    nor for a method that is another one of the table by construction (``distinct``). *n*, where fewer than
    all records, is in the title or the cell.
    """
    common = {metric: _common_n(by_record, metric) for metric in metrics}
    tests = {
        (method, metric): contrast
        for method in distinct(by_record)
        for metric in metrics
        if (contrast := objective_contrast(by_record, method, metric))
    }
    tests = {test_key: test for test_key, test in tests.items() if not test.too_few_relations}
    corrected = holm([contrast.p_value for contrast in tests.values()])
    survives = dict(zip(tests, corrected < LEVEL, strict=True))
    rows = {}
    for method, table in by_record.items():
        cells, marks = [str(len(table))], {}
        for metric in metrics:
            estimate = metric_interval(metric, table[metric])
            contrast = tests.get((method, metric))
            fewer = estimate.n < (common[metric] or len(table))
            is_better_higher = METRICS[metric].higher_is_better
            sign = mark(contrast, higher_is_better=is_better_higher) if contrast else ""
            if sign:
                marks[metric] = bool(survives[method, metric])
            cells.append(in_points(estimate) + f" (n={estimate.n})" * fewer + sign)
        rows[method] = [*cells, *([_surviving(marks)] if tests else [])]
    titles = [f"{metric} (n={n})" if n else metric for metric, n in common.items()]
    columns = ["records", *titles, *(["Holm"] if tests else [])]
    shown = pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("method")
    samples = (table[metric] for table in by_record.values() for metric in metrics)
    return with_relations(shown, samples)


def run_table(
    run: Run,
    by_record: Metrics,
    answer_filter: AnswerFilter = DEFAULT_FILTER,
    *,
    metrics: Sequence[str] = MAIN_METRICS,
) -> ShownTable:
    """``editing_table`` of a published run below its unedited model, with ``method_notes``."""
    rows = {**unedited(scores_of(run), answer_filter), **by_record}
    return with_note(editing_table(rows, metrics=metrics), *method_notes(run))


def edits_table(edits_by_method: Metrics) -> pd.DataFrame:
    """How a run's edits were made: how many, given up or flagged as very large, steps, and sizes.

    ``edits_by_method`` has a row an edit with ``failure``, ``exploding``, ``steps`` and ``relative_norm``.
    """
    rows = {}
    for label, edits in edits_by_method.items():
        rows[label] = {
            "edits": len(edits),
            "given up": int((edits["failure"] != "").sum()),
            "flagged": int(edits["exploding"].sum()),
            "median steps": f"{edits['steps'].median():g}",
            "median |dW|/|W|": edits["relative_norm"].median(),
        }
    return pd.DataFrame(rows).T


def weighted_table(
    by_record: Metrics, relations: pd.DataFrame, *, metrics: Sequence[str] = HARD_METRICS
) -> ShownTable:
    """Post-stratified means in percent, and in brackets how far they are from the means over records.

    ``relations`` has a column ``relation`` and ``records_whole``, the relation's records in the whole file.
    There is no interval: most relations have one record.
    """
    counts = relations.set_index("relation")["records_whole"]
    shares = {str(relation): count / counts.sum() for relation, count in counts.items()}
    rows = {}
    least = 1.0
    for method, table in by_record.items():
        cells = []
        for metric in metrics:
            mean, covered = post_stratified(table[metric], shares)
            least = min(least, covered)
            cells.append(f"{100 * mean:.1f} ({100 * (mean - table[metric].mean()):+.1f})")
        rows[method] = cells
    weighted = pd.DataFrame.from_dict(rows, orient="index", columns=list(metrics))
    weights = "weights: each relation's share of the whole file's records"
    cover = f"the measured relations have {100 * least:.0f} % of them or more"
    return with_note(weighted.rename_axis("method"), f"{weights}; {cover}")


def paper_setting(
    model: str, dataset: str, *, tables: Sequence[str] = MAIN_TABLES
) -> dict[str, pd.DataFrame]:
    """The paper's rows, by table and model, for a run: of its same model, or of all its models.

    A set is compared with PEAK-T where its name ends in ``-t``, else with PEAK-CF; LS is ``LS_authors``.
    """
    kind = "peak-t" if dataset.endswith("-t") else "peak-cf"
    by_label = {}
    for name in tables:
        rows = published_table(name).replace({"metric": {"LS": "LS_authors"}})
        for theirs, printed in rows[rows["dataset"] == kind].groupby("model", sort=False):
            by_label[f"PEAK, Table {name.rsplit('_', 1)[1]}: {theirs}, {kind}"] = printed
    same = {label: rows for label, rows in by_label.items() if model in set(rows["model"])}
    return same or by_label


def beside_paper(
    by_record: Metrics,
    paper: Mapping[str, pd.DataFrame],
    *,
    metrics: Sequence[str] = PAPER_METRICS,
) -> ShownTable:
    """Our means, and under each method the paper's, as text; ``*`` marks a slip in the paper.

    † in a row of the paper is the paper's own: the method with APP differs from the plain one.

    The paper's LS, as its code computes it, is in ``LS_authors``; our own LS is titled ``LS_held``.
    """
    both = ((m, "LS_authors") if m == "LS" else (m,) for m in metrics)
    metrics = list(dict.fromkeys(metric for group in both for metric in group))
    rows = []
    for method, table in by_record.items():
        means = 100 * summarise(table[list(metrics)])["mean"]
        rows.append((method, "ours", *(f"{means[metric]:.1f}" for metric in metrics)))
        fairer, plus, _ = method.partition("+ (")  # a weighting of a baseline
        named = fairer + "+" if plus else PAPER_NAMES.get(method, method)
        for label, printed in paper.items():
            theirs = printed[printed["method"] == named]
            texts = {}
            cells = theirs.assign(dagger=theirs["significant"].fillna(False))
            for metric, value, note, dagger in cells[_PRINTED].to_numpy():
                slip = "*" if "slip" in note else ""
                mark_of_paper = "†" if dagger else ""
                texts[metric] = f"{value:.1f}{slip}{mark_of_paper}"
            if texts:
                rows.append((method, label, *(texts.get(metric, "–") for metric in metrics)))
    columns = ["method", "source", *("LS_held" if m == "LS" else m for m in metrics)]
    shown = pd.DataFrame(rows, columns=columns).set_index(["method", "source"])
    has_marks = any("†" in cell for row in rows for cell in row)
    return with_note(shown, _PAPERS_MARK if has_marks else "")


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
