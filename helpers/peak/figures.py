"""PEAK's figures, drawn from stored scores alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.peak.findings import (
    APP_COSTS,
    APP_REDUCES,
    VERDICTS,
    Runs,
    findings_of_runs,
    metrics_of_runs,
    verdict_counts,
)
from helpers.peak.metrics import (
    DEFAULT_FILTER,
    METRICS,
    AnswerFilter,
    additivity,
    metric_interval,
    probabilities_table,
)
from helpers.peak.tables import (
    DATASETS,
    PAPER_NAMES,
    caption_of,
    fewer_records,
    paper_setting,
    scores_of,
)
from helpers.results.archive import Run
from helpers.results.figure import figure
from helpers.results.notes import method_notes, training_notes
from helpers.results.statistics import LEVEL, Contrast, Estimate, paired, positive_interval
from helpers.results.style import (
    MARKERS,
    PALETTE,
    marked,
    with_caption,
    without_mathematics,
)
from helpers.results.text import corrected_verdicts

IN_TABLES = ("FT-L", "KN", "MEND", "ROME", "MEMIT")  # of the paper
MAIN_RUN = "smollm2-135m_peak-cf"
LISTS = {
    "correct": "correct answers $O$",
    "hard": "hard false $O_h$",
    "random": "random false $O_r$",
}
# The paper prints the LS that its authors' code computes.
_PAPER_ROWS = ("ES", "GS", "LS_authors", "AFF_hard", "ANF_hard")
_VERDICT_COLOURS: Any = dict(zip(VERDICTS, (PALETTE[0], "0.85", PALETTE[3]), strict=True))
ABOVE: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 2}
ACROSS: dict[str, Any] = {"across": True, "markersize": 5, "elinewidth": 0.9}
LIST_COLOURS = {"correct": PALETTE[2], "hard": PALETTE[3], "random": PALETTE[7]}
_together = partial(figure, of="peak", main=MAIN_RUN, together=True)
Answers = Mapping[str, tuple[float, float]]  # probability before and after the edit
NEW: Answers = {"Thailand (new)": (0.001, 0.6)}
CORRECT: Answers = {
    "Egypt": (0.3, 0.1),
    "Chad": (0.12, 0.03),
    "Libya": (0.05, 0.004),
}
FALSE: Answers = {"Laos": (0.02, 0.05), "Myanmar": (0.01, 0.002)}


@figure("01_one_record")
@figure("07_one_edit")
def answer_probabilities(answers: pd.DataFrame, *, title: str = "") -> Figure:
    """One record's answers before and after edits (PEAK, Figure 1 in numbers).

    ``answers`` is as ``edit_prompt_probabilities`` gives it; the title is the fact and the edit.
    """
    states = [column for column in answers.columns if column not in ("answer", "list")]
    fig = Figure(figsize=(6.6, 0.19 * len(answers) + 1.2))  # a panel draws in a thread
    axes = fig.subplots()
    rows = np.arange(len(answers))[::-1]
    for state, marker, color in zip(states, "o^sDv", PALETTE, strict=False):
        look: dict[str, Any] = {"marker": marker, "color": color, "edgecolor": "black"}
        look |= {"linewidth": 0.4, "s": 26, "label": state, "zorder": 3}
        axes.scatter(answers[state], rows, **look)
    _shade_lists(axes, answers.assign(row=rows))
    axes.set_yticks(rows, [without_mathematics(answer) for answer in answers["answer"]])
    axes.set_xscale("log")
    axes.set_ylim(-0.7, len(answers) - 0.3)
    axes.set_xlabel("probability (geometric mean over the answer's tokens, log scale)")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(states))
    return with_caption(fig, _lost_in_words(answers, states), title)


def _shade_lists(axes: Axes, answers: pd.DataFrame) -> None:
    """Each list of answers behind its rows, and its label at the right; ``row`` is an answer's height."""
    starts = answers["list"] != answers["list"].shift()
    for _, group in answers.groupby(starts.cumsum()):
        kind = group["list"].iloc[0]
        top = group["row"].max() + 0.5
        bottom = group["row"].min() - 0.5
        shade = "0.93" if kind in ("correct", "random") else "1.0"
        axes.axhspan(bottom, top, color=shade, zorder=0)
        label = {"target": "appended", **LISTS}[kind]
        middle = (top + bottom) / 2
        axes.text(1.01, middle, label, transform=axes.get_yaxis_transform(), va="center")


