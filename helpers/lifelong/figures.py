"""Lifelong runs as figures: who survives under which measure, what is forgotten by age, what breaks first."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.lifelong.measures import METRICS, SIGNS, curve, first_signs, measures_of_run
from helpers.lifelong.tables import lifelong_caption, method_rows, so_what, track_label
from helpers.results.archive import Run
from helpers.results.figure import figure
from helpers.results.looks import method_line
from helpers.results.style import AT_RIGHT, MARKERS, PALETTE, draw_intervals, with_caption

_SURVIVAL = ("at once", "now", "free text", "locality", "exam", "perplexity")
_ON_TOP = ("AFF", "ANF", "IFR", "own")
_DECILES = 10


def _line_of(method: str, mode: str) -> dict[str, Any]:
    """A method's line; dotted where its turns are of several requests."""
    line = method_line(method) | {"label": track_label(method, mode), "markersize": 4}
    return line if mode.startswith("turns of 1,") else line | {"linestyle": ":"}


@figure("10_survival", of="lifelong")
def survival(run: Run) -> Figure:
    """Who survives to how many edits, under which measure.

    Each line is a method, each panel a measure; the horizontal axis is logarithmic.
    """
    fig, panels = plt.subplots(2, 3, figsize=(9.2, 4.6), sharex=True)
    for axes, measure in zip(panels.flat, _SURVIVAL, strict=True):
        for method, mode, measures in method_rows(run):
            means = curve(measures, measure).drop(index=0, errors="ignore")
            line = _line_of(method, mode)
            draw_intervals(axes, means.index.to_numpy(float), means, **line)
        axes.set(title=METRICS[measure].label)
        _show_edits(axes, run)
        if measure != "perplexity":
            axes.set_ylim(-0.03, 1.03)
            continue
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
    for axes in panels[-1]:
        axes.set_xlabel("edits so far")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside right center", fontsize=7)
    note = (
        "95 % intervals: of requests by subject, else over known facts, questions (exam: share of 200) and"
        " windows of text (perplexity as a ratio)"
    )
    return with_caption(fig, so_what(run)[0].removesuffix("."), f"{lifelong_caption(run)}\n{note}")


def _show_edits(axes: Axes, run: Run) -> None:
    """Numbers of edits along a logarithmic axis, with a tick at every checkpoint."""
    checkpoints = sorted(set(measures_of_run(run)["edits"]) - {0})
    axes.set_xscale("log")
    axes.set_xticks(checkpoints, [f"{edits:,}" for edits in checkpoints], minor=False)
    axes.set_xticks([], minor=True)


@figure("10_retention", of="lifelong")
def retention(run: Run) -> Figure:
    """What is left of the requests at the last checkpoint, by their age.

    Deciles of the sequence, the oldest at the left; hollow: the same requests right after their turn.
    """
    fig, axes = plt.subplots(figsize=(7.2, 3.4))
    oldest_and_newest: list[tuple[float, float]] = []
    for method, mode, measures in method_rows(run):
        share_now = by_age(measures, "now")
        if len(share_now) < 2:
            continue
        line = _line_of(method, mode)
        axes.plot(share_now.index, share_now, **line)
        share_at_once = by_age(measures, "made")
        axes.plot(
            share_at_once.index,
            share_at_once,
            **line | {"fillstyle": "none", "linestyle": "", "label": ""},
        )
        oldest_and_newest.append((share_now.iloc[0], share_now.iloc[-1]))
    axes.set(xlabel="decile of the sequence (1: the oldest requests)", ylabel="share written")
    axes.set(ylim=(-0.03, 1.03), xticks=range(1, _DECILES + 1))
    axes.legend(**AT_RIGHT)
    lost_count = sum(newest > oldest for oldest, newest in oldest_and_newest)
    finding = (
        f"{lost_count} of {len(oldest_and_newest)} methods have written fewer of their oldest requests than"
        " of their newest ones (not tested)"
    )
    return with_caption(fig, finding, lifelong_caption(run))


