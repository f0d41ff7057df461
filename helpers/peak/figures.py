"""PEAK's figures, drawn from stored scores alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from helpers.editing.editors import EDITORS, method_named
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
    AnswerFilter,
    additivity,
    keep_answers,
    metric_interval,
    probabilities_table,
)
from helpers.peak.similarity import COSINES, binned_losses, losses_of_run, slopes
from helpers.peak.tables import (
    DATASETS,
    PAPER_NAMES,
    data_of,
    fewer_records,
    paper_setting,
    scores_of,
)
from helpers.results.archive import Run, archive
from helpers.results.figure import Option, figure
from helpers.results.looks import method_line, scatter_look
from helpers.results.notes import method_notes, training_notes
from helpers.results.statistics import LEVEL, Contrast, Estimate, holm, positive_interval
from helpers.results.style import (
    BEFORE_LOOK,
    CONDITION_COLOURS,
    PALETTE,
    condition_look,
    draw_intervals,
    model_look,
    with_caption,
    without_mathematics,
)
from helpers.results.text import corrected_verdicts, footer

IN_TABLES = ("FT-L", "KN", "MEND", "ROME", "MEMIT")  # of the paper
WITH_APP_IN_TABLES = (
    "FT-L",
    "MEND",
    "ROME",
    "MEMIT",
)  # of these, the editors that it combines with APP
MAIN_RUN = "smollm2-135m_peak-cf"
LIST_LABELS = {
    "correct": "correct answers $O$",
    "hard": "hard false $O_h$",
    "random": "random false $O_r$",
}
SHOWN_LISTS = ("target", *LIST_LABELS)  # of one record's answers, from above
_PAPER = "paper:"
_SLOPE_METRICS = {
    "AFF_hard": "forgetting\n(AFF, lower is better)",
    "ANF_hard": "noise\n(ANF, lower is better)",
    "GS": "paraphrases\n(GS, higher is better)",
}
_VERDICT_COLOURS: Any = dict(zip(VERDICTS, (CONDITION_COLOURS[0], "0.85", PALETTE[3]), strict=True))
ABOVE: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 2}
ACROSS: dict[str, Any] = {"across": True, "markersize": 5, "elinewidth": 0.9}
_together = partial(figure, of="peak", main=MAIN_RUN, together=True)
Answers = Mapping[str, tuple[float, float]]  # probability before and after the edit
NEW: Answers = {"Thailand (new)": (0.001, 0.6)}
CORRECT: Answers = {
    "Egypt": (0.3, 0.1),
    "Chad": (0.12, 0.03),
    "Libya": (0.05, 0.004),
}
FALSE: Answers = {"Laos": (0.02, 0.05), "Myanmar": (0.01, 0.002)}


@figure("01_where")
def where_an_edit_acts(
    tokens: Sequence[str], subject_last: int, answer: str, *, layer: int, layers: int
) -> Figure:
    """Where an edit of one layer acts: at the subject's last token, from where attention carries it on.

    A column for each of the edit prompt's ``tokens``, a row for some of the model's ``layers``.
    """
    last_layer = layers - 1
    shown_layers = sorted({0, layer, (layer + last_layer) // 2, last_layer})
    edited_row = shown_layers.index(layer)
    fig = Figure(figsize=(7.2, 0.5 * len(shown_layers) + 1.4))
    axes = fig.subplots()
    for row in range(len(shown_layers)):
        axes.scatter(range(len(tokens)), [row] * len(tokens), s=60, color="0.85", zorder=2)
    answer_column = len(tokens) - 1
    reached_columns = range(subject_last, len(tokens))
    for row in range(edited_row + 1, len(shown_layers)):
        rows = [row] * len(reached_columns)
        axes.scatter(reached_columns, rows, s=60, color=PALETTE[1], zorder=3)
    edited_style: dict[str, Any] = {"marker": "s", "s": 130, "color": PALETTE[3], "zorder": 4}
    axes.scatter([subject_last], [edited_row], **edited_style)
    arrow = {"arrowstyle": "-|>", "color": PALETTE[1], "shrinkA": 7, "shrinkB": 6}
    for row in range(edited_row, len(shown_layers) - 1):
        for target_column in {subject_last, answer_column}:
            start = (subject_last, row)
            axes.annotate("", (target_column, row + 1), start, arrowprops=arrow, zorder=1)
    answer_place = (answer_column + 0.35, len(shown_layers) - 1)
    axes.text(*answer_place, f"→ {answer}", va="center", color=PALETTE[3])
    axes.set_xticks(range(len(tokens)), [without_mathematics(token) for token in tokens])
    axes.set_yticks(range(len(shown_layers)), [f"layer {number}" for number in shown_layers])
    axes.set(xlim=(-0.5, len(tokens) + 1.2), ylim=(-0.5, len(shown_layers) - 0.5))
    axes.grid(visible=False)
    finding = (
        f"ROME changes one matrix of layer {layer}, where it reads “{tokens[subject_last].strip()}”"
    )
    footer = (
        f"square: the MLP that is changed; orange: states that the change reaches; {len(shown_layers)} of"
        f" {layers} layers are drawn"
    )
    return with_caption(fig, finding, footer)


@figure("01_one_record")
def answer_probabilities(
    answers: pd.DataFrame, *, lists: Sequence[str] = SHOWN_LISTS, title: str = ""
) -> Figure:
    """One record's answers before and after edits, each list by its probability before (PEAK, Figure 1).

    ``answers`` is as ``edit_prompt_probabilities`` gives it, ``lists`` those of its lists that are drawn;
    the title is the fact and the edit. Pale marks are answers that the filter omits
    (``keep_answers``): the unedited model does not rank them as it should.
    """
    states = [column for column in answers.columns if column not in ("answer", "list")]
    counts = _counted_answers(answers, states[0])
    list_number = answers["list"].map(SHOWN_LISTS.index)
    shown_answers = answers.assign(counts=counts, list_number=list_number)
    shown_answers = shown_answers[shown_answers["list"].isin(lists)].sort_values(
        ["list_number", states[0]], ascending=[True, False], kind="stable"
    )
    shown_answers = shown_answers.assign(row=np.arange(len(shown_answers))[::-1])
    fig = Figure(figsize=(6.6, 0.19 * len(shown_answers) + 1.3))  # a panel draws in a thread
    axes = fig.subplots()
    for number, state in enumerate(states):
        _mark_answers(axes, shown_answers, state, _look_of_state(state, number))
    _shade_lists(axes, shown_answers)
    axes.set_yticks(
        shown_answers["row"], [without_mathematics(answer) for answer in shown_answers["answer"]]
    )
    axes.set_xscale("log")
    axes.set_ylim(-0.7, len(shown_answers) - 0.3)
    axes.set_xlabel("probability (geometric mean over the answer's tokens, log scale)")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(states))
    all_count = shown_answers["counts"].all()
    note = "" if all_count else "; pale: misranked by the unedited model, not counted"
    return with_caption(fig, _lost_in_words(shown_answers, states), f"{title}{note}")


def _counted_answers(answers: pd.DataFrame, state_before: str) -> pd.Series:
    """Whether each answer counts in PEAK's measures, by the probabilities before the edit."""
    indices_by_list = answers.reset_index(drop=True).groupby("list").groups
    probability = answers[state_before].to_numpy()
    lists = {name: probability[indices] for name, indices in indices_by_list.items()}
    nothing = np.empty(0)
    kept_answers = keep_answers(
        *(lists.get(name, nothing) for name in ("correct", "hard", "random"))
    )
    counts = np.ones(len(answers), dtype=bool)
    for name, kept_of_list in kept_answers._asdict().items():
        if name in indices_by_list:
            indices = np.asarray(indices_by_list[name])
            counts[indices] = False
            counts[indices[kept_of_list]] = True
    return pd.Series(counts, index=answers.index)


