"""One look for all figures and editing methods: colour-blind-safe, readable in grey, deterministic."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Bbox
from numpy.typing import ArrayLike

from helpers.paths import PACKAGED, figures_folder, file_name

# Eight colours that readers with any colour vision distinguish (seaborn's "colorblind").
PALETTE = tuple(
    to_rgb(f"#{code}")
    for code in ["0173b2", "de8f05", "029e73", "d55e00", "cc78bc", "ca9161", "fbafe4", "949494"]
)
# An editor has a colour of its own in every figure (``looks.py``). Models have shades of slate, conditions
# (kinds of facts, settings, what was shown) shades of indigo, from dark to light.
MODEL_COLOURS = ("#1b2a33", "#557280", "#93abb8")
CONDITION_COLOURS = ("#332288", "#7d70c8", "#ada4e0")
BEFORE_LOOK: dict[str, Any] = {
    "marker": "o",
    "color": "0.45",
}  # of an unedited model in a scatter plot
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_MODEL_MARKERS = ("o", "D", "^")
_LETTERS = 16  # of a caption to an inch
_DARKER = 0.75  # letters are thinner than lines


def use_style() -> None:
    """Switch matplotlib to the suite's look, whatever a matplotlibrc or a session has set."""
    import seaborn as sns  # takes a second

    matplotlib.rcdefaults()
    sns.set_theme(style="whitegrid", context="paper")
    plt.style.use(PACKAGED / "figures.mplstyle")


@contextmanager
def in_style() -> Iterator[None]:
    """The suite's look inside the block; the session's own comes back after it."""
    with plt.rc_context():
        use_style()
        yield


def model_look(model_index: int) -> dict[str, Any]:
    """Colour and marker of a figure's models, the first one darkest, as ``draw_intervals`` takes them."""
    number = model_index % len(MODEL_COLOURS)
    return {"color": MODEL_COLOURS[number], "fmt": _MODEL_MARKERS[number]}


def condition_look(condition_index: int) -> dict[str, Any]:
    """Colour and marker of a figure's conditions, the first one darkest, as ``draw_intervals`` takes them."""
    number = condition_index % len(CONDITION_COLOURS)
    return {"color": CONDITION_COLOURS[number], "fmt": MARKERS[condition_index]}


# A legend at the right of its panel: what a figure is drawn from is below the panels.
AT_RIGHT: dict[str, Any] = {
    "loc": "center left",
    "bbox_to_anchor": (1.0, 0.5),
    "fontsize": 7,
}


def without_mathematics(text: str) -> str:
    """Text from data as a figure shows it as it is: two dollar signs would be mathematics."""
    return text.replace("$", r"\$")


def with_caption(fig: Figure, finding: str, caption: str) -> Figure:
    """The figure under the finding it shows, what it is drawn from in small print below the panels."""
    width = fig.get_figwidth()
    finding_lines = textwrap.wrap(finding, int(0.8 * _LETTERS * width), break_on_hyphens=False)
    # A line does not end before a percent sign.
    caption_lines = textwrap.wrap(caption.replace(" %", "\u00a0%"), int(18 * width))
    fig.suptitle(without_mathematics("\n".join(finding_lines)), x=0.01, ha="left", fontsize=10)
    fig.supxlabel(
        without_mathematics("\n".join(caption_lines)), x=0.01, ha="left", fontsize=7, color="0.35"
    )
    return fig


def save_figure(fig: Figure, name: str, folder: Path | None = None) -> list[Path]:
    """Write ``name``.png and ``name``.svg without dates, so that equal figures are equal files."""
    folder = folder or figures_folder()
    folder.mkdir(parents=True, exist_ok=True)
    plt.close(fig)  # of pyplot's figures; it is drawn all the same
    png_file = folder / f"{file_name(name)}.png"
    svg_file = folder / f"{file_name(name)}.svg"
    with in_style():  # some of it matters only now: fonts, resolution
        fig.savefig(png_file, metadata={"Software": None})
        fig.savefig(svg_file, metadata={"Date": None})
    return [png_file, svg_file]


class PointLabel(NamedTuple):
    """A point of a panel, in its units, and its label."""

    x: float
    y: float
    label: str
    colour: Any


