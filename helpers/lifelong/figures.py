"""Lifelong runs as figures: who survives under which measure, what is forgotten by age, what breaks first."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullFormatter
from scipy.stats import spearmanr

from helpers.lifelong.measures import (
    FEWEST_ON_TOP,
    METRICS,
    NOTHING_LEFT,
    SIGNS,
    curve,
    ending,
    first_signs,
    measures_of_run,
)
from helpers.lifelong.tables import MOST_RECORDS, first_order_rows, so_what, track_label
from helpers.results.archive import Run
from helpers.results.figure import figure
from helpers.results.looks import method_line
from helpers.results.statistics import LEVEL, holm
from helpers.results.style import draw_intervals, with_caption
from helpers.results.text import footer

# Measures of the panels, and their titles.
_SURVIVAL = {
    "at once": "latest requests, written at once",
    "now": "all requests, given now",
    "generality": "all requests, in other words",
    "locality": "known facts, same next token",
    "exam": "exam, right answers",
    "perplexity": "perplexity ÷ unedited",
}
_ON_TOP = {
    "AFF": "other answers forgotten\n(AFF, lower is better)",
    "ANF": "false answers raised\n(ANF, lower is better)",
    "IFR": "old fact left along chains\n(IFR, lower is better)",
    "own": "subject's other facts left\n(higher is better)",
}
_MOST_PARTS = 10  # of a sequence, by age
_LEAST_OF_PART = 10  # requests of one
_LOWEST_PERPLEXITY, _HIGHEST_PERPLEXITY = 0.5, 1000.0  # ratios, if one model is beyond the second
_BARS = "95 % intervals"
_FURTHEST = 0.07  # of a method's marks from their checkpoint, in powers of ten


def _line_of(method: str, turns_and_order: str) -> dict[str, Any]:
    """A method's line; dotted where its turns are of several requests."""
    line = method_line(method) | {"label": track_label(method, turns_and_order), "markersize": 4}
    return line if turns_and_order.startswith("turns of 1,") else line | {"linestyle": ":"}


def _stream_footer(run: Run, *notes: str) -> str:
    """What a run's figures are drawn from, in one line."""
    orders = {
        turns_and_order.rpartition(", ")[2] for _, turns_and_order, _ in first_order_rows(run)
    }
    return footer([run], f"stream {run.about.source['dataset']}", *sorted(orders), *notes)


def _counts_of_measures(run: Run, words: Mapping[str, str]) -> str:
    """On how many items measures are at the last checkpoint, by the words for each."""
    counts: dict[str, set[int]] = {}
    for _, _, measures in first_order_rows(run):
        for measure in words:
            means = curve(measures, measure)
            if len(means):
                counts.setdefault(measure, set()).add(int(means["n"].iloc[-1]))
    ranges = []
    for measure, numbers in counts.items():
        low, high = min(numbers), max(numbers)
        ranges.append(f"{low if low == high else f'{low} to {high}'} {words[measure]}")
    return f"n: {', '.join(ranges)}"


@figure("10_survival", of="lifelong")
def survival(run: Run) -> Figure:
    """Who survives to how many edits, under which measure.

    Each line is a method, each panel a measure; the horizontal axis is logarithmic.
    """
    fig, panels = plt.subplots(2, 3, figsize=(9.8, 4.6), sharex=True)
    for axes, (measure, title) in zip(panels.flat, _SURVIVAL.items(), strict=True):
        for shift, method, turns_and_order, measures in _beside_each_other(run):
            means = curve(measures, measure).drop(index=0, errors="ignore")
            positions = means.index.to_numpy(float) * 10**shift
            draw_intervals(axes, positions, means, **_line_of(method, turns_and_order))
        axes.set_title(title, fontsize=9)
        _show_edits(axes, run)
        if measure == "perplexity":
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
            _limit_perplexity(axes)
        else:
            axes.set_ylim(-0.03, 1.03)
    for axes in panels[-1]:
        axes.set_xlabel("edits so far")
    for axes in panels[:, 0]:
        axes.set_ylabel("share")
    _name_methods(fig, panels[0, 0])
    words = {"now": "requests", "locality": "known facts", "exam": "questions"}
    caption = _stream_footer(run, _counts_of_measures(run, words), _BARS)
    first_sentence = so_what(run).remembering[0]
    finding = first_sentence.removesuffix(".").replace(" %", "\u00a0%")  # no line begins with it
    return with_caption(fig, finding, caption)


def _limit_perplexity(axes: Axes) -> None:
    """Cut the axis where a model is destroyed; within a decade it needs labels between the powers of ten."""
    if axes.get_ylim()[1] > _HIGHEST_PERPLEXITY:
        axes.set_ylim(_LOWEST_PERPLEXITY, _HIGHEST_PERPLEXITY)
    lowest, highest = axes.get_ylim()
    axes.yaxis.set_minor_formatter("{x:g}" if highest < 10 * lowest else NullFormatter())