def _look_of_state(state: str, number: int) -> dict[str, Any]:
    """Marks of a state: before the edit, after a method's edit, or another one (number 1, …)."""
    if number == 0:
        return BEFORE_LOOK
    label, _, with_app = state.partition("+")
    name_of_label = {editor.label: name for name, editor in EDITORS.items()}
    if label in name_of_label and with_app in ("", "APP"):
        return scatter_look(f"{name_of_label[label]}{'+app' if with_app else ''}")
    look = condition_look(number - 1)
    return {"marker": look["fmt"], "color": look["color"]}


def _mark_answers(axes: Axes, answers: pd.DataFrame, state: str, look: Mapping[str, Any]) -> None:
    """A state's probabilities, pale where the answer does not count."""
    for of_kind, alpha, label in (
        (answers[answers["counts"]], 1.0, state),
        (answers[~answers["counts"]], 0.3, None),
    ):
        axes.scatter(
            of_kind[state], of_kind["row"], label=label, alpha=alpha, s=26, zorder=3, **look
        )


def _shade_lists(axes: Axes, answers: pd.DataFrame) -> None:
    """Each list of answers behind its rows, and its label at the right; ``row`` is an answer's height."""
    starts = answers["list"] != answers["list"].shift()
    for _, answers_of_list in answers.groupby(starts.cumsum()):
        list_name = answers_of_list["list"].iloc[0]
        top = answers_of_list["row"].max() + 0.5
        bottom = answers_of_list["row"].min() - 0.5
        shade = "0.93" if list_name in ("correct", "random") else "1.0"
        axes.axhspan(bottom, top, color=shade, zorder=0)
        list_label = {"target": "new answer", **LIST_LABELS}[list_name]
        middle = (top + bottom) / 2
        axes.text(1.01, middle, list_label, transform=axes.get_yaxis_transform(), va="center")


