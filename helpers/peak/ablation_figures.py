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
    with_neighbours,
)
from helpers.peak.figures import (
    ABOVE,
    ACROSS,
    LIST_COLOURS,
    MAIN_RUN,
    draw_list_probabilities,
    rows_of_estimates,
)
from helpers.peak.findings import (
    APP_REDUCES,
    EVERY_OBJECTIVE,
    HARD_FACTORS,
    LESS_PROTECTION,
    TARGETS_COST,
    ByVariant,
    app_findings,
    fairer_findings,
    neighbour_findings,
    objective_findings,
    short_name,
)
from helpers.peak.metrics import METRICS, metric_interval, probabilities_table
from helpers.results.archive import Run, TableKey
from helpers.results.figure import figure
from helpers.results.looks import method_line
from helpers.results.notes import training_notes
from helpers.results.style import (
    AT_RIGHT,
    MARKERS,
    PALETTE,
    draw_intervals,
    with_caption,
)
from helpers.results.text import INCONCLUSIVE, Evidence, corrected_verdicts

_HOLM = "corrected for their number (Holm)"
_HOLLOW = f"Differences on the same records; hollow: inconclusive when all tests are {_HOLM}"
_WEIGHTINGS = "sum: the list weighs as much as the new answer; mean: every answer weighs the same"
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
    """A cost of answers as targets: what is compared, and what it is in words."""

    finding: str
    metric: str
    words: str
    compared_with: str


_NOISE = TargetsCost(LESS_PROTECTION, "ANF_hard", "more noise", "with APP")
_FORGETTING = TargetsCost(LESS_PROTECTION, "AFF_hard", "more forgetting", "with APP")
_SUCCESS = TargetsCost(TARGETS_COST, "ES", "lower success", "the plain editor")
_COSTS_OF_TARGETS = (_NOISE, _FORGETTING, _SUCCESS)


@_ablation(
    "04_objectives",
    each=("editor", partial(editors_with, field="alpha", factor=0)),
)
def objectives_panels(run: Run, *, editor: str) -> Figure:
    """What APP loses without one objective, and answer probabilities (PEAK, Figures 3 and 5)."""
    stored = studies_of(run)
    editors = editors_with(run, "alpha", factor=0)
    variants_of_all = [variant for name in editors for variant in objectives(name)]
    metrics = _shown(stored, variants_of_all)
    variants = [variant for variant in objectives(editor) if variant in metrics]
    editor_label = method_label(editor)
    tests = _tests_of_objectives(metrics, editors, editor_label)
    fig, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.1), width_ratios=(2, 3))
    _draw_objectives(
        left, tests, [short_name(variant) for variant in variants if variant.field in OBJECTIVES]
    )
    draw_list_probabilities(right, _probabilities_by_variant(stored, metrics, variants))
    finding = _worse_without(tests, editor_label)
    caption = f"{stored.described(*stored.scores.values())}\n{_HOLLOW}"
    return _with_counts(fig, finding, caption, [metrics[variant] for variant in variants])


def _tests_of_objectives(
    metrics: ByVariant, editors: Sequence[str], editor_label: str
) -> list[JudgedTest]:
    """What each objective helps, tested for one editor (by its label), corrected for those of all."""
    return [
        test
        for test in _judged(objective_findings(metrics, editors))
        if test.evidence.finding == EVERY_OBJECTIVE and test.evidence.editor == editor_label
    ]


def _probabilities_by_variant(
    stored: Studies, metrics: ByVariant, variants: Sequence[Variant]
) -> dict[str, pd.DataFrame]:
    """By a variant's short name the probabilities of its records' answers, of those that have metrics."""
    probabilities_by_name = {}
    for variant in variants:
        table = probabilities_table(stored.scores[str(variant)])
        probabilities_by_name[short_name(variant)] = table.loc[metrics[variant].index]
    return probabilities_by_name


def _draw_objectives(axes: Axes, tests: Sequence[JudgedTest], variants: Sequence[str]) -> None:
    """A row a variant, by its short name, and in it the change of AFF and that of ANF."""
    heights = {variant: -float(row) for row, variant in enumerate(variants, start=1)}
    colours = (LIST_COLOURS["correct"], LIST_COLOURS["hard"])
    for metric_index, (metric, colour) in enumerate(zip(HARD_FACTORS, colours, strict=True)):
        aside = 0.12 - 0.24 * metric_index
        of_metric = [test for test in tests if test.evidence.metric == metric]
        heights_of_tests = [heights[test.evidence.higher] + aside for test in of_metric]
        mark_style = {"fmt": MARKERS[metric_index], "color": colour, "label": METRICS[metric].label}
        _mark_tests(axes, heights_of_tests, of_metric, **mark_style)
    axes.set_yticks([*heights.values()], [*heights])
    axes.legend(**ABOVE)
    axes.set_xlabel("change without the objective [points]\n→ worse")


def _worse_without(tests: Sequence[JudgedTest], editor_label: str) -> str:
    """Which of an editor's measures are worse without which objective, in words."""
    worse = [
        f"{METRICS[test.evidence.metric].symbol} {test.evidence.higher}"
        for test in tests
        if test.holds
    ]
    worse_words = " and ".join(worse) or "AFF or ANF"
    return f"{editor_label}+APP: higher {worse_words} ({len(worse)} of {len(tests)} tests hold)"


