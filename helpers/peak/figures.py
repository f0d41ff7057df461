"""PEAK's figures, drawn from stored scores alone: answer lists, additivity, the paper's results and ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.peak.findings import (
    DATASETS,
    FACTORS,
    METHODS,
    WITH_APP,
    Runs,
    metrics_of_runs,
    paper_means,
)
from helpers.peak.metrics import additivity, method_metrics, metric_interval, probabilities_table
from helpers.peak.tables import PAPER_NAMES, Metrics, app_contrast, caption_of, scores_of
from helpers.results.archive import Run
from helpers.results.figure import figure
from helpers.results.statistics import Estimate, paired_means
from helpers.results.style import MARKERS, PALETTE, captioned, marked, plain, told, use_style

MAIN_RUN = "smollm2-135m_peak-cf"
LISTS = {
    "correct": "correct answers $O$",
    "hard": "hard false $O_h$",
    "random": "random false $O_r$",
}
NAMES = {"AFF_hard": "AFF, hard", "ANF_hard": "ANF, hard"}
ALL_NAMES = {**NAMES, "AFF_random": "AFF, random", "ANF_random": "ANF, random"}
PAIRS = "Perturbation of the neighbours: additivity factor [%], 95 % interval, lower is better"
EDGED: dict[str, Any] = {
    **{"markeredgecolor": "black", "markeredgewidth": 0.4, "elinewidth": 0.9, "capsize": 2}
}
_PAPER_PANELS = {
    "ES": "ES ↑",
    "GS": "GS ↑",
    "LS_authors": "LS ↑",  # the paper prints what its authors' code computes
    "AFF_hard": "AFF, hard ↓",
    "ANF_hard": "ANF, hard ↓",
}
_PAPER_MODELS = ("gpt2-xl", "gpt-j-6b", "llama2-7b", "llama2-13b")
Answers = Mapping[str, tuple[float, float]]
"""Probability before and after the edit, by answer."""

NEW: Answers = {"Thailand (new)": (0.001, 0.6)}
CORRECT: Answers = {"Egypt": (0.3, 0.1), "Chad": (0.12, 0.03), "Libya": (0.05, 0.004)}
FALSE: Answers = {"Laos": (0.02, 0.05), "Myanmar": (0.01, 0.002)}
MADE_UP = "Made-up numbers. ○ before the edit, ● after; log scale"


@figure("01_one_record", title="One record's answers before and after edits")
@figure("07_one_edit", title="One record's answers before and after the edit")
def answer_probabilities(answers: pd.DataFrame, *, title: str = "") -> Figure:
    """One record's answers before and after edits, as horizontal dots (PEAK, Figure 1 in numbers).

    Args:
        answers: columns answer, list (``target``, ``correct``, ``hard``, ``random``) and one column
            of probabilities per state of the model (``before``, ``ROME``, …).
        title: the fact and the edit, in words.
    """
    use_style()
    states = [column for column in answers.columns if column not in ("answer", "list")]
    drawn = Figure(figsize=(6.6, 0.19 * len(answers) + 1.2))  # a panel draws in a thread
    axes = drawn.subplots()
    rows = np.arange(len(answers))[::-1]
    for state, marker, color in zip(states, "o^sDv", PALETTE, strict=False):
        look: dict[str, Any] = {"marker": marker, "color": color, "edgecolor": "black"}
        look |= {"linewidth": 0.4, "s": 26, "label": state, "zorder": 3}
        axes.scatter(answers[state], rows, **look)
    starts = answers["list"] != answers["list"].shift()
    for _, part in answers.assign(row=rows).groupby(starts.cumsum()):
        kind, top, bottom = part["list"].iloc[0], part["row"].max() + 0.5, part["row"].min() - 0.5
        shade = "0.93" if kind in ("correct", "random") else "1.0"
        axes.axhspan(bottom, top, color=shade, zorder=0)
        label, middle = {"target": "appended", **LISTS}[kind], (top + bottom) / 2
        axes.text(1.01, middle, label, transform=axes.get_yaxis_transform(), va="center")
    axes.set_yticks(rows, [plain(answer) for answer in answers["answer"]])
    axes.set_xscale("log")
    axes.set_ylim(-0.7, len(answers) - 0.3)
    axes.set_xlabel("probability of the answer (geometric mean over its tokens, log scale)")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(states))
    return captioned(drawn, title)


@figure("03_lists", title="Answer lists before and after", of="peak")
def list_probabilities(run: Run) -> Figure:
    """Mean probability of O, O_h and O_r before and after each method (PEAK, Figure 2)."""
    use_style()
    tables = {name: probabilities_table(table) for name, table in scores_of(run).items()}
    contrasts = [paired_means(t["hard_after"], t["correct_after"]) for t in tables.values()]
    ahead = sum(contrast.difference.low > 0 for contrast in contrasts)
    columns = [("before", next(iter(tables.values())), "before")]
    columns += [(name, table, "after") for name, table in tables.items()]
    drawn, axes = plt.subplots(figsize=(7.6, 3.4))
    for index, (name, label) in enumerate(LISTS.items()):
        keys = [f"{name}_{moment}" for _, _, moment in columns]
        found = [metric_interval(k, t[k]) for k, (_, t, _) in zip(keys, columns, strict=True)]
        mean, low, high = rows_of(found, scale=1).to_numpy().T
        ends = np.maximum(low, mean / 100)  # below has no cap on a log axis
        places = np.arange(len(columns)) + 0.18 * (index - (len(LISTS) - 1) / 2)
        look = {**EDGED, "fmt": MARKERS[index], "color": PALETTE[index], "label": label}
        drawn_marks = axes.errorbar(places, mean, yerr=[mean - ends, high - mean], **look)
        drawn_marks[1][0].set_ydata(np.where(ends > low, np.nan, ends))
    axes.set_xticks(np.arange(len(columns)), [state for state, _, _ in columns])
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.grid(axis="x", visible=False)
    if len(tables) > 5:
        plt.setp(axes.get_xticklabels(), rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yscale("log")
    axes.set_ylabel("mean probability")
    drawn.legend(loc="outside right center")
    finding = (
        f"After {ahead} of {len(tables)} methods the correct answers are still more probable than "
        "the hard false ones"
    )
    tested = "the title counts paired differences whose interval is above zero"
    intervals = "95 % intervals (without a lower cap where they reach zero)"
    return told(drawn, finding, f"{caption_of(run)}\nMeans over records, {intervals}; {tested}")


@figure("03_additivity", title="AFF and ANF of every editor, plain and with APP", of="peak")
def additivity_pairs(run: Run) -> Figure:
    """AFF and ANF of every editor, plain and with APP (PEAK, Tables 3, 4 and 9)."""
    drawn, legend = paired_factors(method_metrics(scores_of(run)))
    drawn.legend(*legend, loc="outside lower center", ncols=2)
    return captioned(drawn, f"{PAIRS}\n{caption_of(run)}")


@figure(
    "03_paper", title="The paper's main results and ours", of="peak", main=MAIN_RUN, together=True
)
def paper_against_ours(runs: Sequence[Run]) -> Figure:
    """Every editor's row in Tables 3, 4 and 9, ours with 95 % intervals; a row of panels a data set."""
    use_style()
    ours = metrics_of_runs(runs, only=METHODS)
    models = list(dict.fromkeys(model for model, _ in ours))
    drawn, panels = plt.subplots(2, 5, figsize=(9.2, 5.4), sharex=True, sharey=True)
    for dataset, line in zip(DATASETS, panels, strict=True):
        for (metric, title), axes in zip(_PAPER_PANELS.items(), line, strict=True):
            for model, means in paper_means(dataset):
                axes.scatter(
                    [means[method][metric] for method in means],
                    [METHODS[::-1].index(method) for method in means],
                    marker=MARKERS[2 + _PAPER_MODELS.index(model)],
                    **{"facecolor": "none", "edgecolor": "0.35", "linewidth": 0.8, "s": 22},
                    label=f"paper: {model}",
                    clip_on=False,
                )
            for place, model in enumerate(models):
                metrics = ours.get((model, dataset), {})
                shown = [method for method in METHODS if method in metrics]
                aside = 0.12 * (len(models) - 1 - 2 * place)
                rows = [METHODS[::-1].index(method) + aside for method in shown]
                found = [metric_interval(metric, metrics[m][metric]) for m in shown]
                look = {"fmt": MARKERS[place], "color": PALETTE[place], "markersize": 4}
                look |= {"capsize": 0, "label": f"ours: {model}", "clip_on": False}
                if shown:
                    marked(axes, rows, rows_of(found), across=True, **look)
            axes.set_title(title if dataset == DATASETS[0] else "")
            axes.set_xlim(-3, 103)
            axes.grid(axis="y", visible=False)
        line[0].set_ylabel(dataset.upper())
    names = [PAPER_NAMES.get(method, method) for method in METHODS]
    panels[0, 0].set_yticks(np.arange(len(METHODS))[::-1], names)
    handles = {h.get_label(): h for axes in panels.flat for h in axes.containers + axes.collections}
    legend = {str(label): handle for label, handle in handles.items() if str(label)[0] != "_"}
    drawn.legend(legend.values(), legend.keys(), loc="outside right center")
    counts = {name: str(max(map(len, metrics.values()))) for name, metrics in ours.items()}
    by_model = {m: [n for (model, _), n in counts.items() if model == m] for m in models}
    sizes = "; ".join(f"{model} {' and '.join(n)}" for model, n in by_model.items())
    words = "Percent. Open: PEAK, Tables 3, 4 and 9. Filled: ours, with 95 % intervals"
    return told(drawn, _lowered(ours), f"{words}.\nRecords of PEAK-CF and of PEAK-T: {sizes}")