def _lost_in_words(answers: pd.DataFrame, states: Sequence[str]) -> str:
    """How many correct answers that count have less than a tenth of their probability after each edit."""
    correct = answers[(answers["list"] == "correct") & answers["counts"]]
    lost_by_state = {
        state: (correct[state] < correct[states[0]] / 10).sum() for state in states[1:]
    }
    counts_in_words = [
        f"{count} of {len(correct)} after {state}" for state, count in lost_by_state.items()
    ]
    return f"Counted correct answers that lose nine tenths of their probability: {', '.join(counts_in_words)}"


def _methods_of_editor(run: Run, editor: str) -> list[str]:
    """A run's tables of one editor, plain and with APP."""
    label = EDITORS[editor].label
    return [name for name in run.tables if name.partition("+")[0] == label]


def _editors_of_run(run: Run) -> list[str]:
    return [editor for editor in EDITORS if _methods_of_editor(run, editor)]


def _methods_of_papers_tables(run: Run) -> list[str]:
    """The paper's editors with and without APP, in the order of its tables; all where it has none."""
    in_order = [f"{editor}{suffix}" for editor in IN_TABLES for suffix in ("", "+APP")]
    return [method for method in in_order if method in run.tables] or list(run.tables)


@figure("03_lists", of="peak", main=MAIN_RUN, options={"editor": Option("editor", _editors_of_run)})
def list_probabilities(
    run: Run, *, answer_filter: AnswerFilter = DEFAULT_FILTER, editor: str = ""
) -> Figure:
    """Mean probability of O, O_h and O_r before and after each method (PEAK, Figure 2).

    ``editor`` is the one whose methods are shown; empty: those of the paper.
    """
    run = run.only(_methods_of_editor(run, editor) if editor else _methods_of_papers_tables(run))
    scores = scores_of(run)
    probabilities_by_method = {
        name: probabilities_table(scores_of_method, answer_filter)
        for name, scores_of_method in scores.items()
    }
    fig, axes = plt.subplots(figsize=(6.6, 0.3 * len(probabilities_by_method) + 1.6))
    draw_list_probabilities(axes, probabilities_by_method)
    notes = (
        "geometric means, 95 % intervals, not tested",
        *_filter_in_words(answer_filter),
        *method_notes(run),
        *fewer_records(run),
    )
    finding = _reversal_in_words(probabilities_by_method)
    return with_caption(fig, finding, footer([run], data_of(run), *notes))