def _lost_in_words(answers: pd.DataFrame, states: Sequence[str]) -> str:
    """How many correct answers have less than a tenth of their first probability in each edited state."""
    correct = answers[answers["list"] == "correct"]
    lost = {state: (correct[state] < correct[states[0]] / 10).sum() for state in states[1:]}
    counted = ", ".join(f"{n} of {len(correct)} ({state})" for state, n in lost.items())
    return f"Correct answers that lose nine tenths or more: {counted}"


@figure("03_lists", of="peak")
def list_probabilities(run: Run, *, answer_filter: AnswerFilter = DEFAULT_FILTER) -> Figure:
    """Mean probability of O, O_h and O_r before and after each method (PEAK, Figure 2)."""
    scores = scores_of(run)
    tables = {name: probabilities_table(t, answer_filter) for name, t in scores.items()}
    fig, axes = plt.subplots(figsize=(6.6, 0.3 * len(tables) + 1.6))
    list_marks(axes, tables)
    tested = "title: paired tests, p < 0.05, not corrected"
    notes = "; ".join([tested, *method_notes(run), *fewer_records(run)])
    caption = caption_of(run, answer_filter=_if_changed(answer_filter))
    return with_caption(
        fig, _still_ahead_in_words(tables), f"{caption}\nMeans, 95 % intervals; {notes}"
    )


def _still_ahead_in_words(tables: Mapping[str, pd.DataFrame]) -> str:
    """After how many methods correct answers are more probable than hard false ones, where that is tested."""
    contrasts = [paired(t["hard_after"], t["correct_after"], "fraction") for t in tables.values()]
    if any(contrast.too_few_relations for contrast in contrasts):
        return f"No test by relation: the records are of {contrasts[0].relations} relations"
    ahead = sum(is_positive(contrast) for contrast in contrasts)
    after = f"After {ahead} of {len(tables)} methods"
    return f"{after} the correct answers are still more probable than the hard false ones"


@_together("03_paper")
def paper_against_ours(
    runs: Sequence[Run], *, answer_filter: AnswerFilter = DEFAULT_FILTER
) -> Figure:
    """Tables 3, 4 and 9 by editor, plain and with APP: the paper's models as bands, ours as intervals."""
    ordered = sorted(runs, key=_of_another_model)
    metrics = metrics_of_runs(ordered, answer_filter=answer_filter)
    ours = _methods_of_tables(metrics)
    fig, panels = plt.subplots(2, len(IN_TABLES), figsize=(9.2, 5.6), sharex=True, sharey=True)
    for dataset, panels_of_dataset in zip(DATASETS, panels, strict=True):
        _draw_dataset(panels_of_dataset, dataset, ours)
    titles = [METRICS[name].titled_symbol for name in _PAPER_ROWS]
    panels[0, 0].set_yticks(range(len(titles), 0, -1), titles)
    _legend_of_models(panels)
    words = "Title: paired tests by relation after Holm's correction, FT-M included"
    words += ", where there are eight relations or more"
    words += ". Bands: PEAK, Tables 3, 4 and 9, lowest to highest model"
    words += _ending(runs, answer_filter)
    caption = f"Means in percent, 95 % intervals, {_counts_of_records(ours)}. {words}"
    return with_caption(fig, _effect_of_app(metrics), caption)


