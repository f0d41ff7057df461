"""One look for all figures: colour-blind-safe, readable in grey, written deterministically."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.paths import FIGURES

PALETTE = tuple(sns.color_palette("colorblind", 8))
HATCHES = ("", "///", "...", "\\\\\\", "xxx", "++", "ooo", "--")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

_SETTINGS = {
    "figure.dpi": 100,
    "savefig.dpi": 160,
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
    "svg.hashsalt": "helpers",
    "svg.fonttype": "none",
}


def use_style() -> None:
    """Switch matplotlib to the suite's look."""
    sns.set_theme(style="whitegrid", context="paper")
    mpl.rcParams.update(_SETTINGS)


def save_figure(figure: Figure, name: str, folder: Path = FIGURES) -> list[Path]:
    """Write ``name``.png and ``name``.svg without dates, so equal figures are equal files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    figure.savefig(paths[0], metadata={"Software": None})
    figure.savefig(paths[1], metadata={"Date": None})
    return paths


def hatch_bars(axes: Axes) -> None:
    """Give each group of bars its own hatch, so that colour is never needed to tell them apart."""
    for index, container in enumerate(axes.containers):
        for bar in getattr(container, "patches", []):
            bar.set_hatch(HATCHES[index % len(HATCHES)])
            bar.set_edgecolor("black")
            bar.set_linewidth(0.5)
    legend = axes.get_legend()
    if legend is not None:
        for index, handle in enumerate(legend.get_patches()):
            handle.set_hatch(HATCHES[index % len(HATCHES)])
            handle.set_edgecolor("black")


def new_axes(width: float = 6.4, height: float = 3.2) -> tuple[Figure, Axes]:
    """A figure with one pair of axes, sizes in inches."""
    figure, axes = plt.subplots(figsize=(width, height))
    return figure, axes