def _reversal_in_words(probabilities_by_method: Mapping[str, pd.DataFrame]) -> str:
    """After which methods the hard false answers have a higher mean than the correct ones."""
    reversed_methods = [
        name
        for name, table in probabilities_by_method.items()
        if positive_interval(table["hard_after"]).mean
        > positive_interval(table["correct_after"]).mean
    ]
    if not reversed_methods:
        return "After every method the correct answers are on average still more probable than false ones"
    plain_methods = [name for name in probabilities_by_method if not name.endswith("+APP")]
    with_app = [name for name in probabilities_by_method if name.endswith("+APP")]
    reversed_words = " and ".join(name for name in plain_methods if name in reversed_methods)
    kept_words = ""
    if with_app and not set(with_app) & set(reversed_methods):
        kept_words = "; with APP it is not"
    elif with_app:
        reversed_with_app = [name for name in with_app if name in reversed_methods]
        kept_words = f", and after {' and '.join(reversed_with_app)}"
    return (
        "The mean of the hard false answers is above that of the correct ones after"
        f" {reversed_words or 'no plain editor'}{kept_words}"
    )


@_together("03_paper")
def paper_against_ours(
    runs: Sequence[Run], *, answer_filter: AnswerFilter = DEFAULT_FILTER
) -> Figure:
    """What APP changes, plain → with APP, a column an editor: our models and the paper's (Tables 3 and 9)."""
    runs_in_order = sorted(runs, key=_of_another_model)
    metrics_by_run = metrics_of_runs(runs_in_order, answer_filter=answer_filter)
    shown_dataset = DATASETS[0] if any(DATASETS[0] in key for key in metrics_by_run) else ""
    our_metrics = {
        run_key: metrics
        for run_key, metrics in metrics_by_run.items()
        if shown_dataset in ("", run_key[1])
    }
    dataset = next(iter(our_metrics))[1]
    size = (8.4, 1.75 * len(_SLOPE_METRICS) + 1.5)
    fig, panels = plt.subplots(
        len(_SLOPE_METRICS), len(WITH_APP_IN_TABLES), figsize=size, sharex=True, sharey=True
    )
    for metric, panels_of_metric in zip(_SLOPE_METRICS, panels, strict=True):
        for editor, axes in zip(WITH_APP_IN_TABLES, panels_of_metric, strict=True):
            _draw_slopes(axes, metric, editor, dataset, our_metrics)
        panels_of_metric[0].set_ylabel(_SLOPE_METRICS[metric], fontsize=9)
    for editor, axes in zip(WITH_APP_IN_TABLES, panels[0], strict=True):
        axes.set_title(editor)
    _legend_of_slopes(fig, panels)
    caption = footer(
        runs,
        f"{dataset}, {_counts_of_records(our_metrics)}",
        "percent, 95 % intervals",
        _effect_of_app(metrics_by_run),
        *_missing_in_words(our_metrics),
        *_shared_notes(runs, answer_filter),
    )
    return with_caption(fig, _slopes_in_words(our_metrics), caption)


def _slopes_in_words(our_metrics: Runs) -> str:
    """Whether APP lowers the means of forgetting and noise everywhere."""
    changes: dict[str, list[float]] = {"AFF_hard": [], "ANF_hard": []}
    for metrics in our_metrics.values():
        for editor in WITH_APP_IN_TABLES:
            if {editor, f"{editor}+APP"} <= set(metrics):
                for metric, changes_of_metric in changes.items():
                    both = pd.concat(
                        [metrics[editor][metric], metrics[f"{editor}+APP"][metric]],
                        axis=1,
                        join="inner",
                    ).dropna()
                    changes_of_metric.append(float((both.iloc[:, 1] - both.iloc[:, 0]).mean()))
    lowers_damage = max(changes["AFF_hard"] + changes["ANF_hard"], default=1.0) < 0
    damage_words = (
        "With APP every editor forgets less and adds less noise on average"
        if lowers_damage
        else "With APP most editors forget less and add less noise on average"
    )
    return damage_words


def _missing_in_words(our_metrics: Runs) -> list[str]:
    """Which models have no edits of an editor that has a column."""
    missing = {
        model: [
            editor for editor in WITH_APP_IN_TABLES if not {editor, f"{editor}+APP"} <= set(metrics)
        ]
        for (model, _), metrics in our_metrics.items()
    }
    return [
        f"no {' and '.join(editors)} with APP: {model}"
        for model, editors in missing.items()
        if editors
    ]