def _methods_of_tables(runs: Runs) -> Runs:
    """Of each run the methods of the paper's tables, in their order."""
    methods = [f"{editor}{suffix}" for editor in IN_TABLES for suffix in ("", "+APP")]
    return {
        name: {method: metrics[method] for method in methods if method in metrics}
        for name, metrics in runs.items()
    }


def _effect_of_app(runs: Runs) -> str:
    """In how many comparisons by relation APP lowers damage, and success, in words."""
    holds: dict[str, list[bool]] = {APP_REDUCES: [], APP_COSTS: []}
    for evidence in findings_of_runs(runs).values():
        for item, verdict in zip(evidence, corrected_verdicts(evidence), strict=True):
            if item.finding in holds and not item.contrast.too_few_relations:
                holds[item.finding].append(verdict == "holds")
    damage, costs = holds[APP_REDUCES], holds[APP_COSTS]
    damaged = f"forgetting (AFF) or noise (ANF) in {sum(damage)} of our {len(damage)} comparisons"
    return f"APP lowers {damaged}, success (ES or GS) in {sum(costs)} of {len(costs)}"


def _draw_dataset(panels: Sequence[Axes], dataset: str, ours: Runs) -> None:
    """A data set's panels, one an editor: the paper's bands and the intervals of our models."""
    of_dataset = {name: metrics for name, metrics in ours.items() if dataset in name}
    printed = pd.concat(paper_setting("", dataset).values())
    for editor, axes in zip(IN_TABLES, panels, strict=True):
        for place, method in enumerate((editor, f"{editor}+APP")):
            theirs = printed[printed["method"] == PAPER_NAMES.get(method, method)]
            _paper_marks(axes, place, method, theirs, of_dataset)
        axes.axhline(2.5, color="0.8", linewidth=0.8)  # between success and damage
        axes.set_xlim(-3, 103)
        axes.grid(axis="y", visible=False)
        if dataset == DATASETS[0]:  # three lines above are for the legend, wider than a panel
            axes.set_title(f"\n\n\n{editor}")
    panels[0].set_ylabel(dataset.upper())


def _legend_of_models(panels: Any) -> None:
    """One legend above [data sets, editors] panels: the paper's models first, plain above with APP."""
    labelled = zip(*panels[0, 0].get_legend_handles_labels(), strict=True)
    entries = sorted(labelled, key=lambda entry: ("paper" not in entry[1], entry[1]))
    handles = [handle for handle, _ in entries]
    labels = [label for _, label in entries]
    legend = panels[0, 2].legend(
        handles,
        labels,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.13),
        ncols=len(entries) // 2,
        columnspacing=1,
    )
    legend.set_in_layout(False)


def _paper_marks(axes: Axes, place: int, method: str, theirs: pd.DataFrame, ours: Runs) -> None:
    """A method's band and intervals, a row a metric: plain ones (``place`` 0) above those with APP."""
    rows = np.arange(len(_PAPER_ROWS), 0, -1) + 0.2 - 0.4 * place
    suffix = ("plain", "with APP")[place]
    color = PALETTE[place]
    if len(theirs):
        ends = theirs.groupby("metric")["value"].agg(["min", "max"]).loc[[*_PAPER_ROWS]]
        band: dict[str, Any] = {"color": color, "alpha": 0.3, "linewidth": 6, "zorder": 1}
        low, high = ends["min"] - 0.7, ends["max"] + 0.7
        axes.hlines(rows, low, high, label=f"paper's models, {suffix}", **band)
    for number, ((model, _), metrics) in enumerate(ours.items()):
        if method in metrics:
            means = [metric_interval(metric, metrics[method][metric]) for metric in _PAPER_ROWS]
            look: dict[str, Any] = {**ACROSS, "fmt": MARKERS[number], "color": color}
            look |= {"label": f"{model}, {suffix}", "markersize": 4, "capsize": 0, "clip_on": False}
            marked(axes, rows + 0.05 * (len(ours) - 1 - 2 * number), rows_of(means), **look)


