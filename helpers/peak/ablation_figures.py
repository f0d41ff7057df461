"""Notebook 04's figures, drawn from whatever studies of APP a run has stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.editing.editors import OBJECTIVES, Variant, fairer, method_label, objectives
from helpers.peak.ablations import (
    Studies,
    editors_with,
    fairer_editors,
    finished,
    sequence_metrics,
    sequences_of,
    studies_of,
    variant_metrics,
)
from helpers.peak.figures import (
    ABOVE,
    ACROSS,
    MAIN_RUN,
    rows_of_estimates,
)
from helpers.peak.findings import (
    APP_REDUCES,
    EVERY_OBJECTIVE,
    FORGET_RANDOM,
    HARD_FACTORS,
    LESS_PROTECTION,
    POOLED,
    POOLED_TARGETS,
    TARGETS_COST,
    app_findings,
    fairer_findings,
    objective_findings,
    pooled_fairer_findings,
    short_name,
)
from helpers.peak.metrics import DEFAULT_FILTER, metric_interval
from helpers.results.archive import Run, TableKey
from helpers.results.figure import figure
from helpers.results.looks import method_line
from helpers.results.notes import training_notes
from helpers.results.statistics import interval
from helpers.results.style import (
    AT_RIGHT,
    condition_look,
    draw_intervals,
    with_caption,
)
from helpers.results.text import INCONCLUSIVE, Evidence, corrected_verdicts, footer

_CENTRED: dict[str, Any] = {"ha": "center", "va": "center"}
_HOLLOW = "hollow: inconclusive after Holm's correction"
_WEIGHTINGS = "weights: the list as the new answer (sum), or each answer (mean)"
_ablation = partial(figure, of="ablations", main=MAIN_RUN)


class JudgedTest(NamedTuple):
    """A test with its verdict after the correction for all tests of its finding."""

    evidence: Evidence
    verdict: str

    @property
    def holds(self) -> bool:
        """Whether the finding holds in this test."""
        return self.verdict == "holds"


class TargetsCost(NamedTuple):
    """A cost of answers as targets: what is compared, and what it is in words and over its panel."""

    findings: tuple[str, ...]
    metric: str
    words: str
    title: str


_NOISE = TargetsCost(
    (LESS_PROTECTION, POOLED_TARGETS), "ANF_hard", "noise", "noise (ANF)\nminus APP's"
)
_FORGETTING = TargetsCost(
    (LESS_PROTECTION, POOLED_TARGETS),
    "AFF_hard",
    "forgetting",
    "forgetting (AFF, hard)\nminus APP's",
)
_FORGETTING_RANDOM = TargetsCost(
    (FORGET_RANDOM, POOLED_TARGETS),
    "AFF_random",
    "forgetting (AFF, random)",
    "forgetting (AFF, random)\nminus APP's",
)
_SUCCESS = TargetsCost(
    (TARGETS_COST,), "ES", "success", "success (ES) lost\nagainst the plain editor"
)
_COSTS_OF_TARGETS = (_NOISE, _FORGETTING, _FORGETTING_RANDOM, _SUCCESS)
_DAMAGE_WORDS = {"AFF_hard": "forgetting (AFF)", "ANF_hard": "noise (ANF)"}
_CURVE_TITLES = {**_DAMAGE_WORDS, "ES": "success (ES)"}
_OBJECTIVE_WORDS = {  # what each is for
    "L1": "correct above false",
    "L2": "correct kept up",
    "L3": "false kept down",
}
_LISTS_OF_NEIGHBOURS = {  # and what their panels show
    "correct": "correct answers:\nchange [nats per token]",
    "hard": "hard false answers:\nchange [nats per token]",
}


@_ablation("04_objectives", when=lambda run: bool(_editors_without_first(run)))
def objectives_panel(run: Run) -> Figure:
    """What APP loses without one of its objectives: a row an editor and objective (PEAK, Figures 3 and 5)."""
    stored = studies_of(run)
    editors = _editors_without_first(run)
    variants = [variant for name in editors for variant in objectives(name)]
    metrics = _shown(stored, variants)
    tests = [
        test
        for test in _judged(objective_findings(metrics, editors))
        if test.evidence.finding == EVERY_OBJECTIVE
    ]
    rows = [
        (method_label(variant.editor), short_name(variant))
        for variant in variants
        if variant in metrics and variant.field in OBJECTIVES
    ]
    fig, axes = plt.subplots(figsize=(6.6, 0.34 * len(rows) + 1.5))
    _draw_objectives(axes, tests, rows)
    notes = (_counts_in_words(metrics.values()), "differences on the same records", _HOLLOW)
    caption = footer([run], stored.data(*stored.scores.values()), *notes)
    return with_caption(fig, _worse_without(tests), caption)


def _editors_without_first(run: Run) -> list[str]:
    """The editors with APP that are stored without its first objective."""
    return editors_with(run, "alpha", factor=0)


def _draw_objectives(
    axes: Axes, tests: Sequence[JudgedTest], rows: Sequence[tuple[str, str]]
) -> None:
    """A row an editor and variant, by their labels, and in it the change of AFF and that of ANF."""
    heights = {row: -float(number) for number, row in enumerate(rows)}
    for metric_index, metric in enumerate(HARD_FACTORS):
        aside = 0.12 - 0.24 * metric_index
        of_metric = [test for test in tests if test.evidence.metric == metric]
        heights_of_tests = [
            heights[test.evidence.editor, test.evidence.higher] + aside for test in of_metric
        ]
        words = _DAMAGE_WORDS[metric]
        mark_style = {"label": words, **condition_look(metric_index)}
        _mark_tests(axes, heights_of_tests, of_metric, **mark_style)
    labels = [f"{editor}+APP {_in_words(change)}" for editor, change in heights]
    axes.set_yticks([*heights.values()], labels, fontsize=8)
    axes.legend(**ABOVE)
    axes.set_xlabel("change without the objective [points] → worse")


def _in_words(change: str) -> str:
    """``without L1`` with the objective's aim."""
    objective = change.removeprefix("without ")
    return f"{change}\n({_OBJECTIVE_WORDS[objective]})"


