"""The figures of what an edit costs, drawn from stored tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.costs.held_out_answers import (
    HALF,
    SHOWN,
    UNSHOWN,
    Protection,
    editors_held_out,
    protections,
)
from helpers.costs.leaks import BINS, leaks_of_run
from helpers.costs.strength import (
    DAMAGES,
    Matched,
    StrengthCurve,
    matched_pairs,
    strength_curves,
)
from helpers.costs.undo import STATES, WAYS_BACK, returns_of_run
from helpers.editing.editors import method_label
from helpers.peak.figures import ACROSS, MAIN_RUN, rows_of_estimates
from helpers.peak.metrics import METRICS, metric_interval
from helpers.peak.tables import data_of
from helpers.results.archive import Run
from helpers.results.figure import figure
from helpers.results.looks import method_line
from helpers.results.statistics import LEVEL, Kind, interval, mean_interval, paired
from helpers.results.style import AT_RIGHT, MARKERS, PALETTE, draw_intervals, with_caption
from helpers.results.text import footer

_PRIMARY_STRENGTH = "P"
_GIVEN_WORDS = {
    "half": "half of both lists",
    "half of O": "half of the correct answers alone",
    "foreign O": "another record's correct answers",
}
_MEASURE_TITLES = {
    "AFF": "forgetting of correct answers (AFF)",
    "ANF": "noise of false answers (ANF)",
}


@figure(
    "04_held_out",
    of="held_out",
    main=MAIN_RUN,
    when=lambda run: bool(editors_held_out(run.keys)),
)
def held_out_dumbbells(run: Run) -> Figure:
    """What APP protects of the answers that its loss was shown, and of those that it was not."""
    compared = [protection for protection in protections(run, fractions=True) if protection.given]
    rows = list(dict.fromkeys((protection.editor, protection.given) for protection in compared))
    heights = {row: -float(number) for number, row in enumerate(rows)}
    size = (8.2, 0.4 * len(rows) + 2.0)
    fig, panels = plt.subplots(1, len(_MEASURE_TITLES), figsize=size, sharey=True)
    for axes, (name, title) in zip(panels, _MEASURE_TITLES.items(), strict=True):
        of_measure = [protection for protection in compared if protection.metric.name == name]
        _draw_dumbbells(axes, of_measure, heights)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("points less than without APP →")
    labels = [f"{method_label(f'{editor}+app')}\n{_GIVEN_WORDS[given]}" for editor, given in rows]
    panels[0].set_yticks([*heights.values()], labels, fontsize=8)
    panels[-1].legend(title="half of the list", **AT_RIGHT)
    counts = {protection.metric.name: len(protection.plain) for protection in compared}
    counts_in_words = ", ".join(f"{count} ({name})" for name, count in counts.items())
    notes = (
        f"n = {counts_in_words} records, paired with the plain edit on the same halves",
        "95 % intervals",
        "APP's loss was given the shown half",
    )
    return with_caption(fig, _held_out_in_words(compared), footer([run], data_of(run), *notes))


def _draw_dumbbells(
    axes: Axes, compared: Sequence[Protection], heights: Mapping[tuple[str, str], float]
) -> None:
    """A row each: protection of the shown half (full) and of the unshown one (hollow), joined."""
    rows = [heights[protection.editor, protection.given] for protection in compared]
    estimates_of_half = {
        half: rows_of_estimates([protection.of_half(half).difference for protection in compared])
        for half in (SHOWN, UNSHOWN)
    }
    ends = [estimates["mean"] for estimates in estimates_of_half.values()]
    axes.plot(ends, [rows, rows], color="0.6", linewidth=1.5, zorder=1)  # a line a row
    for half, colour, fill, aside in (
        (SHOWN, PALETTE[0], PALETTE[0], 0.1),
        (UNSHOWN, PALETTE[3], "white", -0.1),
    ):
        at_rows = [row + aside for row in rows]
        draw_intervals(
            axes,
            at_rows,
            estimates_of_half[half],
            fmt="o",
            color=colour,
            mfc=fill,
            label=half,
            **ACROSS,
        )
    axes.axvline(0, color="0.4", linewidth=0.8)
    axes.grid(axis="y", visible=False)
    axes.margins(y=0.1)


def _held_out_in_words(compared: Sequence[Protection]) -> str:
    """The finding: means over editors of what is protected of either half, where half was given."""
    primary = [protection for protection in compared if protection.given == HALF]
    is_protected = all(protection.of_half(UNSHOWN).difference.low > 0 for protection in primary)
    words = []
    for name, damage in (("AFF", "forgetting"), ("ANF", "noise")):
        of_measure = [protection for protection in primary if protection.metric.name == name]
        means = {
            half: 100 * float(np.mean([p.of_half(half).difference.mean for p in of_measure]))
            for half in (SHOWN, UNSHOWN)
        }
        words.append(f"{means[UNSHOWN]:.0f} points less {damage} ({means[SHOWN]:.0f} where shown)")
    beginning = "APP also protects" if is_protected else "What APP does for"
    editors = len({protection.editor for protection in primary})
    return (
        f"{beginning} answers that its loss was not shown: {words[0]}, {words[1]}; means of"
        f" {editors} editors"
    )


@figure("04_matched_strength", of="matched", main=MAIN_RUN)
def matched_strength_curves(run: Run) -> Figure:
    """Damage against strength: plain updates at several scales, and methods that are weaker anyway."""
    curves = strength_curves(run)
    fig, panels = plt.subplots(1, len(DAMAGES), figsize=(8.6, 3.6), sharex=True, sharey=True)
    for axes, measure in zip(panels, DAMAGES, strict=True):
        for curve in curves.values():
            _draw_strength(axes, curve, measure)
        axes.set(xlabel="probability P(o*) of the new answer, percent")
        axes.set_title(_MEASURE_TITLES[METRICS[measure].symbol], fontsize=9)
    panels[0].set_ylabel("percent")
    panels[-1].legend(**AT_RIGHT)
    primary = [pair for pair in matched_pairs(curves) if pair.is_primary]
    for axes, measure in zip(panels, DAMAGES, strict=True):
        for pair in primary:
            _draw_gap(axes, pair, measure)
    counts = sorted({len(curve.by_scale[1.0]) for curve in curves.values()})
    scales = sorted({scale for curve in curves.values() for scale in curve.scales})
    notes = (
        f"means of n = {', '.join(map(str, counts))} records",
        f"curves: the update times {', '.join(f'{scale:g}' for scale in scales)} (0: unedited)",
        "points: methods as they are, 95 % intervals",
        "arrows: from the scaled update to APP",
    )
    return with_caption(fig, _matched_in_words(primary), footer([run], data_of(run), *notes))


def _draw_strength(axes: Axes, curve: StrengthCurve, measure: str) -> None:
    """A curve over scales, or a point with its interval where a method has no scale but 1."""
    look = method_line(curve.method)
    if len(curve.scales) > 2:
        strengths = 100 * curve.values(_PRIMARY_STRENGTH).mean(0)
        axes.plot(strengths, 100 * curve.values(measure).mean(0), **look)
        return
    table = curve.by_scale[1.0]
    estimate = metric_interval(measure, table[measure])
    draw_intervals(
        axes,
        [100 * table[_PRIMARY_STRENGTH].mean()],
        rows_of_estimates([estimate]),
        fmt=look["marker"],
        color=look["color"],
        fillstyle=look["fillstyle"],
        markersize=8,
        label=look["label"],
    )


def _draw_gap(axes: Axes, pair: Matched, measure: str) -> None:
    """An arrow from an editor's scaled update to the editor with APP, at equal strength."""
    level = 100 * float(pair.other[pair.strength].mean())
    scaled, with_app = (100 * damage for damage in pair.damage(measure))
    if np.isnan(scaled):
        return  # the editor is never as strong
    arrow = {"arrowstyle": "->", "color": "0.3", "linewidth": 1.2}
    axes.annotate("", xy=(level, with_app), xytext=(level, scaled), arrowprops=arrow, zorder=6)