@_together("03_verdicts")
def verdict_shares(runs: Sequence[Run], *, answer_filter: AnswerFilter = DEFAULT_FILTER) -> Figure:
    """The paper's findings on our models: the share of tests by verdict, a panel a run with tests."""
    ordered = sorted(runs, key=_of_another_model)
    ours = metrics_of_runs(ordered, answer_filter=answer_filter)
    counts = verdict_counts(ours)
    if counts.empty:  # no run has enough relations
        counts = verdict_counts(ours, with_undecided=True)
    findings = _from_least_to_most_held(counts)
    tested_runs = counts.index.unique("run")
    size = (3.2 + 1.9 * len(tested_runs), 0.32 * len(findings) + 1.2)
    fig, panels = plt.subplots(1, len(tested_runs), figsize=size, sharey=True, squeeze=False)
    for axes, run in zip(panels[0], tested_runs, strict=True):
        of_run = counts[counts.index.get_level_values("run") == run].droplevel("run")
        _draw_verdicts(axes, run, of_run.reindex(findings.index))
    panels[0, 0].legend(loc="lower right", bbox_to_anchor=(-0.1, 1.0))
    tested = {key: metrics for key, metrics in ours.items() if ", ".join(key) in tested_runs}
    words = "Tests by relation that hold, of all, at p < 0.05 after Holm's correction; –: none"
    caption = f"{words}; {_counts_of_records(tested)}{_ending(runs, answer_filter)}"
    return with_caption(fig, _held_in_words(findings), caption)


def _from_least_to_most_held(counts: pd.DataFrame) -> pd.DataFrame:
    """The tests of each finding in all runs: how many hold, and of how many."""
    of_finding = counts.groupby("finding", sort=False).sum(numeric_only=True)
    tests = pd.DataFrame({"holds": of_finding["holds"], "tests": of_finding.sum(axis=1)})
    shares = (tests["holds"] / tests["tests"]).sort_values(kind="stable")
    return tests.loc[shares.index]


def _held_in_words(findings: pd.DataFrame) -> str:
    """How many findings hold in all tests, and which holds least: the first."""
    in_all = (findings["holds"] == findings["tests"]).sum()
    least = findings.iloc[0]
    least_held = f"“{least.name}” holds least ({least['holds']:.0f} of {least['tests']:.0f} tests)"
    return f"All tests hold for {in_all} of the paper's {len(findings)} findings; {least_held}"


def _draw_verdicts(axes: Axes, run: str, counts: pd.DataFrame) -> None:
    """A run's bars, one a finding, each divided by verdict; beside it how many tests hold, of how many."""
    tests = counts.sum(axis=1)
    shares = counts.div(tests, axis=0)
    shares.plot.barh(ax=axes, color=_VERDICT_COLOURS, stacked=True, width=0.75, legend=False)
    for row, (holds, n) in enumerate(zip(counts["holds"], tests, strict=True)):
        axes.text(1.05, row, f"{holds:.0f} of {n:.0f}" if n else "–", va="center", fontsize=8)
    model, dataset = run.split(", ")
    axes.set(title=f"{model}\n{dataset.upper()}", xlim=(0, 1.5), xticks=[], ylabel="")
    axes.grid(visible=False)


def _if_changed(answer_filter: AnswerFilter) -> AnswerFilter | None:
    return None if answer_filter == DEFAULT_FILTER else answer_filter


def _ending(runs: Iterable[Run], answer_filter: AnswerFilter) -> str:
    """A caption's last words on several runs: an undertrained method, a filter other than the default."""
    is_undertrained = any(training_notes(run) for run in runs)
    changed = _if_changed(answer_filter)
    kept = f". Answers kept by {changed}" if changed else ""
    return (". Our MEND: undertrained networks" if is_undertrained else "") + kept


def _of_another_model(run: Run) -> bool:
    return run.about.source["model"] not in MAIN_RUN