def _effect_of_app(runs: Runs) -> str:
    """In how many comparisons by relation of the drawn editors APP lowers damage, and success, in words."""
    holds_by_finding: dict[str, list[bool]] = {APP_REDUCES: [], APP_COSTS: []}
    for evidence in findings_of_runs(runs).values():
        for evidence_of_test, verdict in zip(evidence, corrected_verdicts(evidence), strict=True):
            finding = evidence_of_test.finding
            if evidence_of_test.higher.partition("+")[0] not in WITH_APP_IN_TABLES:
                continue
            if finding in holds_by_finding and not evidence_of_test.contrast.too_few_relations:
                holds_by_finding[finding].append(verdict == "holds")
    less_damage = holds_by_finding[APP_REDUCES]
    less_success = holds_by_finding[APP_COSTS]
    return (
        f"lower with APP (Holm): {sum(less_damage)} of {len(less_damage)} tests of AFF and ANF,"
        f" {sum(less_success)} of {len(less_success)} of ES and GS"
    )


def _draw_slopes(axes: Axes, metric: str, editor: str, dataset: str, our_metrics: Runs) -> None:
    """An editor's mean without and with APP, a line a model: the paper's in grey below ours."""
    methods = (editor, f"{editor}+APP")
    for printed in paper_setting("", dataset).values():
        value_of = printed.set_index(["method", "metric"])["value"]
        names_in_paper = [(PAPER_NAMES.get(method, method), metric) for method in methods]
        if set(names_in_paper) <= set(value_of.index):
            ends = [float(value_of[name]) for name in names_in_paper]
            axes.plot(
                (0, 1),
                ends,
                ":",
                color="0.5",
                linewidth=1.2,
                zorder=1,
                label=_models_of_paper(dataset),
            )
    for model_index, ((model, _), metrics) in enumerate(our_metrics.items()):
        if set(methods) <= set(metrics):
            estimates = [metric_interval(metric, metrics[method][metric]) for method in methods]
            aside = 0.05 * (model_index - (len(our_metrics) - 1) / 2)
            draw_intervals(
                axes,
                np.array([0, 1]) + aside,
                rows_of_estimates(estimates),
                linestyle="-",
                label=model,
                markersize=4.5,
                **model_look(model_index),
            )
    axes.set(xlim=(-0.3, 1.3), ylim=(-3, 103), xticks=(0, 1), xticklabels=("plain", "APP"))
    axes.grid(axis="x", visible=False)


def _models_of_paper(dataset: str) -> str:
    """The models of the paper's tables, for a legend."""
    tables_of_paper = paper_setting("", dataset).values()
    names = dict.fromkeys(str(printed["model"].iloc[0]) for printed in tables_of_paper)
    return ",\n".join([f"{_PAPER} {next(iter(names))}", *list(names)[1:]])


def _legend_of_slopes(fig: Figure, panels: Any) -> None:
    """One legend at the right of [metrics, editors] panels: each model once, the paper's last."""
    handles: dict[str, Any] = {}
    for axes in panels.flat:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    in_order = sorted(handles, key=lambda label: label.startswith(_PAPER))
    fig.legend([handles[label] for label in in_order], in_order, loc="outside right center")


@_together("03_verdicts")
def verdict_shares(runs: Sequence[Run], *, answer_filter: AnswerFilter = DEFAULT_FILTER) -> Figure:
    """The paper's findings on our models: the share of tests by verdict, a panel a run with tests."""
    runs_in_order = sorted(runs, key=_of_another_model)
    metrics_by_run = metrics_of_runs(runs_in_order, answer_filter=answer_filter)
    verdicts_by_run = verdict_counts(metrics_by_run)
    if verdicts_by_run.empty:  # no run has enough relations
        verdicts_by_run = verdict_counts(metrics_by_run, with_undecided=True)
    findings = _from_least_to_most_held(verdicts_by_run)
    tested_runs = verdicts_by_run.index.unique("run")
    size = (3.2 + 1.9 * len(tested_runs), 0.32 * len(findings) + 1.2)
    fig, panels = plt.subplots(1, len(tested_runs), figsize=size, sharey=True, squeeze=False)
    for axes, run_name in zip(panels[0], tested_runs, strict=True):
        counts_of_run = verdicts_by_run[
            verdicts_by_run.index.get_level_values("run") == run_name
        ].droplevel("run")
        model, dataset = run_name.split(", ")
        tables = metrics_by_run[model, dataset].values()
        most_records = max(int(table["AFF_hard"].notna().sum()) for table in tables)
        axes.set_title(f"{model}\n{dataset.upper()}, n = {most_records}")
        _draw_verdicts(axes, counts_of_run.reindex(findings.index))
    is_given = verdicts_by_run.sum(numeric_only=True) > 0
    bars, verdicts = panels[0, 0].get_legend_handles_labels()
    given = [index for index, verdict in enumerate(verdicts) if is_given[verdict]]
    panels[0, 0].legend(
        [bars[index] for index in given],
        [verdicts[index] for index in given],
        loc="lower right",
        bbox_to_anchor=(-0.1, 1.0),
    )
    tests = (
        "tests by relation, p < 0.05 after Holm's correction: how many hold, of how many (–: none)"
    )
    notes = (tests, *_shared_notes(runs, answer_filter))
    caption = footer(runs, "n: records with AFF", *notes)
    return with_caption(fig, _held_in_words(verdicts_by_run), caption)


