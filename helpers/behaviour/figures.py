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
from helpers.peak.figures import ACROSS, MAIN_RUN, rows_of_estimates
from helpers.peak.tables import Metrics, caption_of
from helpers.results.archive import Run
from helpers.results.figure import figure
from helpers.results.notes import training_notes
from helpers.results.statistics import interval
from helpers.results.style import PALETTE, draw_intervals, with_caption

_IN_TITLE = ("ES", "tokens", "free, greedy")  # scorers in colour, which the title compares


@figure("04_scorers", of="scorers", main=MAIN_RUN, when=lambda run: len(run.tables) > 3)
def scorer_panels(run: Run) -> Figure:
    """Each state's success under every scorer: above those that read probabilities, below responses."""
    tables_by_state = by_state(run)
    heights = np.arange(len(tables_by_state))[::-1]
    size = (9.2, 0.36 * len(tables_by_state) + 2.4)
    fig, panels = plt.subplots(2, len(ASKED), figsize=size, sharex=True, sharey=True)
    for panels_of_kind, titles in zip(panels, (ASKED, GENERATED), strict=True):
        _draw_scorers(panels_of_kind, titles, tables_by_state)
    panels[0, 0].set(xlim=(-4, 104), xticks=(0, 50, 100))
    panels[0, 0].set_yticks(heights, [*tables_by_state])
    states_in_title = _states_in_title(tables_by_state)
    left_out = [state for state in tables_by_state if state not in (UNEDITED, *states_in_title)]
    except_words = f" except {' and '.join(left_out)}" if left_out else ""
    means = f"means over methods{except_words}"
    note = f"percent, 95 % intervals over records; title, in colour: {means}"
    caption = "\n".join([caption_of(run), *training_notes(run), note])
    return with_caption(fig, _success_in_words(tables_by_state), caption)


def _draw_scorers(
    panels: Sequence[Axes], titles: Mapping[str, str], tables_by_state: Metrics
) -> None:
    """A panel for each scorer that has results, and in it a row for each state."""
    heights = range(len(tables_by_state) - 1, -1, -1)
    scorers = [name for name in titles if any(name in table for table in tables_by_state.values())]
    for axes, scorer in zip(panels, scorers, strict=False):
        # The first state is the uppermost; one without this scorer leaves its row empty.
        tables_by_height = {
            height: table
            for height, table in zip(heights, tables_by_state.values(), strict=True)
            if scorer in table
        }
        estimates = rows_of_estimates(
            interval(table[scorer], kind_of_scorer(scorer)) for table in tables_by_height.values()
        )
        colour = PALETTE[0] if scorer in _IN_TITLE else PALETTE[7]
        draw_intervals(
            axes, [*tables_by_height], estimates, fmt="o", color=colour, clip_on=False, **ACROSS
        )
        axes.set_title(titles[scorer], fontsize=7)
        axes.tick_params(labelbottom=True)
        axes.grid(axis="y", visible=False)
    for axes in panels[len(scorers) :]:
        axes.axis("off")


def _states_in_title(tables_by_state: Metrics) -> list[str]:
    """The edited states without KN, which edits almost nothing, and without PRUNE, whose edits made alone are
    MEMIT's (``distinct``).
    """
    return [state for state in distinct(tables_by_state) if state not in (UNEDITED, "KN")]


def _success_in_words(tables_by_state: Metrics) -> str:
    """Mean success by the scorers ``_IN_TITLE`` over ``_states_in_title``."""
    tables_of_edited = [tables_by_state[state] for state in _states_in_title(tables_by_state)]
    mean_successes = [
        100 * np.mean([table[scorer].mean() for table in tables_of_edited]) for scorer in _IN_TITLE
    ]
    probability_words, token_words, text_words = (f"{mean:.0f} %" for mean in mean_successes)
    words_of_others = (
        f"{text_words} in free text (greedy); {token_words} of the answer's tokens match"
    )
    return f"{probability_words} of the edits succeed by probability, {words_of_others}"
