"""Every scorer's verdict on the same edits, as a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.behaviour.agreement import ASKED, GENERATED, by_state, kind_of_scorer
from helpers.behaviour.scorers import UNEDITED
from helpers.editing.editors import distinct
from helpers.peak.figures import ACROSS, MAIN_RUN, rows_of
from helpers.peak.tables import Metrics, caption_of
from helpers.results.archive import Run
from helpers.results.figure import figure
from helpers.results.notes import training_notes
from helpers.results.statistics import interval
from helpers.results.style import PALETTE, marked, with_caption

_IN_TITLE = ("ES", "tokens", "free, greedy")  # scorers in colour, which the title compares


@figure("04_scorers", of="scorers", main=MAIN_RUN, when=lambda run: len(run.tables) > 3)
def scorer_panels(run: Run) -> Figure:
    """Each state's success under every scorer: above those that read probabilities, below responses."""
    states = by_state(run)
    rows = np.arange(len(states))[::-1]
    size = (9.2, 0.36 * len(states) + 2.4)
    fig, panels = plt.subplots(2, len(ASKED), figsize=size, sharex=True, sharey=True)
    for panels_of_kind, titles in zip(panels, (ASKED, GENERATED), strict=True):
        _draw_scorers(panels_of_kind, titles, states)
    panels[0, 0].set(xlim=(-4, 104), xticks=(0, 50, 100))
    panels[0, 0].set_yticks(rows, [*states])
    but = " except KN" if "KN" in states else ""
    note = f"percent, 95 % intervals over records; title, in colour: means over methods{but}"
    caption = "\n".join([caption_of(run), *training_notes(run), note])
    return with_caption(fig, _success_in_words(states), caption)


def _draw_scorers(panels: Sequence[Axes], titles: Mapping[str, str], states: Metrics) -> None:
    """A panel for each scorer that has results, and in it a row for each state."""
    rows = np.arange(len(states))[::-1]
    scorers = [s for s in titles if any(s in table for table in states.values())]
    for axes, scorer in zip(panels, scorers, strict=False):
        tables = [table for table in states.values() if scorer in table]
        estimates = rows_of(interval(table[scorer], kind_of_scorer(scorer)) for table in tables)
        colour = PALETTE[0] if scorer in _IN_TITLE else PALETTE[7]
        marked(axes, rows, estimates, fmt="o", color=colour, clip_on=False, **ACROSS)
        axes.set_title(titles[scorer], fontsize=7)
        axes.tick_params(labelbottom=True)
        axes.grid(axis="y", visible=False)
    for axes in panels[len(scorers) :]:
        axes.axis("off")


def _success_in_words(states: Metrics) -> str:
    """Mean success by the scorers ``_IN_TITLE`` over the edited states but KN, which hardly edits."""
    edited = [states[state] for state in distinct(states) if state not in (UNEDITED, "KN")]
    means = [100 * np.mean([table[scorer].mean() for table in edited]) for scorer in _IN_TITLE]
    listed, matched, named = (f"{mean:.0f} %" for mean in means)
    others = f"{named} in free text (greedy); {matched} of the answer's tokens match"
    return f"{listed} of the edits succeed by probability, {others}"
