"""The published figures of PEAK's main runs, one of each kind per run, each drawn from it alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from helpers.peak.stored_scores import caption_of, scores_of
from helpers.results.archive import Run
from helpers.results.figure import figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAIN_RUN = "smollm2-135m_peak-cf"
_of_run = partial(figure, of="peak")


@_of_run("03_lists", title="Answer lists before and after")
def lists(run: Run) -> Figure:
    """Mean probability of each list before and after each method."""
    from helpers.peak.figures import list_probabilities

    return list_probabilities(scores_of(run), caption=str(caption_of(run)))


@_of_run("03_additivity", title="AFF and ANF of every editor, plain and with APP")
def additivity(run: Run) -> Figure:
    """Every editor, plain and with APP, joined by a line."""
    from helpers.peak.overview import additivity_pairs
    from helpers.peak.tables import method_metrics

    return additivity_pairs(method_metrics(scores_of(run)), caption=str(caption_of(run)))


@_of_run("03_spread", title="AFF over records")
def spread(run: Run) -> Figure:
    """How AFF is distributed over records."""
    from helpers.peak.figures import additivity_distribution
    from helpers.peak.tables import method_metrics

    return additivity_distribution(method_metrics(scores_of(run)), caption=str(caption_of(run)))


@figure("03_reading", title="PEAK's measures in one picture each", alone=True)
def reading() -> Figure:
    """Made-up numbers, for readers who meet the measures for the first time."""
    from helpers.peak.reading import pictures

    return pictures()


@_of_run("03_paper", title="The paper's main results and ours", main=MAIN_RUN, together=True)
def paper_against_ours(runs: Sequence[Run]) -> Figure:
    """Every editor in Tables 3, 4 and 9 of the paper and in our runs."""
    from helpers.peak.paper_against_ours import METHODS, Ours, paper_figure

    ours = [run for run in runs if set(METHODS) & set(run.tables)]
    return paper_figure([Ours.of(run, methods=METHODS) for run in ours])