def _beside_each_other(run: Run) -> Iterator[tuple[float, str, str, pd.DataFrame]]:
    """The methods of a run, each with a small shift, so that intervals stay apart."""
    rows = list(first_order_rows(run))
    shifts = np.linspace(-_FURTHEST, _FURTHEST, len(rows)) if len(rows) > 1 else [0.0]
    for shift, (method, turns_and_order, measures) in zip(shifts, rows, strict=True):
        yield float(shift), method, turns_and_order, measures


def _name_methods(fig: Figure, axes: Axes) -> None:
    """The methods of a panel's lines, at the right of all panels."""
    handles, labels = axes.get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside right center", fontsize=7)


def _show_edits(axes: Axes, run: Run) -> None:
    """Numbers of edits along a logarithmic axis, a tick at every checkpoint, labels at powers of ten."""
    checkpoints = sorted(set(measures_of_run(run)["edits"]) - {0})
    labelled = [edits for edits in checkpoints if np.log10(edits) % 1 == 0] or checkpoints
    axes.set_xscale("log")
    axes.set_xticks(
        checkpoints, [f"{edits:,}" if edits in labelled else "" for edits in checkpoints]
    )
    axes.set_xticks([], minor=True)
    axes.set_xlim(checkpoints[0] * 0.8, checkpoints[-1] * 1.25)


