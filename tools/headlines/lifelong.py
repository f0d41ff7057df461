"""Notebook 10: edits in a row, from whatever lifelong runs are published; without one there is no box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from helpers.lifelong.measures import ending, estimate
from helpers.lifelong.tables import (
    first_order_rows,
    lifelong_caption,
    method_rows,
    so_what,
    track_label,
)
from helpers.results.archive import Run, archive
from helpers.results.statistics import Estimate
from helpers.results.text import in_points
from tools.headlines.headline import Headline

FEWEST_EDITS = 100  # of a run that a headline is about


def headlines(runs: Sequence[Run] | None = None) -> list[Headline]:
    """From the published run with most methods and orders: who still gives its requests, what breaks first.

    An empty list where no run compares two methods over ``FEWEST_EDITS`` edits; ``runs`` are by default
    all published ones.
    """
    published = archive("lifelong").runs() if runs is None else runs
    comparisons = [Comparison.of(run) for run in published]
    long_enough = [each for each in comparisons if each.edits >= FEWEST_EDITS]
    if not long_enough:
        return []
    comparison = max(long_enough, key=lambda each: (len(each.run.tables), each.edits))
    run = comparison.run
    shown = so_what(run)
    finding, *others = shown.remembering
    return [
        Headline(
            "10",
            finding.removesuffix("."),
            f"{' '.join(others)} {_unedited_facts_in_words(run)}. {shown.collapse} Requests are scored right"
            " after their turn (*at once*) and after all edits (*now*), by their prompt or *in other words*.",
            _numbers(run),
            f"10_survival_{run.name}",
            f"Shown: {lifelong_caption(run).removeprefix('ours: ')}; intervals over subjects or facts. Not"
            f" shown: larger models{comparison.behind_in_words}.",
        )
    ]


@dataclass(frozen=True)
class Comparison:
    """The methods of a run that can be compared, up to the checkpoint at which they are."""

    run: Run  # of the compared methods alone, without later checkpoints; no table: nothing is compared
    edits: int  # at the checkpoint
    behind: dict[str, int]  # the other methods by label, with their edits so far

    @staticmethod
    def of(run: Run) -> Comparison:
        """The comparison at the last checkpoint that half of the methods have, and at least two.

        A method that was stopped on the way is compared at its end, since nothing more is asked of it. It
        does not count in the choice of the checkpoint: a method that continues would be left behind for it.
        """
        last_edits: dict[str, int] = {}
        labels: dict[str, str] = {}
        stopped: set[str] = set()
        for name in run.tables:
            ((method, turns_and_order, measures),) = method_rows(run.only([name]))
            labels[name] = track_label(method, turns_and_order)
            last_edits[name] = int(measures["edits"].max())
            if ending(measures):
                stopped.add(name)
        continuing = [name for name in last_edits if name not in stopped]
        fewest_ready = max(min(2, len(continuing)), len(continuing) / 2)
        for edits in sorted(set(last_edits.values()), reverse=True):
            ready = [name for name in continuing if last_edits[name] >= edits]
            names = [name for name in last_edits if name in stopped or name in ready]
            if len(names) >= 2 and len(ready) >= fewest_ready:
                tables = {name: _up_to(run.tables[name], edits) for name in names}
                behind = {labels[n]: last_edits[n] for n in last_edits if n not in names}
                return Comparison(Run(run.name, run.about, tables), edits, behind)
        return Comparison(Run(run.name, run.about, {}), 0, {})

    @property
    def behind_in_words(self) -> str:
        """The methods that are not compared, to end a list; empty without any."""
        methods = [f"{label} ({edits:,} edits so far)" for label, edits in self.behind.items()]
        return "".join(f"; {method}" for method in methods)


def _up_to(measures: pd.DataFrame, edits: int) -> pd.DataFrame:
    return measures[measures["case_id"] <= edits]


def _numbers(run: Run) -> tuple[tuple[str, str], ...]:
    """The highest shares given now, by prompt and in other words, each next to what it does not give."""
    measures_of_methods: dict[str, pd.DataFrame] = {
        track_label(method, turns_and_order): measures
        for method, turns_and_order, measures in first_order_rows(run)
    }

    now, reworded, locality = (
        {label: _at_last(table, measure) for label, table in measures_of_methods.items()}
        for measure in ("now", "generality", "locality")
    )
    best_now = max(now, key=lambda label: now[label].mean)
    best_reworded = max(reworded, key=lambda label: reworded[label].mean)
    return tuple(
        (words, f"{in_points(value)} % (n = {value.n})")
        for words, value in (
            (f"new answers given after all edits, {best_now} (the highest share)", now[best_now]),
            (f"the same in other words, {best_now}", reworded[best_now]),
            (
                f"the same in other words, {best_reworded} (the highest share)",
                reworded[best_reworded],
            ),
            (f"known facts with the same next token, {best_reworded}", locality[best_reworded]),
        )
    )


def _unedited_facts_in_words(run: Run) -> str:
    """The known facts that keep their next token, of the two methods that give the most requests now."""
    rows = [
        (track_label(method, mode), measures) for method, mode, measures in first_order_rows(run)
    ]
    rows.sort(key=lambda row: _at_last(row[1], "now").mean, reverse=True)
    shares = [
        f"{100 * _at_last(measures, 'locality').mean:.0f} % with {label}"
        for label, measures in rows
    ]
    return f"Of facts that were never edited, {' and '.join(shares[:2])} keep their next token"


def _at_last(measures: pd.DataFrame, measure: str) -> Estimate:
    """A measure at the last checkpoint."""
    return estimate(measures, measure, int(measures["edits"].max()))
