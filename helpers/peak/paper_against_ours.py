"""The paper's main results and ours at a glance: one figure, one table of verdicts, one of APP's price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.peak.beside_paper import MAIN_TABLES, PAPER_NAMES
from helpers.peak.findings import WITH_APP, findings
from helpers.peak.metrics_table import metric_interval
from helpers.peak.stored_scores import scores_of
from helpers.peak.tables import app_contrast, method_metrics
from helpers.results.archive import Run
from helpers.results.style import MARKERS, PALETTE, told, use_style
from helpers.results.text import (
    INCONCLUSIVE,
    Evidence,
    corrected_verdicts,
    in_points,
    published_table,
)

METHODS = (
    *("FT-L", "FT-L+APP", "KN", "MEND", "MEND+APP"),
    *("ROME", "ROME+APP", "MEMIT", "MEMIT+APP"),
)
METRICS = {
    "ES": "ES ↑",
    "GS": "GS ↑",
    "LS_authors": "LS ↑",  # the paper prints what its authors' code computes
    "AFF_hard": "AFF, hard ↓",
    "ANF_hard": "ANF, hard ↓",
}
DATASETS = ("peak-cf", "peak-t")
_PAPER_MODELS = ("gpt2-xl", "gpt-j-6b", "llama2-7b", "llama2-13b")


@dataclass(frozen=True)
class Ours:
    """One published run: its model, its data set and its metrics by method."""

    model: str
    dataset: str
    records: int
    metrics: Mapping[str, pd.DataFrame]

    @classmethod
    def of(cls, run: Run, *, methods: Sequence[str] = ()) -> Ours:
        """The metrics of a published run: of all its methods, or of those of ``methods`` that it has."""
        source = run.about.source
        metrics = method_metrics(scores_of(run, only=methods))
        records = max(len(table) for table in metrics.values())
        return cls(source["model"], source["dataset"], records, metrics)


def paper_figure(runs: Sequence[Ours]) -> Figure:
    """Every editor's row in Tables 3, 4 and 9, ours with 95 % intervals; a row of panels a data set."""
    use_style()
    figure, panels = plt.subplots(2, 5, figsize=(9.2, 5.4), sharex=True, sharey=True)
    models = list(dict.fromkeys(run.model for run in runs))
    for dataset, line in zip(DATASETS, panels, strict=True):
        paper = _paper_means(dataset)
        for (metric, title), axes in zip(METRICS.items(), line, strict=True):
            _paper_points(axes, paper, metric)
            for run in (run for run in runs if run.dataset == dataset):
                _our_points(axes, run, metric, models.index(run.model), len(models))
            axes.set_title(title if dataset == DATASETS[0] else "")
            axes.set_xlim(-3, 103)
            axes.grid(axis="y", visible=False)
        line[0].set_ylabel(dataset.upper())
    names = [PAPER_NAMES.get(method, method) for method in METHODS]
    panels[0, 0].set_yticks(np.arange(len(METHODS))[::-1], names)
    handles = {h.get_label(): h for axes in panels.flat for h in axes.containers + axes.collections}
    shown = {str(label): handle for label, handle in handles.items() if str(label)[0] != "_"}
    figure.legend(shown.values(), shown.keys(), loc="outside right center")
    counts = {m: [str(r.records) for r in runs if r.model == m] for m in models}
    sizes = "; ".join(f"{model} {' and '.join(n)}" for model, n in counts.items())
    words = "Percent. Open: PEAK, Tables 3, 4 and 9. Filled: ours, with 95 % intervals"
    note = f"{words}.\nRecords of PEAK-CF and of PEAK-T: {sizes}"
    return told(figure, _lowered(runs), note)


def _lowered(runs: Sequence[Ours]) -> str:
    """How often APP lowers AFF and ANF against hard answers, here and in the paper."""
    measures, methods = ("AFF_hard", "ANF_hard"), [m for m in WITH_APP if m in METHODS]
    pairs = [(method, measure) for method in methods for measure in measures]
    found = [app_contrast(run.metrics, f"{m}+APP", each) for run in runs for m, each in pairs]
    ours = [contrast.difference.mean < 0 for contrast in found if contrast]
    printed = [means for dataset in DATASETS for _, means in _paper_means(dataset)]
    paper = [
        means[f"{m}+APP"][each] < means[m][each]
        for means in printed
        for m, each in pairs
        if {m, f"{m}+APP"} <= set(means)
    ]
    return (
        f"With APP mean forgetting and noise are lower in {sum(ours)} of our {len(ours)} "
        f"comparisons and in {sum(paper)} of the paper's {len(paper)}"
    )


