"""Published figures by name, redrawn from stored result tables without a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from helpers.paths import FIGURES
from helpers.reporting.ablation_gallery import ablation_figures
from helpers.reporting.construction_stored import construction_figures
from helpers.reporting.klob_gallery import klob_figures
from helpers.reporting.peak_figures import additivity_distribution, list_probabilities
from helpers.reporting.peak_overview import additivity_pairs
from helpers.reporting.peak_tables import method_metrics
from helpers.reporting.stored import StoredRun, load_run, stored_runs
from helpers.reporting.style import save_figure
from helpers.reporting.thinkedit_gallery import thinkedit_figures


@dataclass(frozen=True)
class Entry:
    """A figure's title and how to draw it."""

    title: str
    draw: Callable[[], Figure]


def figures() -> dict[str, Entry]:
    """All published figures whose data is at hand, by name."""
    others = chain(construction_figures(), ablation_figures(), klob_figures(), thinkedit_figures())
    entries = ((name, Entry(title, draw)) for name, title, draw in others)
    return dict(sorted([*_peak_figures(), *entries], key=lambda pair: pair[0]))


def draw(name: str, folder: Path = FIGURES) -> list[Path]:
    """Draw one figure and save it as PNG and SVG.

    Raises:
        KeyError: no such figure.
    """
    figure = figures()[name].draw()
    try:
        return save_figure(figure, name, folder)
    finally:
        plt.close(figure)


def _peak_figures() -> Iterator[tuple[str, Entry]]:
    for run in stored_runs():
        for key, (title, make) in _PEAK.items():
            yield f"03_{key}_{run}", Entry(f"{title}, {run}", partial(_peak_figure, run, make))


def _peak_figure(run: str, make: Callable[[StoredRun, str], Figure]) -> Figure:
    stored = load_run(run)
    return make(stored, str(stored.caption))


_PEAK: dict[str, tuple[str, Callable[[StoredRun, str], Figure]]] = {
    "lists": (
        "Answer lists before and after",
        lambda run, caption: list_probabilities(run.scores, caption=caption),
    ),
    "additivity": (
        "AFF and ANF of every editor, plain and with APP",
        lambda run, caption: additivity_pairs(method_metrics(run.scores), caption=caption),
    ),
    "spread": (
        "AFF over records",
        lambda run, caption: additivity_distribution(method_metrics(run.scores), caption=caption),
    ),
}