@_ablation(
    "04_neighbours",
    when=lambda run: bool(editors_with(run, "neighbours")),
)
def neighbours_lines(run: Run) -> Figure:
    """AFF and ANF (hard) against the number of neighbours APP is given (PEAK, Figure 4)."""
    stored = studies_of(run)
    editors = editors_with(run, "neighbours")
    metrics = variant_metrics(stored.scores)
    variants_by_editor = {editor: with_neighbours(metrics, editor) for editor in editors}
    curves = _curves_of_neighbours(variants_by_editor)
    fig = _curves(HARD_FACTORS, [curves], "neighbours k of each list given to APP")
    tables = [table for variants in variants_by_editor.values() for table in variants.values()]
    caption = f"{stored.described(*stored.scores.values())}\nTests: paired, {_HOLM}"
    return _with_counts(fig, _protection_in_words(metrics, editors), caption, tables)


def _curves_of_neighbours(
    variants_by_editor: Mapping[str, ByVariant],
) -> dict[str, dict[str, pd.DataFrame]]:
    """By editor and number of neighbours, as ``_curves`` draws them."""
    curves = {}
    for editor, variants in variants_by_editor.items():
        curves[editor] = {
            f"{variant.value:g}" if variant.field else "all": table
            for variant, table in variants.items()
        }
    return curves


def _protection_in_words(metrics: ByVariant, editors: Sequence[str]) -> str:
    """In how many tests more neighbours protect more."""
    tests = _judged(neighbour_findings(metrics, editors))
    holding_count = sum(test.holds for test in tests)
    return f"APP protects more with more neighbours in {holding_count} of {len(tests)} tests"


@_ablation("04_fairer", when=lambda run: bool(fairer_editors(run)))
def fairer_differences(run: Run) -> Figure:
    """What answers as targets cost: noise and forgetting beyond APP's, lost edits (PEAK, Table 5)."""
    stored = studies_of(run)
    editors = fairer_editors(run)
    shown_metrics = _shown(stored, [variant for editor in editors for variant in fairer(editor)])
    tests = _judged(fairer_findings(shown_metrics, editors))
    labels = [method_label(editor) for editor in editors]
    fig, panels = plt.subplots(1, 3, figsize=(7.6, 3.0), sharey=True)
    for axes, cost in zip(panels, _COSTS_OF_TARGETS, strict=True):
        _draw_cost(axes, cost, tests, labels)
    panels[0].set_yticks([-row for row in range(len(labels))], labels)
    panels[-1].legend(title="answers\nweighted as", **AT_RIGHT)
    notes = training_notes(run)
    caption = "\n".join([stored.described(*stored.scores.values()), _WEIGHTINGS, *notes, _HOLLOW])
    return _with_counts(fig, _costs_in_words(tests), caption, shown_metrics.values())


def _draw_cost(
    axes: Axes, cost: TargetsCost, tests: Sequence[JudgedTest], labels: Sequence[str]
) -> None:
    """One cost of answers as targets: a row an editor, by its label, and in it both weightings."""
    for weighting_index, weighting in enumerate(("sum", "mean")):
        of_weighting = _tests_of_targets(tests, cost, weighting)
        aside = 0.1 - 0.2 * weighting_index
        heights_of_tests = [aside - labels.index(test.evidence.editor) for test in of_weighting]
        mark_style = {
            "fmt": MARKERS[weighting_index],
            "color": PALETTE[weighting_index],
            "label": weighting,
        }
        _mark_tests(axes, heights_of_tests, of_weighting, **mark_style)
    axes.set_title(f"{cost.words} ({METRICS[cost.metric].symbol})\nthan {cost.compared_with}")
    axes.set_xlabel("points → targets worse")


def _costs_in_words(tests: Sequence[JudgedTest]) -> str:
    """For how many editors targets as a mean cost success, and as a sum leave more noise."""
    tests_of_noise = _tests_of_targets(tests, _NOISE, "sum")
    noisy_count = sum(test.holds for test in tests_of_noise)
    costly_count = sum(test.holds for test in _tests_of_targets(tests, _SUCCESS, "mean"))
    count = len(tests_of_noise)
    return (
        f"As a mean, answers as targets cost success ({costly_count} of {count} editors);"
        f" as a sum, they leave more noise than APP for {noisy_count} of {count}"
    )


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
    test_words = f"One order of the records (one replicate); tests: over records, paired, {_HOLM}"
    caption = f"{stored.described(*metrics.values())}\n{test_words}"
    finding = _last_in_words(metrics, [*curves_by_editor])
    return _with_counts(fig, finding, caption, metrics.values())


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
    """With which editors APP lowers forgetting after the most edits."""
    most_edits = max(key.edits for key in metrics)
    metrics_after = {
        Variant(key.method): table for key, table in metrics.items() if key.edits == most_edits
    }
    tests = [
        test
        for test in _judged(app_findings(metrics_after, editors, alone=False))
        if test.evidence.finding == APP_REDUCES and test.evidence.metric == "AFF_hard"
    ]
    protected_editors = [test.evidence.editor for test in tests if test.holds]
    editors_in_words = " and ".join(protected_editors) or "no editor"
    return (
        f"After {most_edits} edits in one sequence APP still lowers forgetting with"
        f" {editors_in_words} ({len(protected_editors)} of {len(tests)} editors)"
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
            axes.set_title(METRICS[metric].label if row == 1 else "")
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
        if (test.evidence.finding, test.evidence.metric) == (cost.finding, cost.metric)
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


def _with_counts(fig: Figure, finding: str, caption: str, tables: Iterable[pd.DataFrame]) -> Figure:
    """The figure with its finding, and how many records are behind its means: those with AFF."""
    record_counts = sorted({int(table["AFF_hard"].notna().sum()) for table in tables})
    means = f"n = {', '.join(map(str, record_counts))} records, 95 % intervals"
    return with_caption(fig, finding, f"{caption}; {means}")