def _counts_of_records(ours: Runs) -> str:
    measured = pd.concat(t[[*_PAPER_ROWS]].count() for each in ours.values() for t in each.values())
    return f"n = {measured.min()} to {measured.max()} measurable records"


def worked() -> dict[str, float]:
    """RFF, RNF, CPC, FPC, AFF and ANF of the made-up fact."""
    correct, false = (np.log(list(answers.values())).T for answers in (CORRECT, FALSE))
    return additivity(correct, false)


@figure("03_reading", alone=True)
def pictures() -> Figure:
    """Success, forgetting and noise of one edit, a panel each."""
    factors = worked()
    weakest = min(after for _, after in CORRECT.values()), "weakest correct\nanswer after"
    strongest = max(after for _, after in FALSE.values()), "strongest false\nanswer after"
    fig, (success, forgetting, noise) = plt.subplots(1, 3, figsize=(7.2, 2.3), sharex=True)
    title = "ES = 1: the new answer\nhas joined the list"
    _moved(success, title, {**NEW, **CORRECT}, *weakest)
    title = f"AFF = {factors['AFF']:.2f}: correct answers\nfall, most below a false one"
    _moved(forgetting, title, CORRECT, *strongest)
    title = f"ANF = {factors['ANF']:.2f}: a false answer\nrises above a correct one"
    _moved(noise, title, FALSE, *weakest)
    finding = "An edit can succeed while correct answers fall and false ones rise"
    return with_caption(
        fig, finding, "Made-up probabilities, log scale: ○ before the edit, ● after"
    )


def _moved(axes: Axes, title: str, answers: Answers, level: float, words: str) -> None:
    rows = np.arange(len(answers))[::-1]
    for row, (before, after) in zip(rows, answers.values(), strict=True):
        axes.plot(before, row, "o", mfc="none", color=PALETTE[0])
        axes.plot(after, row, "o", color=PALETTE[0])
        arrow = {"arrowstyle": "->", "color": PALETTE[0]}
        axes.annotate("", (after, row), (before, row), arrowprops=arrow)
    axes.axvline(level, color=PALETTE[3], linestyle="--", linewidth=1)
    axes.text(level, -0.75, f" {words}", color=PALETTE[3], fontsize=7, va="center")
    axes.set_title(title, fontsize=9)
    axes.set(xscale="log", xlim=(5e-4, 1.0), ylim=(-1.2, len(answers) - 0.6))
    axes.set_yticks(rows, list(answers))
    axes.grid(axis="y", visible=False)


def is_positive(contrast: Contrast) -> bool:
    """Whether the second side is higher at p < 0.05."""
    return contrast.p_value < LEVEL and contrast.difference.mean > 0


def rows_of(estimates: Iterable[Estimate], *, scale: float = 100) -> pd.DataFrame:
    """Estimates as ``marked`` takes them, in percent."""
    values = [(scale * e.mean, scale * e.low, scale * e.high) for e in estimates]
    return pd.DataFrame(values, columns=["mean", "low", "high"])


def list_marks(axes: Axes, tables: Mapping[str, pd.DataFrame]) -> None:
    """Mean probability of each list before, and after each state from the top, on a log axis."""
    states = {"before": (max(tables.values(), key=len), "before")}
    states |= {name: (table, "after") for name, table in tables.items()}
    rows = np.arange(len(states))[::-1]
    for place, (name, label) in enumerate(LISTS.items()):
        columns = [table[f"{name}_{moment}"] for table, moment in states.values()]
        found = [positive_interval(column) for column in columns]
        look: Any = {"fmt": MARKERS[place], "color": LIST_COLOURS[name], "label": label}
        marked(axes, rows + 0.2 - 0.2 * place, rows_of(found, scale=1), **ACROSS, **look)
    axes.set_yticks(rows, [*states])
    axes.set(xscale="log", xlabel="mean probability (log scale)")
    axes.set_ylim(-0.6, len(states) - 0.4)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, columnspacing=0.8)
    axes.grid(axis="y", visible=False)