def _from_least_to_most_held(counts: pd.DataFrame) -> pd.DataFrame:
    """The tests of each finding in all runs: how many hold, and of how many."""
    of_finding = counts.groupby("finding", sort=False).sum(numeric_only=True)
    tests = pd.DataFrame({"holds": of_finding["holds"], "tests": of_finding.sum(axis=1)})
    shares_held = (tests["holds"] / tests["tests"]).sort_values(kind="stable")
    return tests.loc[shares_held.index]


def _held_in_words(counts: pd.DataFrame) -> str:
    """How many tests hold, and whether any is reversed."""
    tests = int(counts.to_numpy().sum())
    held = int(counts["holds"].sum())
    reversed_count = int(counts["reversed"].sum())
    reversed_words = f"{reversed_count} reversed" if reversed_count else "none is reversed"
    return (
        f"The paper's findings hold in {held} of {tests} tests on our models; {reversed_words}, the rest is"
        " inconclusive"
    )


def _draw_verdicts(axes: Axes, counts: pd.DataFrame) -> None:
    """A run's bars, one a finding, each divided by verdict; next to it how many tests hold, of how many."""
    tests = counts.sum(axis=1)
    shares = counts.div(tests, axis=0)
    shares.plot.barh(ax=axes, color=_VERDICT_COLOURS, stacked=True, width=0.75, legend=False)
    for height, (holds, test_count) in enumerate(zip(counts["holds"], tests, strict=True)):
        count_words = f"{holds:.0f} of {test_count:.0f}" if test_count else "–"
        axes.text(1.05, height, count_words, va="center", fontsize=8)
    axes.set(xlim=(0, 1.5), xticks=[], ylabel="")
    axes.set_xlabel("share of the tests", x=1 / 3, fontsize=8)
    axes.grid(visible=False)


def _filter_in_words(answer_filter: AnswerFilter) -> list[str]:
    return [] if answer_filter == DEFAULT_FILTER else [f"answers kept by {answer_filter}"]


def _shared_notes(runs: Iterable[Run], answer_filter: AnswerFilter) -> list[str]:
    """What a footer states of several runs: an undertrained method, a filter other than the default."""
    is_undertrained = any(training_notes(run) for run in runs)
    training = ["MEND: undertrained"] if is_undertrained else []
    return [*training, *_filter_in_words(answer_filter)]


def _of_another_model(run: Run) -> bool:
    return run.about.source["model"] not in MAIN_RUN


def _counts_of_records(our_metrics: Runs) -> str:
    measured_counts = pd.concat(
        table[[*_SLOPE_METRICS]].count()
        for metrics in our_metrics.values()
        for table in metrics.values()
    )
    return f"n = {measured_counts.min()} to {measured_counts.max()} records"


def worked() -> dict[str, float]:
    """RFF, RNF, CPC, FPC, AFF and ANF of the made-up fact."""
    correct = np.log(list(CORRECT.values())).T  # [2, answers]
    false = np.log(list(FALSE.values())).T
    return additivity(correct, false)