def label_points(
    axes: Axes,
    points: Sequence[PointLabel],
    others: Sequence[PointLabel],
    whiskers: Sequence[Bbox] = (),
) -> None:
    """Label points next to them, in their colours, where least of what is drawn is covered.

    ``others`` are points without a label, ``whiskers`` the intervals, both in the panel's units. The panel's
    scales and limits must be final.
    """
    panel_size = _panel_size(axes)
    to_panel = axes.transScale + axes.transLimits

    def mark_of(point: PointLabel) -> np.ndarray:
        """Where the point is in the panel, in inches [2]."""
        return to_panel.transform((point.x, point.y)) * panel_size

    marks = [mark_of(point) for point in (*points, *others)]
    covered_boxes = [Bbox([mark - 0.05, mark + 0.05]) for mark in marks]
    for whisker in whiskers:
        in_inches = Bbox(to_panel.transform(whisker.get_points()) * panel_size)
        covered_boxes.append(in_inches.padded(0.01))
    label_boxes: list[Bbox] = []
    for point in points:
        mark = mark_of(point)
        size = np.array([0.07 * len(point.label), 0.12])  # inches, of small print
        candidates = [
            Bbox.from_bounds(*(mark + offset - size * share), *size)
            for reach in (1.0, 2.0, 3.0, 4.0, 5.0)
            for offset, share in _places_around(0.08 * reach)
        ]
        costs = [
            _covered(candidate, covered_boxes, panel_size)
            + _COST_OF_LABEL * _shared_area(candidate, label_boxes)
            + _COST_OF_INCH * _distance(mark, candidate)
            for candidate in candidates
        ]
        box = candidates[int(np.argmin(costs))]
        label_boxes.append(box)
        is_far = _distance(mark, box) > _LEADER_INCHES
        axes.annotate(
            point.label,
            (point.x, point.y),
            xytext=(72 * (box.x0 - mark[0]), 72 * (box.y0 - mark[1])),
            textcoords="offset points",
            fontsize=6.5,
            color=[_DARKER * channel for channel in to_rgb(point.colour)],
            arrowprops=_LEADER if is_far else None,
            path_effects=[withStroke(linewidth=2, foreground="white")],  # over the grid
            zorder=5,
        )


_COST_OF_LABEL = 10  # to cover another label, against a mark or an interval
_COST_OF_INCH = 0.05  # between a mark and its label, in covered square inches
_LEADER_INCHES = 0.12  # from a mark on, a line leads from its label to it
_LEADER: dict[str, Any] = {
    "arrowstyle": "-",
    "color": "0.6",
    "linewidth": 0.6,
    "shrinkA": 1,
    "shrinkB": 2,
}


def _panel_size(axes: Axes) -> np.ndarray:
    """Width and height of a panel in inches [2]."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure.get_size_inches() * axes.get_position().size


def _places_around(reach: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """Places around a point: an offset in inches, and which part of the text lies there."""
    directions = [(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1)]
    return [
        (reach * np.array(direction), np.array([(1 - direction[0]) / 2, (1 - direction[1]) / 2]))
        for direction in directions
    ]


def _distance(mark: np.ndarray, box: Bbox) -> float:
    """From a mark to the nearest place of a box, in inches."""
    return float(np.linalg.norm(np.clip(mark, box.min, box.max) - mark))


def _covered(box: Bbox, others: Sequence[Bbox], panel_size: np.ndarray) -> float:
    """The area of a box that others cover, and what of it is outside the panel."""
    inside = Bbox.intersection(box, Bbox.from_bounds(0, 0, *panel_size))
    inside_area = 0.0 if inside is None else inside.width * inside.height
    return _shared_area(box, others) + box.width * box.height - inside_area


def _shared_area(box: Bbox, others: Sequence[Bbox]) -> float:
    """The area of a box that others cover."""
    shared = [Bbox.intersection(box, other) for other in others]
    return sum(part.width * part.height for part in shared if part is not None)


def draw_intervals(
    axes: Axes,
    positions: ArrayLike,
    intervals: pd.DataFrame,
    *,
    across: bool = False,
    **mark_style: Any,
) -> None:
    """Marks with their 95 % intervals (mean, low, high), at one place a row; a missing end has no whisker.

    ``across``: values lie along the horizontal axis.
    """
    means = intervals["mean"].to_numpy(float)
    lows = intervals["low"].to_numpy(float)
    highs = intervals["high"].to_numpy(float)
    distances_to_ends = np.nan_to_num(np.clip([means - lows, highs - means], 0, None))
    error_bar_style: dict[str, Any] = {"elinewidth": 0.8, "capsize": 2, **mark_style}
    if across:
        axes.errorbar(means, positions, xerr=distances_to_ends, **error_bar_style)
    else:
        axes.errorbar(positions, means, yerr=distances_to_ends, **error_bar_style)
