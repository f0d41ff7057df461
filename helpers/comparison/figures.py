"""The front of editors as a figure: what an edit damages against what was asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from helpers import UserError
from helpers.comparison.measures import (
    NAMING,
    RowKey,
    Rows,
    in_order,
    models_of,
    stored_rows,
)
from helpers.editing.editors import distinct
from helpers.peak.figures import MAIN_RUN
from helpers.results.archive import Run
from helpers.results.figure import figure
from helpers.results.looks import method_line
from helpers.results.statistics import Estimate
from helpers.results.style import PointLabel, label_points, with_caption
from helpers.results.text import footer
from helpers.thinkedit.metrics import DEEP, OWN

PLACEBO_COLOUR = "0.5"
_ARROW_SAMPLES = (0.25, 0.5, 0.75)  # of an arrow's length, which labels avoid


@dataclass(frozen=True)
class Front:
    """A kind of panel: what was asked along the horizontal axis, the damage along the vertical one."""

    asked: str  # name of a measure
    asked_title: str
    damages: tuple[str, ...]  # names of measures, of which the worst counts
    damage_title: str
    items: str  # of which both are means, in words
    is_left: bool = False  # the stored measures are what is left, so that the damage is the rest

    def point(self, estimates: dict[str, Estimate]) -> tuple[Estimate, Estimate] | None:
        """What was asked and the damage, as fractions; None where one of them is not stored."""
        if not {self.asked, *self.damages} <= estimates.keys():
            return None
        damages = [estimates[name] for name in self.damages]
        if self.is_left:
            damages = [Estimate(1 - e.mean, 1 - e.high, 1 - e.low, e.n) for e in damages]
        return estimates[self.asked], max(damages, key=lambda damage: damage.mean)


FRONTS = (
    Front(
        NAMING,
        "share of responses that name the new answer",
        ("AFF",),
        "share of other answers forgotten (AFF)",
        "records",
    ),
    Front(
        DEEP,
        "share of edits that leave no chain of two or more steps (deep)",
        (OWN, "CKP"),
        "share lost of the subject's other facts,\nor of other subjects' facts if more",
        "recalled facts",
        is_left=True,
    ),
)


@figure("09_front", of="peak", main=MAIN_RUN, together=True)
def front_panels(runs: Sequence[Run]) -> Figure:
    """Damage against what was asked, a column of panels a model: lower right is better.

    Above: free text that names the new answer, and other answers forgotten. Below: edits that leave no chain
    to the old fact, and what is lost of the subject's other facts or, if more, of facts about other
    subjects. Arrows lead from an editor to itself with APP.
    AFF and naming are of the records that each can be measured on; with APP fewer of what a model recalls is
    edited. Without editors whose two measures are of different settings, and without rows that are scored on
    half of the answers or chains.
    """
    names = {run.about.source["model"] for run in runs}
    rows = {
        key: row for key, row in stored_rows().items() if key.model in names and not key.half_shown
    }
    model_names = [
        name
        for name in models_of(rows)
        if any(len(_points(rows, name, front)) > 1 for front in FRONTS)
    ]
    if not model_names:
        raise UserError(
            f"{', '.join(sorted(names))}: no two editors have both measures of a panel stored; publish"
            " notebook 08's run, or one of what the model recalls"
        )
    fig, panels = plt.subplots(
        len(FRONTS),
        len(model_names),
        figsize=(10.2, 5.8),
        sharex="row",
        sharey="row",
        squeeze=False,
    )
    counts: dict[Front, set[int]] = {}
    for panels_of_front, front in zip(panels, FRONTS, strict=True):
        for axes, model_name in zip(panels_of_front, model_names, strict=True):
            points = _points(rows, model_name, front)
            axes.set_visible(len(points) > 1)
            _draw_points(axes, points)
            axes.set_title(model_name, fontsize=8)
            axes.set_xlabel(front.asked_title, fontsize=8)
            for _, damage in points.values():
                counts.setdefault(front, set()).add(damage.n)
        panels_of_front[0].set_ylabel(front.damage_title, fontsize=8)
    fig.draw_without_rendering()  # lays the panels out, for labels in inches
    for panels_of_front, front in zip(panels, FRONTS, strict=True):
        for axes, model_name in zip(panels_of_front, model_names, strict=True):
            _label_editors(axes, _points(rows, model_name, front))
    ranges = [
        f"{min(numbers)} to {max(numbers)} {front.items}" for front, numbers in counts.items()
    ]
    shown_runs = [run for run in runs if run.about.source["model"] in model_names]
    notes = ("95 % intervals", "hollow: with APP", "×: placebo", "MEND: undertrained")
    caption = footer(shown_runs, f"n = {', '.join(ranges)}", *notes)
    return with_caption(fig, _front_in_words(rows, model_names), caption)


Points = dict[RowKey, tuple[Estimate, Estimate]]


def _points(rows: Rows, model: str, front: Front) -> Points:
    """The points of a model's panel; without methods that are another one by construction."""
    keys = [key for key in in_order(rows) if key.model == model]
    kept = set(distinct(dict.fromkeys(key.method for key in keys)))
    points = {}
    for key in keys:
        point = front.point(rows[key].estimates) if key.method in kept else None
        if point is not None:
            points[key] = point
    return points


