"""The figures of what an edit costs, drawn from stored tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.costs.held_out_answers import (
    FOREIGN,
    HALF,
    SHOWN,
    UNSHOWN,
    Protection,
    editors_held_out,
    protections,
)
from helpers.costs.leaks import BINS, leaks_of_run, slope_by_record
from helpers.costs.strength import (
    DAMAGES,
    Matched,
    StrengthCurve,
    less_damage,
    matched_pairs,
    strength_curves,
)
from helpers.costs.undo import (
    BACK_TO_FIRST,
    BACK_TO_LIST,
    EDITED,
    STATES,
    WAYS_BACK,
    returns_of_run,
)
from helpers.editing.editors import method_label
from helpers.peak.figures import ACROSS, MAIN_RUN, rows_of_estimates
from helpers.peak.metrics import METRICS, metric_interval
from helpers.peak.tables import data_of
from helpers.results.archive import Run
from helpers.results.figure import figure
from helpers.results.looks import method_line
from helpers.results.statistics import (
    LEVEL,
    Kind,
    holm,
    interval,
    mean_above,
    mean_interval,
    paired,
)
from helpers.results.style import (
    AT_RIGHT,
    CONDITION_COLOURS,
    MARKERS,
    condition_look,
    draw_intervals,
    with_caption,
)
from helpers.results.text import footer

_PRIMARY_STRENGTH = "P"
_FEWEST_IN_BIN = 5  # records
_AFTER_STATE = {
    EDITED: "after the edit",
    BACK_TO_FIRST: "after a second edit back to the first",
    BACK_TO_LIST: "after one back to the list",
}
_GIVEN_WORDS = {
    "half": "half of both lists",
    "half of O": "half of the correct answers alone",
    "foreign O": "another record's (control)",
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
        f"n = {counts_in_words} records",
        "95 % intervals",
        "above: means of editors",
        "control: correct answers of another record, and the shown half of the false ones",
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
    for index, (half, aside) in enumerate(((SHOWN, 0.1), (UNSHOWN, -0.1))):
        at_rows = [row + aside for row in rows]
        draw_intervals(
            axes,
            at_rows,
            estimates_of_half[half],
            label=half,
            mfc=None if half == SHOWN else "white",
            **condition_look(index),
            **ACROSS,
        )
    axes.axvline(0, color="0.4", linewidth=0.8)
    axes.grid(axis="y", visible=False)
    axes.margins(y=0.1)


def _held_out_in_words(compared: Sequence[Protection]) -> str:
    """The finding: means over editors of what is protected of either half, where half was given."""
    primary = [protection for protection in compared if protection.given == HALF]
    controls = [protection for protection in compared if protection.given == FOREIGN]
    is_protected = all(protection.of_half(UNSHOWN).difference.low > 0 for protection in primary)
    words = []
    for name, damage in (("AFF", "forgetting"), ("ANF", "noise")):
        compared_with = [f"shown: {_mean_protection(primary, name, SHOWN):.0f}"]
        if controls:
            compared_with.append(f"control: {_mean_protection(controls, name, UNSHOWN):.0f}")
        points = f"{_mean_protection(primary, name, UNSHOWN):.0f} points"
        words.append(f"{points} less {damage} ({', '.join(compared_with)})")
    beginning = "APP also protects" if is_protected else "APP acts on"
    return f"Given {_GIVEN_WORDS[HALF]}, {beginning} the other half: {words[0]}, {words[1]}"


def _mean_protection(compared: Sequence[Protection], name: str, half: str) -> float:
    """The mean over editors of what is protected of a half by a measure, in points."""
    of_measure = [protection for protection in compared if protection.metric.name == name]
    return 100 * float(np.mean([p.of_half(half).difference.mean for p in of_measure]))


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
    does_less = less_damage(primary)
    for axes, measure in zip(panels, DAMAGES, strict=True):
        for pair in primary:
            _draw_gap(axes, pair, measure, is_less=does_less[pair.curve.method, measure])
    counts = sorted({len(curve.by_scale[1.0]) for curve in curves.values()})
    scales = {scale for curve in curves.values() for scale in curve.scales}
    notes = (
        f"means of n = {', '.join(map(str, counts))} records",
        f"curves: the update times {min(scales):g} to {max(scales):g}",
        "points: methods as they are, 95 % intervals",
        "arrows: to APP, dotted: inconclusive (bootstrap, Holm)",
    )
    return with_caption(fig, _matched_in_words(does_less), footer([run], data_of(run), *notes))


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
        mfc=look["mfc"],
        markersize=8,
        label=look["label"],
    )


def _draw_gap(axes: Axes, pair: Matched, measure: str, *, is_less: bool) -> None:
    """An arrow from an editor's scaled update to the editor with APP, dotted where it is inconclusive."""
    level = 100 * float(pair.other[pair.strength].mean())
    scaled, with_app = (100 * damage for damage in pair.damage(measure))
    if np.isnan(scaled):
        return  # the editor is never as strong
    line_style = "-" if is_less else ":"
    aside = 0.7  # from the interval of the mark
    colour = method_line(pair.curve.method)["color"]
    arrow = {"arrowstyle": "->", "color": colour, "linewidth": 1.2, "linestyle": line_style}
    axes.annotate(
        "", xy=(level - aside, with_app), xytext=(level - aside, scaled), arrowprops=arrow, zorder=6
    )


def _matched_in_words(does_less: Mapping[tuple[str, str], bool]) -> str:
    """For how many editors APP does less damage than an update of the same strength."""
    forgetting, noise = (_editors_in_words(does_less, measure) for measure in DAMAGES)
    return (
        f"At equal P(o*) APP forgets less than the scaled update for {forgetting} and adds less noise for"
        f" {noise}"
    )