def _matched_in_words(pairs: Sequence[Matched]) -> str:
    """In how many comparisons APP does less damage than an update of the same strength."""
    exceptions: dict[str, list[str]] = {measure: [] for measure in DAMAGES}
    for pair in pairs:
        for measure in DAMAGES:
            contrast = pair.contrast(measure)
            is_less = contrast.p_value < LEVEL and contrast.difference.mean > 0
            if not is_less:
                exceptions[measure].append(method_label(pair.curve.method))
    forgetting, noise = (
        f"{len(pairs) - len(editors)} of {len(pairs)} editors"
        + (f" (not {', '.join(editors)})" if editors else "")
        for editors in exceptions.values()
    )
    return (
        f"At equal P(o*) APP forgets less than the scaled update for {forgetting} and adds less noise for"
        f" {noise}"
    )


@figure("04_leaks", of="leaks", main=MAIN_RUN)
def leak_curves(run: Run) -> Figure:
    """How far o* rises at other subjects of the relation, by the similarity of their keys."""
    fig, panels = plt.subplots(1, 2, figsize=(7.8, 3.2), sharey=True)
    leaks_by_method = leaks_of_run(run)
    titles = {
        "whitened": "cosine of the subjects' keys,\nwhitened by the covariance of keys",
        "cosine": "cosine of the subjects' keys",
    }
    for axes, (similarity, title) in zip(panels, titles.items(), strict=True):
        for method, leaks in leaks_by_method.items():
            _draw_binned(axes, leaks[~leaks["is_own"]], similarity, method)
        axes.set_xlabel(title, fontsize=8)
        axes.axhline(0, color="0.4", linewidth=0.8)
    panels[0].set_ylabel("change of log P(o*)\n[nats per token]")
    panels[-1].legend(**AT_RIGHT)
    counts = sorted({leaks["case_id"].nunique() for leaks in leaks_by_method.values()})
    data = data_of(run, f"{', '.join(map(str, counts))} records")
    notes = (
        "means over records of each one's subjects in a bin, 95 % t intervals",
        "bins of fewer than five records are omitted",
    )
    return with_caption(fig, _leaks_in_words(leaks_by_method), footer([run], data, *notes))