def worked() -> dict[str, float]:
    """RFF, RNF, CPC, FPC, AFF and ANF of the made-up fact."""
    correct, false = (np.log(list(answers.values())).T for answers in (CORRECT, FALSE))
    return additivity(
        correct_before=correct[0],
        correct_after=correct[1],
        false_before=false[0],
        false_after=false[1],
    )


@figure("03_reading", title="PEAK's measures in one picture each", alone=True)
def pictures() -> Figure:
    """Success, forgetting and noise of one edit, a panel each."""
    use_style()
    found = worked()
    strongest = max(after for _, after in FALSE.values())
    weakest = min(after for _, after in CORRECT.values())
    drawn, (success, forgetting, noise) = plt.subplots(1, 3, figsize=(7.2, 2.3), sharex=True)
    _moved(success, {**NEW, **CORRECT}, weakest, "weakest correct\nanswer after")
    success.set_title("ES = 1: the new answer\nhas joined the list", fontsize=9)
    _moved(forgetting, CORRECT, strongest, "strongest false\nanswer after")
    forgetting.set_title(
        f"AFF = {found['AFF']:.2f}: correct answers\nfall, most below a false one", fontsize=9
    )
    _moved(noise, FALSE, weakest, "weakest correct\nanswer after")
    noise.set_title(
        f"ANF = {found['ANF']:.2f}: a false answer\nrises above a correct one", fontsize=9
    )
    return captioned(drawn, MADE_UP)


