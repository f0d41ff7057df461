"""Notebook 10: edits in a row, from whatever lifelong runs are published; without one there is no box."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from helpers.lifelong.measures import ending, estimate
from helpers.lifelong.tables import lifelong_caption, method_rows, so_what, track_label
from helpers.results.archive import Run, archive
from helpers.results.statistics import Estimate
from helpers.results.text import in_points
from tools.headlines.headline import Headline

FEWEST_EDITS = 100  # of a run that a headline is about


def headlines(runs: Sequence[Run] | None = None) -> list[Headline]:
    """From the longest published run: who still gives its requests, what breaks first.

    An empty list where no run compares two methods over ``FEWEST_EDITS`` edits; ``runs`` are by default
    all published ones.
    """
    published = archive("lifelong").runs() if runs is None else runs
    compared_runs = [compared_methods(run) for run in published]
    long_enough = [run for run in compared_runs if run.tables and _last_edits(run) >= FEWEST_EDITS]
    if not long_enough:
        return []
    run = max(long_enough, key=lambda each: (_last_edits(each), len(each.tables)))
    first, second, *_ = so_what(run)
    return [
        Headline(
            "10",
            first.removesuffix("."),
            f"{second} Requests are scored right after their turn (*at once*) and after all edits (*now*).",
            _numbers(run),
            f"10_survival_{run.name}",
            f"Shown: {lifelong_caption(run).removeprefix('ours: ')}; intervals over subjects or facts. Not"
            " shown: other orders of the stream; larger models.",
        )
    ]


def compared_methods(run: Run) -> Run:
    """The run up to the last checkpoint that half of its methods have, and at least two, without the others.

    A method that was stopped on the way counts as having it: nothing more is asked of it.
    """
    last_edits: dict[str, int] = {}
    stopped: set[str] = set()
    for name in run.tables:
        ((_, _, measures),) = method_rows(run.only([name]))
        last_edits[name] = int(measures["edits"].max())
        if ending(measures):
            stopped.add(name)
    fewest_methods = max(2, len(last_edits) / 2)
    for edits in sorted(set(last_edits.values()), reverse=True):
        names = [name for name in last_edits if last_edits[name] >= edits or name in stopped]
        if len(names) >= fewest_methods:
            tables = {name: _up_to(run.tables[name], edits) for name in names}
            return Run(run.name, run.about, tables)
    return Run(run.name, run.about, {})


def _up_to(measures: pd.DataFrame, edits: int) -> pd.DataFrame:
    return measures[measures["case_id"] <= edits]


def _last_edits(run: Run) -> int:
    return max(int(measures["edits"].max()) for _, _, measures in method_rows(run))


def _numbers(run: Run) -> tuple[tuple[str, str], ...]:
    """What the method that keeps most requests gives and damages, and who keeps fewest."""
    measures_of_methods: dict[str, pd.DataFrame] = {
        track_label(method, mode): measures for method, mode, measures in method_rows(run)
    }
    shares = {label: _at_last(measures, "now") for label, measures in measures_of_methods.items()}
    best = max(shares, key=lambda label: shares[label].mean)
    worst = min(shares, key=lambda label: shares[label].mean)
    of_best = measures_of_methods[best]
    return tuple(
        (words, f"{in_points(value)} % (n = {value.n})")
        for words, value in (
            (f"latest requests written at once, {best}", _at_last(of_best, "at once")),
            (f"requests so far that it gives now, {best}, the most", shares[best]),
            (f"known facts whose next token it keeps, {best}", _at_last(of_best, "locality")),
            (f"requests so far given now, {worst}, the fewest", shares[worst]),
        )
    )


def _at_last(measures: pd.DataFrame, measure: str) -> Estimate:
    """A measure at the last checkpoint."""
    return estimate(measures, measure, int(measures["edits"].max()))