@figure("03_reading", alone=True)
def pictures() -> Figure:
    """Success, forgetting and noise of one edit, a panel each."""
    fig, panels = plt.subplots(1, 3, figsize=(7.2, 2.3), sharex=True)
    for axes, picture in zip(panels, _worked_pictures(), strict=True):
        _draw_picture(axes, picture)
    finding = "An edit can succeed while correct answers fall and false ones rise"
    caption = "Made-up probabilities: ○ before the edit, ● after"
    return with_caption(fig, finding, caption)


@dataclass(frozen=True)
class _Picture:
    """Answers of the made-up fact, and the probability after the edit that they are compared with."""

    title: str
    answers: Answers
    level: float
    level_words: str


def _worked_pictures() -> tuple[_Picture, _Picture, _Picture]:
    """What success, forgetting and noise look at in the made-up fact."""
    factors = worked()
    weakest_correct = min(after for _, after in CORRECT.values())
    weakest_words = "weakest correct\nanswer after"
    strongest_false = max(after for _, after in FALSE.values())
    strongest_words = "strongest false\nanswer after"
    es_title = "success (ES) = 1:\nthe new answer joins the list"
    aff_title = f"forgetting (AFF) = {factors['AFF']:.2f}:\nmost fall below a false one"
    anf_title = f"noise (ANF) = {factors['ANF']:.2f}:\na false answer rises"
    return (
        _Picture(es_title, {**NEW, **CORRECT}, weakest_correct, weakest_words),
        _Picture(aff_title, CORRECT, strongest_false, strongest_words),
        _Picture(anf_title, FALSE, weakest_correct, weakest_words),
    )


def _draw_picture(axes: Axes, picture: _Picture) -> None:
    """An arrow from before to after the edit for each answer, and a line at the level."""
    answer_count = len(picture.answers)
    heights = np.arange(answer_count)[::-1]
    colour = CONDITION_COLOURS[0]
    arrow = {"arrowstyle": "->", "color": colour}
    for height, (before, after) in zip(heights, picture.answers.values(), strict=True):
        axes.plot(before, height, "o", mfc="white", color=colour)
        axes.plot(after, height, "o", color=colour)
        axes.annotate("", (after, height), (before, height), arrowprops=arrow)
    axes.axvline(picture.level, color=PALETTE[3], linestyle="--", linewidth=1)
    label_style: dict[str, Any] = {"color": PALETTE[3], "fontsize": 7, "va": "center"}
    is_at_right = picture.level > 0.02  # of the panel: its words end before the frame
    aside, side = (0.9, "right") if is_at_right else (1.1, "left")
    axes.text(aside * picture.level, -0.75, picture.level_words, ha=side, **label_style)
    axes.set_title(picture.title, fontsize=8)
    axes.set_xlabel("probability (log scale)", fontsize=8)
    axes.set(xscale="log", xlim=(5e-4, 1.0), ylim=(-1.2, answer_count - 0.6))
    axes.set_yticks(heights, list(picture.answers))
    axes.grid(axis="y", visible=False)


def is_positive(contrast: Contrast) -> bool:
    """Whether the second side is higher at p < 0.05."""
    return contrast.p_value < LEVEL and contrast.difference.mean > 0


def rows_of_estimates(estimates: Iterable[Estimate], *, scale: float = 100) -> pd.DataFrame:
    """Estimates as ``draw_intervals`` takes them, in percent."""
    means_and_ends = [
        (scale * estimate.mean, scale * estimate.low, scale * estimate.high)
        for estimate in estimates
    ]
    return pd.DataFrame(means_and_ends, columns=["mean", "low", "high"])


def draw_list_probabilities(axes: Axes, probabilities_by_state: Mapping[str, pd.DataFrame]) -> None:
    """Mean probability of each list before, and after each state from the top, on a log axis."""
    table_and_moment = {"before": (max(probabilities_by_state.values(), key=len), "before")}
    table_and_moment |= {
        list_name: (table, "after") for list_name, table in probabilities_by_state.items()
    }
    heights = np.arange(len(table_and_moment))[::-1]
    for list_index, (list_name, list_label) in enumerate(LIST_LABELS.items()):
        columns = [table[f"{list_name}_{moment}"] for table, moment in table_and_moment.values()]
        intervals = [positive_interval(column) for column in columns]
        mark_style: Any = {
            "label": list_label,
            **condition_look(list_index),
        }
        heights_of_list = heights + 0.2 - 0.2 * list_index
        draw_intervals(
            axes, heights_of_list, rows_of_estimates(intervals, scale=1), **ACROSS, **mark_style
        )
    axes.set_yticks(heights, [*table_and_moment])
    axes.set(xscale="log", xlabel="mean probability (log scale)")
    axes.set_ylim(-0.6, len(table_and_moment) - 0.4)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, columnspacing=0.8)
    axes.grid(axis="y", visible=False)