def _moved(axes: Axes, answers: Answers, level: float, words: str) -> None:
    """One row an answer, an arrow from before to after, and the level it is compared with."""
    rows = np.arange(len(answers))[::-1]
    for row, (before, after) in zip(rows, answers.values(), strict=True):
        axes.plot(before, row, "o", mfc="none", color=PALETTE[0])
        axes.plot(after, row, "o", color=PALETTE[0])
        arrow = {"arrowstyle": "->", "color": PALETTE[0]}
        axes.annotate("", (after, row), (before, row), arrowprops=arrow)
    axes.axvline(level, color=PALETTE[3], linestyle="--", linewidth=1)
    axes.text(level, -0.75, f" {words}", color=PALETTE[3], fontsize=7, va="center")
    axes.set(xscale="log", xlim=(5e-4, 1.0), ylim=(-1.2, len(answers) - 0.6))
    axes.set_yticks(rows, list(answers))
    axes.grid(axis="y", visible=False)


def paired_factors(by_record: Metrics) -> tuple[Figure, tuple[list[Any], list[str]]]:
    """Every editor's factors, plain and with APP joined by a line; handles and labels of a legend."""
    use_style()
    editors = list(dict.fromkeys(method.removesuffix("+APP") for method in by_record))
    size = (7.2, 0.3 * len(editors) + 1.4)
    drawn, panels = plt.subplots(1, 4, figsize=size, sharey=True, sharex=True)
    rows = np.arange(len(editors))[::-1]
    kinds = (("", "o", "plain", 0.12), ("+APP", "s", "+APP", -0.12))
    look = {**EDGED, "markersize": 5, "capsize": 0, "across": True}
    for axes, (metric, title) in zip(panels, ALL_NAMES.items(), strict=True):
        for row, editor in zip(rows, editors, strict=True):
            means = []
            for place, (suffix, marker, label, aside) in enumerate(kinds):
                if editor + suffix in by_record:
                    found = metric_interval(metric, by_record[editor + suffix][metric])
                    look |= {"fmt": marker, "color": PALETTE[place], "label": label, "zorder": 3}
                    marked(axes, [row + aside], rows_of([found]), **look)
                    means.append((100 * found.mean, row + aside))
            if len(means) == 2:
                axes.plot(*zip(*means, strict=True), color="0.5", linewidth=0.9, zorder=2)
        axes.set_title(title)
        axes.set_xlim(-3, 103)
        axes.grid(axis="y", visible=False)
    panels[0].set_yticks(rows, editors)
    handles, labels = panels[0].get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    return drawn, (list(unique.values()), list(unique))


def rows_of(found: Iterable[Estimate], *, scale: float = 100) -> pd.DataFrame:
    """Estimates as ``marked`` takes them, in percent."""
    values = [(scale * e.mean, scale * e.low, scale * e.high) for e in found]
    return pd.DataFrame(values, columns=["mean", "low", "high"])


def _lowered(runs: Runs) -> str:
    """How often APP lowers AFF and ANF against hard answers, here and in the paper."""
    methods = [method for method in WITH_APP if method in METHODS]
    pairs = [(method, factor) for method in methods for factor in FACTORS]
    tests = [app_contrast(run, f"{m}+APP", f) for run in runs.values() for m, f in pairs]
    ours = [contrast.difference.mean < 0 for contrast in tests if contrast]
    paper = [
        means[f"{m}+APP"][factor] < means[m][factor]
        for dataset in DATASETS
        for _, means in paper_means(dataset)
        for m, factor in pairs
        if {m, f"{m}+APP"} <= set(means)
    ]
    return (
        f"With APP mean forgetting and noise are lower in {sum(ours)} of our {len(ours)} "
        f"comparisons and in {sum(paper)} of the paper's {len(paper)}"
    )