def verdicts_table(runs: Sequence[Ours]) -> pd.DataFrame:
    """How many tests of each of the paper's findings hold after Holm's correction, a column a run.

    Args:
        runs: of the smallest model first, of the largest last. What compares data sets or models
            stands with PEAK-CF, of the smaller model.

    Returns:
        Index finding; cells such as ``holds 4, inconclusive 2``, ``–`` where a run cannot speak to one.
    """
    by_name = {(run.model, run.dataset): run.metrics for run in runs}
    larger = {runs[0].model: by_name.get((runs[-1].model, DATASETS[0]))}
    columns = {
        f"{model}, {dataset}": findings(metrics)
        if dataset == DATASETS[1]
        else findings(metrics, by_name.get((model, DATASETS[1])), larger.get(model))
        for (model, dataset), metrics in by_name.items()
    }
    counted = {name: _counted(evidence) for name, evidence in columns.items()}
    order = dict.fromkeys(finding for cells in counted.values() for finding in cells)
    return pd.DataFrame(counted, index=list(order)).fillna("–").rename_axis("finding")


def price_table(runs: Sequence[Ours], *, dataset: str = DATASETS[0]) -> pd.DataFrame:
    """What APP takes from AFF and ANF and what it costs in ES and GS, in percentage points.

    Returns:
        Index (editor, model); the paper's models first. Ours carry 95 % intervals. A positive gain
        is less perturbation, a positive cost a lower share of edits that succeed.
    """
    parts = {"AFF gain": "AFF_hard", "ANF gain": "ANF_hard", "ES cost": "ES", "GS cost": "GS"}
    rows = {}
    for method in (m for m in WITH_APP if m in METHODS):
        editor = PAPER_NAMES.get(method, method)
        for model, means in _paper_means(dataset):
            if {method, f"{method}+APP"} <= set(means):
                plain, careful = means[method], means[f"{method}+APP"]
                cells = {name: f"{plain[m] - careful[m]:.1f}" for name, m in parts.items()}
                rows[editor, f"paper: {model}"] = cells
        for run in (run for run in runs if run.dataset == dataset):
            cells = {}
            for name, metric in parts.items():
                if contrast := app_contrast(run.metrics, f"{method}+APP", metric):
                    cells[name] = in_points(-contrast.difference)
            if cells:
                rows[editor, f"ours: {run.model}"] = cells
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["editor", "model"])


def _counted(evidence: Sequence[Evidence]) -> dict[str, str]:
    """For each finding how its tests came out, corrected for all tests of the run."""
    tests = zip((item.finding for item in evidence), corrected_verdicts(evidence), strict=True)
    verdicts = pd.DataFrame(tests, columns=["finding", "how"])
    counts = verdicts.groupby("finding", sort=False)["how"].value_counts()
    order = ("holds", "reversed", INCONCLUSIVE)
    return {
        finding: ", ".join(
            f"{how} {counts[finding, how]}" for how in order if (finding, how) in counts
        )
        for finding in verdicts["finding"].drop_duplicates()
    }


_Means = list[tuple[str, dict[str, pd.Series]]]


def _paper_means(dataset: str) -> _Means:
    """The paper's rows on a data set: for each model, for each method as we name it, its metrics."""
    ours = {paper: method for method, paper in PAPER_NAMES.items()}
    published = pd.concat([published_table(name) for name in MAIN_TABLES])
    published = published[published["dataset"] == dataset].replace({"metric": {"LS": "LS_authors"}})
    found = []
    for model, rows in published.groupby("model", sort=False):
        by_method = rows.set_index("metric").groupby("method", sort=False)["value"]
        means = {ours.get(str(name), str(name)): values for name, values in by_method}
        found.append((str(model), means))
    return found


def _paper_points(axes: Axes, paper: _Means, metric: str) -> None:
    for model, means in paper:
        rows = [METHODS[::-1].index(method) for method in means]
        axes.scatter(
            [means[method][metric] for method in means],
            rows,
            marker=MARKERS[2 + _PAPER_MODELS.index(model)],
            facecolor="none",
            edgecolor="0.35",
            linewidth=0.8,
            s=22,
            label=f"paper: {model}",
            clip_on=False,
        )


def _our_points(axes: Axes, run: Ours, metric: str, place: int, models: int) -> None:
    methods = [method for method in METHODS if method in run.metrics]
    found = [metric_interval(metric, run.metrics[method][metric]) for method in methods]
    mean, low, high = 100 * np.array([(each.mean, each.low, each.high) for each in found]).T
    level = 0.12 * (models - 1 - 2 * place)
    axes.errorbar(
        mean,
        [METHODS[::-1].index(method) + level for method in methods],
        xerr=[mean - low, high - mean],
        fmt=MARKERS[place],
        color=PALETTE[place],
        markersize=4,
        elinewidth=0.8,
        label=f"ours: {run.model}",
        clip_on=False,
    )