def _worse_without(tests: Sequence[JudgedTest]) -> str:
    """Which measures rise without which objective, by editor, in words."""
    effects: dict[tuple[str, str], list[str]] = {}
    for test in tests:
        if test.holds:
            objective = test.evidence.higher.removeprefix("without ")
            words = _DAMAGE_WORDS[test.evidence.metric].partition(" (")[0]
            effects.setdefault((words, objective), []).append(test.evidence.editor)
    parts = [
        f"without {objective} {words} rises ({', '.join(editors)})"
        for (words, objective), editors in effects.items()
    ]
    finding = "; ".join(parts) or "no effect of a single objective is conclusive"
    return f"{finding[0].upper()}{finding[1:]}"


@_ablation(
    "04_neighbours",
    when=lambda run: bool(editors_with(run, "neighbours")),
)
def neighbours_lines(run: Run) -> Figure:
    """Change of the answers that APP was shown and of the others, by the number shown (PEAK, Figure 4)."""
    stored = studies_of(run)
    editors = editors_with(run, "neighbours")
    changes = {
        editor: changes_by_neighbours(stored.scores, editor, run.about.caption.get("relations", {}))
        for editor in editors
    }
    fig, grid = plt.subplots(
        2,
        len(editors),
        figsize=(3.3 * len(editors) + 1.2, 4.4),
        sharex=True,
        sharey="row",
        squeeze=False,
    )
    for column, (editor, changes_of_editor) in enumerate(changes.items()):
        for row, (list_name, words) in enumerate(_LISTS_OF_NEIGHBOURS.items()):
            axes = grid[row, column]
            changes_of_list = changes_of_editor[changes_of_editor["list"] == list_name]
            _draw_neighbours(axes, changes_of_list)
            axes.set_title(f"{method_label(editor)}+APP" if row == 0 else "")
            axes.set_ylabel(words if column == 0 else "")
            axes.set_xlabel("answers shown of each list" if row == 1 else "")
    grid[0, -1].legend(**AT_RIGHT)
    records = max(changes_of_editor["case_id"].nunique() for changes_of_editor in changes.values())
    notes = (
        f"mean over records (n up to {records}), 95 % intervals, not tested",
        "answers that the unedited model ranks as it should",
    )
    caption = footer([run], stored.data(*stored.scores.values()), *notes)
    return with_caption(fig, _shown_in_words(changes), caption)