def _draw_binned(axes: Axes, others: pd.DataFrame, similarity: str, method: str) -> None:
    """Mean change by bin of similarity, over the records that have a subject in the bin."""
    bins = pd.cut(others[similarity], BINS, include_lowest=True)
    centres = []
    estimates = []
    for bin_of_subjects, of_bin in others.groupby(bins, observed=True):
        by_record = of_bin.groupby(["case_id", "relation"], dropna=False)["change"].mean()
        if len(by_record) >= 5:
            centres.append(max(bin_of_subjects.left, -0.1) / 2 + bin_of_subjects.right / 2)
            estimates.append(mean_interval(by_record))
    look = method_line(method)
    draw_intervals(
        axes,
        centres,
        rows_of_estimates(estimates, scale=1),
        fmt=f"{look['marker']}-",
        color=look["color"],
        fillstyle=look["fillstyle"],
        markersize=5,
        label=look["label"],
    )


def _leaks_in_words(leaks_by_method: Mapping[str, pd.DataFrame]) -> str:
    """The finding: with which method o* rises most at other subjects, and by how much with the others."""
    rise_by_method = {
        method_label(method): leaks[~leaks["is_own"]].groupby("case_id")["change"].mean().mean()
        for method, leaks in leaks_by_method.items()
    }
    first, *others = sorted(rise_by_method, key=lambda label: -rise_by_method[label])
    finding = (
        f"{first} makes the new answer o* more probable at other subjects as well, by"
        f" {rise_by_method[first]:.1f} nats per token"
    )
    if not others:
        return finding
    return f"{finding}; {' and '.join(others)} by {rise_by_method[others[0]]:.1f} at most"


@figure("04_undo", of="undone", main=MAIN_RUN)
def undo_panels(run: Run) -> Figure:
    """What returns of a fact's correct answers when its edit is edited back, and when it is removed."""
    returns = returns_of_run(run)
    rows = [(method, state) for method, by_state in returns.items() for state in by_state]
    heights = [-float(number) for number in range(len(rows))]
    fig, panels = plt.subplots(1, 3, figsize=(8.6, 0.3 * len(rows) + 1.9), sharey=True)
    titles = {
        "change": ("other correct answers", "change, nats per token"),
        "returned": ("returned: at least half of P", "percent of the answers"),
        "order": ("their order", "Kendall's τ with before"),
    }
    for axes, (measure, (title, unit)) in zip(panels, titles.items(), strict=True):
        is_fraction = measure == "returned"
        kind: Kind = "fraction" if is_fraction else "number"
        values_of_rows = [returns[method][state][measure] for method, state in rows]
        if measure == "change":  # the interval of the table's test, against none
            estimates = [paired(0 * values, values, kind).difference for values in values_of_rows]
        else:
            estimates = [interval(values, kind) for values in values_of_rows]
        estimates_of_rows = rows_of_estimates(estimates, scale=100 if is_fraction else 1)
        for number, state in enumerate(STATES):
            of_state = [index for index, row in enumerate(rows) if row[1] == state]
            draw_intervals(
                axes,
                [heights[index] for index in of_state],
                estimates_of_rows.iloc[of_state],
                fmt=MARKERS[number],
                color=PALETTE[number],
                label=state,
                **ACROSS,
            )
        axes.set(title=title, xlabel=unit)
        axes.grid(axis="y", visible=False)
    panels[0].set_yticks(heights, [f"{method_label(method)}, {state}" for method, state in rows])
    notes = (
        "to the first, to the list: a second edit whose target is the first correct answer, or all of them",
        "removed: the control",
        "95 % intervals",
    )
    return with_caption(fig, _undo_in_words(returns), footer([run], data_of(run), *notes))


def _undo_in_words(returns: Mapping[str, Mapping[str, pd.DataFrame]]) -> str:
    """The finding: how much has returned after each way back; means over editors."""
    words: list[str] = []
    editors = 0
    for state in WAYS_BACK:
        tables = [of_method[state] for of_method in returns.values() if state in of_method]
        if tables:
            editors = max(editors, len(tables))
            share = float(np.mean([table["returned"].mean() for table in tables]))
            returned = "after one" if words else "of the correct answers return after a second edit"
            words.append(f"{100 * share:.0f} % {returned} {state}")
    if not words:
        return "What returns of a fact's correct answers when its edit is undone"
    return f"{', '.join(words)} (means over {editors} editors)"
