"""Every scorer's verdict on the same edits, as a figure."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from helpers.behaviour.agreement import ASKED, GENERATED, by_state, kind_of_scorer
from helpers.behaviour.scorers import UNEDITED
from helpers.editing.editors import distinct
from helpers.peak.figures import ACROSS, MAIN_RUN, rows_of
from helpers.peak.tables import caption_of, training_notes
from helpers.results.archive import Run
from helpers.results.figure import figure
from helpers.results.statistics import interval
from helpers.results.style import PALETTE, marked, with_caption


@figure("04_scorers", of="scorers", main=MAIN_RUN, when=lambda run: len(run.tables) > 3)
def scorer_panels(run: Run) -> Figure:
    """Each state's success under every scorer: above those that read probabilities, below responses."""
    states = by_state(run)
    rows = np.arange(len(states))[::-1]
    shown = ("ES", "tokens", "free, greedy")
    size = (9.2, 0.36 * len(states) + 2.4)
    fig, lines = plt.subplots(2, len(ASKED), figsize=size, sharex=True, sharey=True)
    for line, scorers in zip(lines, (ASKED, GENERATED), strict=True):
        with_results = {
            s: t for s, t in scorers.items() if any(s in table for table in states.values())
        }
        for axes, (scorer, title) in zip(line, with_results.items(), strict=False):
            tables = [table for table in states.values() if scorer in table]
            estimates = rows_of(interval(table[scorer], kind_of_scorer(scorer)) for table in tables)
            colour = PALETTE[0] if scorer in shown else PALETTE[7]
            marked(axes, rows, estimates, fmt="o", color=colour, clip_on=False, **ACROSS)
            axes.set_title(title, fontsize=7)
            axes.tick_params(labelbottom=True)
            axes.grid(axis="y", visible=False)
        for axes in line[len(with_results) :]:
            axes.axis("off")
    lines[0, 0].set(xlim=(-4, 104), xticks=(0, 50, 100))
    lines[0, 0].set_yticks(rows, [*states])
    edited = [states[state] for state in distinct(states) if state not in (UNEDITED, "KN")]
    means = [100 * np.mean([t[scorer].mean() for t in edited]) for scorer in shown]
    listed, matched, named = (f"{mean:.0f} %" for mean in means)
    others = f"{named} in free text (greedy); {matched} of the answer's tokens match"
    finding = f"{listed} of the edits succeed by probability, {others}"
    but = " except KN" if "KN" in states else ""
    note = f"percent, 95 % intervals over records; title, in colour: means over methods{but}"
    return with_caption(fig, finding, "\n".join([caption_of(run), *training_notes(run), note]))