def changes_by_neighbours(
    scores: Mapping[str, pd.DataFrame], editor: str, relations: Mapping[str, str]
) -> pd.DataFrame:
    """How an editor with APP changes answers that it is shown and others, by how many it is shown.

    A row a record: ``given`` (``0``, ``1``, …, ``all``), ``list`` (correct or hard), ``is_shown``,
    ``case_id``, ``relation`` and ``change``, the mean change of the counted answers' log-probability per
    token at the edit prompt.
    """
    whole = Variant(f"{editor}+app")
    variants = [Variant.parse(name) for name in scores]
    with_k = [v for v in variants if v.method == whole.method and v.field == "neighbours"]
    parts = []
    for variant in [*sorted(with_k, key=lambda v: v.value), whole]:
        answers = counted_changes(scores[str(variant)])
        limit = variant.value if variant.field else float("inf")
        answers = answers.assign(is_shown=answers["answer_index"] < limit)
        means = answers.groupby(["case_id", "list", "is_shown"], as_index=False)["change"].mean()
        parts.append(means.assign(given=f"{variant.value:g}" if variant.field else "all"))
    changes = pd.concat(parts, ignore_index=True)
    return changes.assign(relation=changes["case_id"].astype(str).map(relations))


def counted_changes(scores: pd.DataFrame) -> pd.DataFrame:
    """The counted answers at the edit prompt with the change of their log-probability per token."""
    at_edit_prompt = scores[scores["role"] == "edit"]
    at_edit_prompt = at_edit_prompt.sort_values(["case_id", "list", "answer_index"])
    before = at_edit_prompt["sum_before"] / at_edit_prompt["tokens"]
    after = at_edit_prompt["sum_after"] / at_edit_prompt["tokens"]
    answers = at_edit_prompt.assign(before=before, change=after - before)
    parts = []
    for _, of_record in answers.groupby("case_id"):
        lists = {
            str(name): of_list["before"].to_numpy()[None]
            for name, of_list in of_record.groupby("list", observed=True)
        }
        kept = DEFAULT_FILTER.counted(lists)
        for list_name, indices in (("correct", kept.correct), ("hard", kept.hard)):
            parts.append(of_record[of_record["list"] == list_name].iloc[indices])
    return pd.concat(parts)


def _draw_neighbours(axes: Axes, changes: pd.DataFrame) -> None:
    """A list's mean change by the number of answers shown: a line for the shown, one for the others."""
    ticks = list(dict.fromkeys(changes["given"]))
    for index, (is_shown, label) in enumerate(((True, "shown to APP"), (False, "not shown"))):
        of_kind = changes[changes["is_shown"] == is_shown]
        numbers = [tick for tick in ticks if (of_kind["given"] == tick).any()]
        estimates = []
        for tick in numbers:
            of_tick = of_kind[of_kind["given"] == tick]
            values = of_tick.set_index(["case_id", "relation"])["change"]
            estimates.append(interval(values, "number"))
        positions = [ticks.index(tick) + 0.05 * (2 * index - 1) for tick in numbers]
        draw_intervals(
            axes,
            positions,
            rows_of_estimates(estimates, scale=1),
            label=label,
            linestyle="-" if is_shown else "--",
            mfc=None if is_shown else "white",
            **condition_look(index),
        )
    axes.axhline(0, color="0.4", linewidth=0.8)
    axes.set(xticks=range(len(ticks)), xticklabels=ticks)