@figure("10_retention", of="lifelong")
def retention(run: Run) -> Figure:
    """What is left of the requests at the last checkpoint, by their age: a panel a method.

    Parts of the sequence, the oldest at the left; grey: the same requests right after their turn. The trend
    with age is tested over the single requests.
    """
    rows = [row for row in first_order_rows(run) if len(by_age(row[2], "now")) > 1]
    column_count = min(5, max(1, len(rows)))
    row_count = max(1, -(-len(rows) // column_count))
    fig, grid = plt.subplots(
        row_count,
        column_count,
        figsize=(9.8, 0.7 + 1.7 * row_count),
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    for axes in grid.flat[len(rows) :]:
        axes.set_visible(False)
    trends = []
    for axes, (method, turns_and_order, measures) in zip(grid.flat, rows, strict=False):
        share_now, share_at_once = (by_age(measures, measure) for measure in ("now", "made"))
        line = _line_of(method, turns_and_order)
        axes.plot(
            share_at_once.index / len(share_at_once), share_at_once, color="0.7", linestyle="--"
        )
        axes.plot(share_now.index / len(share_now), share_now, **line)
        axes.set_title("\n".join(textwrap.wrap(line["label"], 20)), fontsize=8)
        trends.append(_trend_with_place(measures))
    for axes in grid.flat:
        axes.set(
            ylim=(-0.03, 1.03), xlim=(0, 1.1), xticks=(0.1, 1.0), xticklabels=("oldest", "newest")
        )
    for axes in grid[:, 0]:
        axes.set_ylabel("share given now")
    corrected = holm([p_value for _, p_value in trends])
    forgetting_count = sum(
        bool(p_value < LEVEL) and correlation > 0
        for (correlation, _), p_value in zip(trends, corrected, strict=True)
    )
    subject = (
        f"{forgetting_count} of {len(trends)} methods give"
        if forgetting_count
        else "No method gives"
    )
    pronoun = "their" if forgetting_count else "its"
    finding = (
        f"{subject} significantly more of {pronoun} newer requests than of {pronoun} older ones"
    )
    notes = (
        _counts_of_measures(run, {"now": "requests"}),
        "by age; dashed: right after their turn",
        "rank correlation, Holm",
    )
    return with_caption(fig, finding, _stream_footer(run, *notes))


def _trend_with_place(measures: pd.DataFrame) -> tuple[float, float]:
    """Spearman's correlation of a request's place with whether it is given at the last checkpoint, and its p.

    NaN where all requests are alike.
    """
    last = measures["edits"].max()
    rows = measures[(measures["measure"] == "now") & (measures["edits"] == last)]
    if rows["value"].nunique() < 2:
        return float("nan"), float("nan")
    test = spearmanr(rows["item"], rows["value"].astype(float))
    return float(test.statistic), float(test.pvalue)


def by_age(measures: pd.DataFrame, measure: str) -> pd.Series:
    """A method's mean at its last checkpoint by part of the sequence, from 1, the oldest.

    There are ten parts, and fewer where these would have fewer than ten sampled requests.
    """
    last = measures["edits"].max()
    rows = measures[(measures["measure"] == measure) & (measures["edits"] == last)]
    part_count = max(1, min(_MOST_PARTS, len(rows) // _LEAST_OF_PART))
    parts = np.ceil(rows["item"] * part_count / last).astype(int)
    return rows["value"].astype(float).groupby(parts.to_numpy()).mean()


@figure("10_collapse", of="lifelong")
def first_to_collapse(run: Run) -> Figure:
    """What collapses first: the checkpoint at which each measure of a method is beyond its level.

    A row a method, a column a measure: the earlier, the darker. Empty where a method has nothing to lose, or
    changes no matrix.
    """
    rows = []
    for method, turns_and_order, measures in first_order_rows(run):
        end = f", {ending(measures)}" if ending(measures) else ""
        rows.append((track_label(method, turns_and_order) + end, measures))
    fig, axes = plt.subplots(figsize=(9.8, 0.3 * len(rows) + 1.8))
    checkpoints = sorted(set(measures_of_run(run)["edits"]) - {0})
    earliness = {edits: len(checkpoints) - n for n, edits in enumerate(checkpoints)}
    colours = plt.get_cmap("Oranges")
    for row, (_, measures) in enumerate(rows):
        signs = first_signs(measures)
        for column, measure in enumerate(SIGNS):
            if measure not in signs:
                continue  # nothing to lose, or no matrix
            edits = signs[measure]
            if edits is None:
                axes.text(column, row, "–", color="0.4", **_IN_CELL)
                continue
            darkness = earliness[edits] / len(checkpoints)
            axes.add_patch(
                Rectangle(
                    (column - 0.5, row - 0.5),
                    1,
                    1,
                    facecolor=colours(0.15 + 0.5 * darkness),
                    edgecolor="white",
                )
            )
            axes.text(column, row, f"{edits:,}", **_IN_CELL)
    axes.set_xticks(range(len(SIGNS)), [_sign_in_words(measure) for measure in SIGNS], fontsize=7)
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(rows)), [label for label, _ in rows])
    axes.set(xlim=(-0.5, len(SIGNS) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    axes.grid(visible=False)
    cells = (
        "edits when first beyond it; –: at none reached; empty: nothing to lose, or too few cases"
    )
    return with_caption(fig, so_what(run).collapse.removesuffix("."), _stream_footer(run, cells))


_IN_CELL: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8}


def _sign_in_words(measure: str) -> str:
    level = SIGNS[measure]
    comparison = "above" if level > 1 else "below"
    limit = f"{comparison} {level:g}"
    if measure in NOTHING_LEFT:
        limit = "halfway to chance" if NOTHING_LEFT[measure] > 0 else "halved"
    label = METRICS[measure].label.removeprefix("its ")
    return "\n".join([*textwrap.wrap(label, 12), limit])


@figure("10_on_top", of="lifelong")
def on_top_of_many(run: Run) -> Figure:
    """Additivity and deduction of a further edit, made upon 0 edits and upon more.

    AFF and ANF are forgetting and noise of PEAK records; IFR is what is left of the old fact along chains.
    Where most chains are lost before, few graphs are left to measure: means of fewer than three are omitted,
    and AFF and ANF where a further edit succeeds in no more than half of the records.
    """
    fig, panels = plt.subplots(1, len(_ON_TOP), figsize=(9.8, 2.9), sharey=True)
    checkpoints: list[int] = []
    for _, _, measures in first_order_rows(run):
        for measure in _ON_TOP:
            checkpoints += curve(measures, measure).index.tolist()
    ticks = {edits: number for number, edits in enumerate(sorted(set(checkpoints)))}
    for axes, (measure, title) in zip(panels, _ON_TOP.items(), strict=True):
        for shift, method, turns_and_order, measures in _beside_each_other(run):
            means = curve(measures, measure)
            means = means[means["n"] >= FEWEST_ON_TOP]
            if measure in ("AFF", "ANF"):
                success = curve(measures, "ES")["mean"].reindex(means.index)
                means = means[success > MOST_RECORDS]
            positions = [ticks[edits] + 3 * shift for edits in means.index]
            draw_intervals(
                axes, positions, means, **_line_of(method, turns_and_order) | _FAINT_BARS
            )
        axes.set(ylim=(-0.03, 1.03), xlim=(-0.25, max(len(ticks), 1) - 0.75))
        axes.set_title(title, fontsize=8)
        axes.set_xticks(list(ticks.values()), [f"{edits:,}" for edits in ticks])
        axes.set_xlabel("edits before")
    _name_methods(fig, panels[0])
    finding = so_what(run).additivity.removesuffix(".") or "No further edit was made"
    words = {"AFF": "records", "IFR": "graphs"}
    omitted = f"no mark: under {FEWEST_ON_TOP} graphs, ES ≤ ½"
    caption = _stream_footer(run, _counts_of_measures(run, words), _BARS, omitted)
    return with_caption(fig, finding, caption)


_FAINT_BARS = {"elinewidth": 0.4, "capsize": 0}