@figure("03_similarity", of="similarity", needs=(COSINES,), main=MAIN_RUN)
def loss_by_similarity(run: Run) -> Figure:
    """Loss of the known correct answers by the cosine of their unembedding with o*'s, a panel an editor."""
    edited_run = archive("peak").get(run.name)
    answers_by_method = losses_of_run(edited_run, run.tables[COSINES])
    editors = [name for name in answers_by_method if not name.endswith("+APP")]
    columns = -(-len(editors) // 2)
    size = (1.75 * columns + 1.2, 5.0)
    fig, grid = plt.subplots(2, columns, figsize=size, sharex=True, sharey=True)
    for axes in grid.flat[len(editors) :]:
        axes.axis("off")
    for axes, editor in zip(grid.flat, editors, strict=False):
        for method in (editor, f"{editor}+APP"):
            if method in answers_by_method:
                bins = binned_losses(answers_by_method[method])
                mark_style = {**method_line(method_named(method)), "markersize": 5.5}
                draw_intervals(axes, bins["cosine"], bins, **mark_style)
        axes.axhline(0, color="0.6", linewidth=0.8)
        axes.set_title(editor, fontsize=9)
        axes.tick_params(labelbottom=True)
        axes.set_xlabel("cosine of unembeddings with o*", fontsize=7)
    fig.supylabel("log-probability lost (nats per token)", fontsize=9)
    fig.legend(handles=_plain_and_app(), loc="outside right center")
    most_answers = max(map(len, answers_by_method.values()))
    without_app = [editor for editor in editors if f"{editor}+APP" not in answers_by_method]
    notes = (
        f"up to {most_answers} known answers, 5 bins",
        "adjusted: record, prior, rank, length",
        "95 % intervals by relation",
        *fewer_records(edited_run.only([*answers_by_method])),
        *([f"no APP: {', '.join(without_app)}"] if without_app else []),
        *training_notes(edited_run),
    )
    caption = footer([edited_run], data_of(edited_run), *notes)
    return with_caption(fig, _similarity_in_words(answers_by_method), caption)


def _plain_and_app() -> list[Line2D]:
    """Marks of a legend that tell any editor without APP from itself with it."""
    look: dict[str, Any] = {"color": "0.4", "marker": "o"}
    return [
        Line2D([], [], label="plain", **look),
        Line2D([], [], label="with APP", linestyle="--", mfc="white", **look),
    ]


def _similarity_in_words(answers_by_method: Mapping[str, pd.DataFrame]) -> str:
    """With which editors nearer answers lose more, or less, after the table's correction for all methods."""
    cosine_slopes = {name: slopes(answers)["cosine"] for name, answers in answers_by_method.items()}
    corrected = holm([slope.p_value for slope in cosine_slopes.values()])
    survives = dict(zip(cosine_slopes, corrected < LEVEL, strict=True))
    editors = [name for name in cosine_slopes if not name.endswith("+APP")]
    decided = [name for name in editors if survives[name]]
    more = [name for name in decided if cosine_slopes[name].estimate.mean > 0]
    less = [name for name in decided if cosine_slopes[name].estimate.mean < 0]
    parts = [
        f"{words} with {', '.join(methods)}"
        for words, methods in (("more", more), ("less", less))
        if methods
    ]
    inconclusive_count = len(editors) - len(decided)
    if not parts:
        return (
            "We find no editor that takes more, or less, from correct answers that are more similar to the"
            f" new one (of {inconclusive_count}, answers of equal length)"
        )
    inconclusive = (
        f"; inconclusive for {inconclusive_count} of {len(editors)} editors"
        if inconclusive_count
        else ""
    )
    return (
        "Of correct answers of equal length, those that are more similar to the new one lose"
        f" {', and '.join(parts)}{inconclusive}"
    )