def _shown_in_words(changes: Mapping[str, pd.DataFrame]) -> str:
    """Of which lists answers that were shown change less in mean than the others, at every number shown."""
    is_protected = {
        list_name: all(
            _is_protected(of_editor[of_editor["list"] == list_name], sign)
            for of_editor in changes.values()
        )
        for list_name, sign in (("correct", 1), ("hard", -1))
    }
    words = {"correct": "correct answers lose less", "hard": "hard false ones rise less"}
    clauses = [words[list_name] for list_name, protected in is_protected.items() if protected]
    if not clauses:
        return "Answers that APP is shown and those that it is not shown do not differ clearly"
    return f"Shown to APP, {' and '.join(clauses)} (means, not tested)"


def _is_protected(changes: pd.DataFrame, sign: int) -> bool:
    """Whether the mean change of shown answers is above (``sign`` 1) that of others at every number."""
    means = changes.groupby(["given", "is_shown"])["change"].mean().unstack().dropna()
    return bool((sign * (means[True] - means[False]) > 0).all())


@_ablation("04_fairer", when=lambda run: bool(fairer_editors(run)))
def fairer_differences(run: Run) -> Figure:
    """What answers as targets cost: noise and forgetting beyond APP's, lost edits (PEAK, Table 5)."""
    stored = studies_of(run)
    editors = fairer_editors(run)
    shown_metrics = _shown(stored, [variant for editor in editors for variant in fairer(editor)])
    evidence = [
        *fairer_findings(shown_metrics, editors),
        *pooled_fairer_findings(shown_metrics, editors),
    ]
    tests = _judged(evidence)
    labels = [*(method_label(editor) for editor in editors), POOLED]
    size = (9.2, 0.4 * len(labels) + 1.6)
    fig, panels = plt.subplots(1, len(_COSTS_OF_TARGETS), figsize=size, sharey=True)
    for axes, cost in zip(panels, _COSTS_OF_TARGETS, strict=True):
        _draw_cost(axes, cost, tests, labels)
    panels[0].set_yticks([-row for row in range(len(labels))], labels)
    panels[-1].legend(title="answers\nweighted as", **AT_RIGHT)
    notes = (
        _counts_in_words(shown_metrics.values()),
        _WEIGHTINGS,
        _HOLLOW,
        f"added after the first results: {POOLED}, AFF (random)",
        *training_notes(run),
    )
    caption = footer([run], stored.data(*stored.scores.values()), *notes)
    return with_caption(fig, _costs_in_words(tests), caption)


def _draw_cost(
    axes: Axes, cost: TargetsCost, tests: Sequence[JudgedTest], labels: Sequence[str]
) -> None:
    """One cost of answers as targets: a row an editor, by its label, and in it both weightings."""
    for weighting_index, weighting in enumerate(("sum", "mean")):
        of_weighting = _tests_of_targets(tests, cost, weighting)
        aside = 0.1 - 0.2 * weighting_index
        heights_of_tests = [aside - labels.index(test.evidence.editor) for test in of_weighting]
        mark_style = {
            "label": weighting,
            **condition_look(weighting_index),
        }
        _mark_tests(axes, heights_of_tests, of_weighting, **mark_style)
        if POOLED not in [test.evidence.editor for test in of_weighting]:
            place = (0.5, -labels.index(POOLED))
            across = axes.get_yaxis_transform()
            axes.text(*place, "not tested", transform=across, fontsize=7, color="0.4", **_CENTRED)
    axes.set_title(cost.title, fontsize=9)
    axes.set_xlabel("points; targets worse →", fontsize=8)