def _draw_points(axes: Axes, points: Points) -> None:
    for key, (effect, damage) in points.items():
        line = {**method_line(key.method), "linestyle": "", "markersize": 6}
        if key.placebo:
            line |= {"color": PLACEBO_COLOUR, "marker": "x", "label": "placebo"}
        axes.errorbar(
            effect.mean,
            damage.mean,
            xerr=_whisker_lengths(effect),
            yerr=_whisker_lengths(damage),
            elinewidth=0.5,
            **line,
        )
    for key, (effect, damage) in points.items():
        editor, _, objective = key.method.partition("+")
        plain = key._replace(method=editor)
        if objective == "app" and plain in points:
            effect_plain, damage_plain = points[plain]
            axes.annotate(
                "",
                xy=(effect.mean, damage.mean),
                xytext=(effect_plain.mean, damage_plain.mean),
                arrowprops={"arrowstyle": "->", "color": "0.3", "linewidth": 0.9},
            )
    axes.text(1.0, 0.0, "better ↘", fontsize=7, color="0.4", ha="right")
    axes.set_xlim(-0.04, 1.04)
    axes.set_ylim(-0.04, 1.04)


def _label_editors(axes: Axes, points: Points) -> None:
    """Names next to the marks of plain editors and placebos; those with APP are where the arrows lead."""
    labelled: list[PointLabel] = []
    others: list[PointLabel] = []
    for key, (effect, damage) in points.items():
        line = method_line(key.method)
        label = PointLabel(effect.mean, damage.mean, line["label"], line["color"])
        if key.placebo:
            label = label._replace(colour=PLACEBO_COLOUR)
        (others if "+" in key.method else labelled).append(label)
        plain = key._replace(method=key.method.partition("+")[0])
        if plain != key and plain in points:
            effect_plain, damage_plain = points[plain]
            for share in _ARROW_SAMPLES:
                x = effect.mean + share * (effect_plain.mean - effect.mean)
                y = damage.mean + share * (damage_plain.mean - damage.mean)
                others.append(label._replace(x=x, y=y))
    whiskers = [
        box
        for effect, damage in points.values()
        for box in (
            Bbox([[effect.low, damage.mean], [effect.high, damage.mean]]),
            Bbox([[effect.mean, damage.low], [effect.mean, damage.high]]),
        )
    ]
    label_points(axes, labelled, others, whiskers)


def _whisker_lengths(estimate: Estimate) -> np.ndarray:
    """From the mean to the ends of its interval [2, 1]; 0 where there is none."""
    ends = [[estimate.mean - estimate.low], [estimate.high - estimate.mean]]
    return np.nan_to_num(np.clip(ends, 0, None))


def _front_in_words(rows: Rows, model_names: Sequence[str]) -> str:
    """The least that any editor loses of one of the two kinds of facts where most of its edits are deep."""
    lost = [
        damage.mean
        for model_name in model_names
        for key, (asked, damage) in _points(rows, model_name, FRONTS[1]).items()
        if asked.mean > 0.5 and not key.placebo
    ]
    if not lost:
        return "What edits damage, against what was asked of them"
    return (
        f"Editors that mostly leave no chain to the old fact lose {100 * min(lost):.0f} % or more of the"
        " subject's other facts, or of other subjects' facts"
    )
