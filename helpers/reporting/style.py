"""One look for all figures: colour-blind-safe, readable in grey, written deterministically."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import matplotlib as mpl
import seaborn as sns
from matplotlib.figure import Figure

from helpers.paths import figures_folder

PALETTE = tuple(sns.color_palette("colorblind", 8))
HATCHES = ("", "///", "...", "\\\\\\", "xxx", "++", "ooo", "--")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_LETTERS = 16  # of a caption to an inch

_SETTINGS: dict[Any, Any] = {
    "figure.dpi": 100,
    "savefig.dpi": 160,
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "legend.frameon": True,
    "legend.edgecolor": "none",
    "legend.framealpha": 0.9,
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


def captioned(figure: Figure, caption: str) -> Figure:
    """The figure with a caption over its panels, in lines as wide as the figure."""
    width = int(_LETTERS * figure.get_figwidth())
    lines = [wrapped for line in caption.splitlines() for wrapped in textwrap.wrap(line, width)]
    if lines:
        figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=8)
    return figure


def save_figure(figure: Figure, name: str, folder: Path | None = None) -> list[Path]:
    """Write ``name``.png and ``name``.svg without dates, so equal figures are equal files.

    They go to ``folder``, by default where ``figures_folder`` says.
    """
    folder = folder or figures_folder()
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    figure.savefig(paths[0], metadata={"Software": None})
    figure.savefig(paths[1], metadata={"Date": None})
    return paths