def _costs_in_words(tests: Sequence[JudgedTest]) -> str:
    """Where targets as a mean cost success, and what they do as a sum, pooled over editors."""
    tests_of_success = _tests_of_targets(tests, _SUCCESS, "mean")
    costly = [test.evidence.editor for test in tests_of_success if test.holds]
    editors = "every editor" if len(costly) == len(tests_of_success) else f"{len(costly)} editors"
    words_of_mean = f"Answers as targets cost {editors} success where they are weighted as a mean"
    pooled = {
        cost.words: test.verdict
        for cost in (_FORGETTING_RANDOM, _NOISE)
        for test in _tests_of_targets(tests, cost, "sum")
        if test.evidence.editor == POOLED
    }
    sides = {"holds": "more", "reversed": "less"}
    words_of_sum = " and ".join(
        f"{sides[verdict]} {damage}" for damage, verdict in pooled.items() if verdict in sides
    )
    if not words_of_sum:
        return words_of_mean
    return f"{words_of_mean}; as a sum, over {POOLED}, they cause {words_of_sum} than APP"


@_ablation(
    "04_sequences",
    when=lambda run: bool(sequences_of(run)),
)
def sequence_lines(run: Run) -> Figure:
    """AFF, ANF and ES of all edited records against the number of edits made, from two edits on.

    One sequence a method: its intervals are over records and do not hold what another order would change.
    """
    stored = studies_of(run)
    metrics = {key: table for key, table in sequence_metrics(stored).items() if len(table) > 1}
    curves_by_editor = _curves_of_sequences(metrics)
    fig = _curves((*HARD_FACTORS, "ES"), [*curves_by_editor.values()], "edits made and scored")
    notes = (
        _counts_in_words(metrics.values()),
        "one order of the records (one replicate)",
        "tests: over records, paired, Holm's correction",
    )
    caption = footer([run], stored.data(*metrics.values()), *notes)
    return with_caption(fig, _last_in_words(metrics, [*curves_by_editor]), caption)


def _curves_of_sequences(
    metrics: Mapping[TableKey, pd.DataFrame],
) -> dict[str, dict[str, dict[str, pd.DataFrame]]]:
    """By editor, method and number of edits, as ``_curves`` draws them."""
    curves_by_editor: dict[str, dict[str, dict[str, pd.DataFrame]]] = {}
    for key, table in metrics.items():
        curves_of_editor = curves_by_editor.setdefault(Variant(key.method).editor, {})
        curves_of_editor.setdefault(key.method, {})[str(key.edits)] = table
    return curves_by_editor


def _last_in_words(metrics: Mapping[TableKey, pd.DataFrame], editors: Sequence[str]) -> str:
    """With which editors APP lowers forgetting and noise after the most edits."""
    most_edits = max(key.edits for key in metrics)
    metrics_after = {
        Variant(key.method): table for key, table in metrics.items() if key.edits == most_edits
    }
    tests = [
        test
        for test in _judged(app_findings(metrics_after, editors, alone=False))
        if test.evidence.finding == APP_REDUCES
    ]
    damage_by_editors: dict[str, list[str]] = {}
    for metric, words in (("AFF_hard", "forgetting"), ("ANF_hard", "noise")):
        of_metric = [test for test in tests if test.evidence.metric == metric]
        lowered = [test.evidence.editor for test in of_metric if test.holds]
        damage_by_editors.setdefault(" and ".join(lowered) or "no editor", []).append(words)
    clauses = [
        f"{' and '.join(damage)} with {lowered}" for lowered, damage in damage_by_editors.items()
    ]
    return (
        f"After {most_edits} edits in one sequence APP still lowers {', '.join(clauses)} (of"
        f" {len(editors)} editors)"
    )


