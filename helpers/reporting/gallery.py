"""Published figures by name, redrawn from stored result tables without a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from matplotlib.figure import Figure

from helpers.paths import FIGURES
from helpers.reporting.ablation_gallery import ablation_figures
from helpers.reporting.construction_stored import construction_figures
from helpers.reporting.klob_gallery import klob_figures
from helpers.reporting.peak_figures import (
    additivity_bars,
    additivity_distribution,
    list_probabilities,
)
from helpers.reporting.peak_tables import method_metrics
from helpers.reporting.stored import load_run, stored_runs
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
    return save_figure(figures()[name].draw(), name, folder)


def _peak_figures() -> Iterator[tuple[str, Entry]]:
    for run in stored_runs():

        def lists(run: str = run) -> Figure:
            stored = load_run(run)
            return list_probabilities(stored.scores, caption=str(stored.caption))

        def bars(run: str = run) -> Figure:
            stored = load_run(run)
            return additivity_bars(method_metrics(stored.scores), caption=str(stored.caption))

        def spread(run: str = run) -> Figure:
            stored = load_run(run)
            metrics = method_metrics(stored.scores)
            return additivity_distribution(metrics, caption=str(stored.caption))

        yield f"03_lists_{run}", Entry(f"Answer lists before and after, {run}", lists)
        yield f"03_additivity_{run}", Entry(f"AFF and ANF per method, {run}", bars)
        yield f"03_spread_{run}", Entry(f"AFF over records, {run}", spread)