def _editors_in_words(does_less: Mapping[tuple[str, str], bool], measure: str) -> str:
    of_measure = {
        editor: is_less for (editor, name), is_less in does_less.items() if name == measure
    }
    others = [method_label(editor) for editor, is_less in of_measure.items() if not is_less]
    words = f"{len(of_measure) - len(others)} of {len(of_measure)} editors"
    return f"{words} (inconclusive: {', '.join(others)})" if others else words


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
        "means over records, 95 % t intervals",
        f"no mark: fewer than {_FEWEST_IN_BIN} records",
        "more similar: tested by rank correlation",
    )
    return with_caption(fig, _leaks_in_words(leaks_by_method), footer([run], data, *notes))


def _draw_binned(axes: Axes, others: pd.DataFrame, similarity: str, method: str) -> None:
    """Mean change by bin of similarity, over the records that have a subject in the bin.

    A line is broken where a bin has too few of them.
    """
    bins = pd.cut(others[similarity], BINS, include_lowest=True)
    estimates = {}
    for bin_of_subjects, of_bin in others.groupby(bins, observed=True):
        by_record = of_bin.groupby(["case_id", "relation"], dropna=False)["change"].mean()
        if len(by_record) >= _FEWEST_IN_BIN:
            estimates[bin_of_subjects] = mean_interval(by_record)
    all_bins = bins.cat.categories
    of_bins = rows_of_estimates(estimates.values(), scale=1).set_axis([*estimates], axis=0)
    centres = [max(one_bin.left, -0.1) / 2 + one_bin.right / 2 for one_bin in all_bins]
    look = method_line(method)
    draw_intervals(
        axes,
        centres,
        of_bins.reindex(all_bins),
        fmt=f"{look['marker']}-",
        color=look["color"],
        mfc=look["mfc"],
        markersize=5,
        label=look["label"],
    )


def _leaks_in_words(leaks_by_method: Mapping[str, pd.DataFrame]) -> str:
    """How far o* rises on average at other subjects with each method, and whether similar ones rise more."""
    rises = {
        method_label(method): leaks[~leaks["is_own"]].groupby("case_id")["change"].mean().mean()
        for method, leaks in leaks_by_method.items()
    }
    slopes = [
        mean_above(slope_by_record(leaks, "whitened"), 0.0, "number")
        for leaks in leaks_by_method.values()
    ]
    corrected = holm([slope.p_value for slope in slopes])
    follows_keys = all(
        p_value < LEVEL and slope.difference.mean > 0
        for p_value, slope in zip(corrected, slopes, strict=True)
    )
    first, *others = sorted(rises, key=lambda label: -rises[label])
    others_in_words = ", ".join(f"{label}: {rises[label]:z.1f}" for label in others)
    finding = (
        f"{first} makes the new answer o* more probable at other subjects, by {rises[first]:.1f} nats per"
        f" token on average{f' ({others_in_words})' if others else ''}"
    )
    return f"{finding}; o* rises more where keys are more similar" if follows_keys else finding


@figure("04_undo", of="undone", main=MAIN_RUN)
def undo_panels(run: Run) -> Figure:
    """What returns of a fact's correct answers when its edit is edited back, and when it is removed."""
    returns = returns_of_run(run)
    rows = [(method, state) for method, by_state in returns.items() for state in by_state]
    heights = [-float(number) for number in range(len(rows))]
    fig, panels = plt.subplots(1, 3, figsize=(8.6, 0.3 * len(rows) + 1.9), sharey=True)
    titles = {
        "change": ("other correct answers", "change, nats per token"),
        "returned": ("have half of P per token", "percent of the answers"),
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
                color=CONDITION_COLOURS[0],
                fmt=MARKERS[number],
                label=state,
                **ACROSS,
            )
        counts = ", ".join(str(n) for n in sorted({estimate.n for estimate in estimates}))
        axes.set_title(title)
        axes.set_xlabel(f"{unit}, n = {counts}", fontsize=8)
        axes.grid(axis="y", visible=False)
    panels[0].set_yticks(heights, [f"{method_label(method)}, {state}" for method, state in rows])
    notes = (
        "back: a second edit whose target is the first correct answer, or the list of all",
        "removed: the update subtracted again (control)",
        "95 % intervals",
    )
    return with_caption(fig, _undo_in_words(returns), footer([run], data_of(run), *notes))


def _undo_in_words(returns: Mapping[str, Mapping[str, pd.DataFrame]]) -> str:
    """The finding: how many answers are as probable as before after the edit and each way back; means."""
    shares: dict[str, float] = {}
    editors = 0
    for state in (EDITED, *WAYS_BACK):
        tables = [of_method[state] for of_method in returns.values() if state in of_method]
        if tables:
            editors = max(editors, len(tables))
            shares[state] = 100 * float(np.mean([table["returned"].mean() for table in tables]))
    if not set(WAYS_BACK) & set(shares):
        return "What returns of a fact's correct answers when its edit is undone"
    words = [f"{share:.0f} % {_AFTER_STATE[state]}" for state, share in shares.items()]
    highest = max(
        table["order"].mean()
        for of_method in returns.values()
        for state, table in of_method.items()
        if state in shares
    )
    return (
        f"Answers with half of their probability per token or more: {', '.join(words)} (means of"
        f" {editors} editors);"
        f" their order correlates with the original one at τ = {highest:.2f} at most"
    )