def by_age(measures: pd.DataFrame, measure: str) -> pd.Series:
    """A method's mean at its last checkpoint by decile of the sequence, from 1, the oldest."""
    last = measures["edits"].max()
    rows = measures[(measures["measure"] == measure) & (measures["edits"] == last)]
    deciles = np.ceil(rows["item"] * _DECILES / last).astype(int)
    return rows["value"].astype(float).groupby(deciles.to_numpy()).mean()


@figure("10_collapse", of="lifelong")
def first_to_collapse(run: Run) -> Figure:
    """What collapses first: the checkpoint at which each measure of a method is beyond its level.

    A mark at the right edge, hollow: it never is.
    """
    rows = [(track_label(method, mode), measures) for method, mode, measures in method_rows(run)]
    fig, axes = plt.subplots(figsize=(7.6, 0.34 * len(rows) + 1.8))
    last_edits = max(int(measures["edits"].max()) for _, measures in rows)
    beyond_end = 3.0 * last_edits
    for height, (_, measures) in enumerate(rows):
        signs = first_signs(measures)
        for number, measure in enumerate(SIGNS):
            if measure not in signs:
                continue
            edits = signs[measure]
            position = beyond_end * 1.12**number if edits is None else edits
            shifted_height = height + 0.11 * (number - 2.5)
            fill = "none" if edits is None else "full"
            mark: dict[str, Any] = {"marker": MARKERS[number], "color": PALETTE[number]}
            axes.plot(position, shifted_height, linestyle="", fillstyle=fill, **mark)
    _label_signs(axes)
    _show_edits(axes, run)
    axes.axvline(1.7 * last_edits, color="0.7", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [label for label, _ in rows])
    axes.invert_yaxis()
    axes.set_xlabel("edits so far; right of the line: never")
    axes.legend(**AT_RIGHT)
    return with_caption(fig, so_what(run)[1].removesuffix("."), lifelong_caption(run))


def _label_signs(axes: Axes) -> None:
    for number, (measure, level) in enumerate(SIGNS.items()):
        comparison = "above" if level > 1 else "below"
        label = f"{METRICS[measure].label} {comparison} {level:g}"
        axes.plot([], [], MARKERS[number], color=PALETTE[number], label=label)


@figure("10_on_top", of="lifelong")
def on_top_of_many(run: Run) -> Figure:
    """Additivity and deduction of a further edit, made upon 0 edits and upon more.

    AFF and ANF are forgetting and noise of PEAK records; IFR is what is left of the old fact along chains.
    """
    fig, panels = plt.subplots(1, len(_ON_TOP), figsize=(9.2, 2.9), sharey=True)
    checkpoints: list[int] = []
    for _, _, measures in method_rows(run):
        for measure in _ON_TOP:
            checkpoints += curve(measures, measure).index.tolist()
    middle = (len(list(method_rows(run))) - 1) / 2
    ticks = {edits: number for number, edits in enumerate(sorted(set(checkpoints)))}
    for axes, measure in zip(panels, _ON_TOP, strict=True):
        for number, (method, mode, measures) in enumerate(method_rows(run)):
            means = curve(measures, measure)
            shift = 0.05 * (number - middle)  # so that intervals stay apart
            positions = [ticks[edits] + shift for edits in means.index]
            draw_intervals(axes, positions, means, **_line_of(method, mode))
        axes.set(title=METRICS[measure].label.replace(" of ", "\nof "), ylim=(-0.03, 1.03))
        axes.set_xticks(list(ticks.values()), [str(edits) for edits in ticks])
        axes.set_xlabel("edits before")
    handles, labels = panels[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside right center", fontsize=7)
    sentences = so_what(run)
    finding = sentences[-1].removesuffix(".") if len(sentences) > 2 else "No further edit was made"
    return with_caption(fig, finding, lifelong_caption(run))