def _curves(
    metrics: Sequence[str],
    curves_of_rows: Sequence[Mapping[str, Mapping[str, pd.DataFrame]]],
    axis_label: str,
) -> Figure:
    """A row of panels a group, a panel a metric, a line a method with 95 % intervals.

    A group has, by method, a table of metrics for each tick of the x axis; ``axis_label`` is the axis's.
    """
    ticks = _ticks_of(curves_of_rows)
    shape = (len(curves_of_rows), len(metrics))
    size = (7.6, 1.9 * len(curves_of_rows) + 1.1)
    fig, grid = plt.subplots(*shape, figsize=size, squeeze=False, sharex=True, sharey=True)
    for row, (curves, panels) in enumerate(zip(curves_of_rows, grid, strict=True), start=1):
        for axes, metric in zip(panels, metrics, strict=True):
            _draw_curves(axes, metric, curves, ticks)
            axes.set_title(_CURVE_TITLES[metric] if row == 1 else "")
            axes.set_xlabel(axis_label if row == len(curves_of_rows) else "")
            axes.set(xticks=range(len(ticks)), xticklabels=ticks, ylim=(-3, 105))
        panels[0].set_ylabel("mean over records [%]")
        panels[-1].legend(**AT_RIGHT)
    return fig


def _ticks_of(curves_of_rows: Sequence[Mapping[str, Mapping[str, pd.DataFrame]]]) -> list[str]:
    """The ticks of all curves, each once."""
    ticks: dict[str, None] = {}
    for curves in curves_of_rows:
        for tables_by_tick in curves.values():
            ticks |= dict.fromkeys(tables_by_tick)
    return list(ticks)


def _draw_curves(
    axes: Axes,
    metric: str,
    curves: Mapping[str, Mapping[str, pd.DataFrame]],
    ticks: Sequence[str],
) -> None:
    """A metric's line for each method, with an interval at each of its ticks."""
    for method_index, (method, tables_by_tick) in enumerate(curves.items()):
        aside = 0.06 * (method_index - (len(curves) - 1) / 2)
        positions = [ticks.index(tick) + aside for tick in tables_by_tick]
        means = [metric_interval(metric, table[metric]) for table in tables_by_tick.values()]
        draw_intervals(axes, positions, rows_of_estimates(means), **method_line(method))


def _judged(evidence: Sequence[Evidence]) -> list[JudgedTest]:
    """Tests with their verdicts, corrected for all of the evidence."""
    verdicts = corrected_verdicts(evidence)
    return [JudgedTest(*test) for test in zip(evidence, verdicts, strict=True)]


def _tests_of_targets(
    tests: Iterable[JudgedTest], cost: TargetsCost, weighting: str
) -> list[JudgedTest]:
    """A cost's tests, an editor each; ``weighting`` of the targets is ``sum`` or ``mean``."""
    targets = f"+ ({weighting})"
    return [
        test
        for test in tests
        if test.evidence.finding in cost.findings
        and test.evidence.metric == cost.metric
        and targets in (test.evidence.higher, test.evidence.lower)
    ]


def _mark_tests(
    axes: Axes, heights: Sequence[float], tests: Sequence[JudgedTest], **mark_style: Any
) -> None:
    """Differences, each at its place on the y axis; hollow where inconclusive."""
    for height, test in zip(heights, tests, strict=True):
        fill_colour = "white" if test.verdict == INCONCLUSIVE else mark_style["color"]
        test_style = {**ACROSS, **mark_style, "mfc": fill_colour, "label": ""}
        draw_intervals(axes, [height], rows_of_estimates([test.evidence.difference]), **test_style)
    axes.plot([], [], mark_style["fmt"], color=mark_style["color"], label=mark_style["label"])
    axes.axvline(0, color="0.4", linewidth=0.8)
    axes.margins(y=0.1)
    axes.grid(axis="y", visible=False)


def _shown(stored: Studies, variants: Sequence[Variant]) -> dict[Variant, pd.DataFrame]:
    names = [str(variant) for variant in variants]
    scores = {name: stored.scores[name] for name in names if name in stored.scores}
    return finished(variant_metrics(scores), variants)


def _counts_in_words(tables: Iterable[pd.DataFrame]) -> str:
    """How many records are behind a figure's means: those with AFF."""
    record_counts = sorted({int(table["AFF_hard"].notna().sum()) for table in tables})
    return f"n = {', '.join(map(str, record_counts))}, 95 % intervals"
