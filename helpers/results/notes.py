"""The line below a table: its tests' units, the smallest difference they can show, its methods' settings."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from numpy.typing import ArrayLike

from helpers.editing.editors import EDITORS
from helpers.results.archive import Run
from helpers.results.statistics import relation_count_of, too_few

# Steps of training behind MEND's networks, by their checksum, whose validation loss was still falling.
UNDERTRAINED_NETWORKS = {"a056831b841cf377": 500, "5413b8cc132fef44": 250}


@dataclass(frozen=True, eq=False)
class ShownTable:
    """A table for readers, with the line below it; empty where it has none."""

    table: pd.DataFrame
    note: str = ""

    @property
    def T(self) -> ShownTable:
        """Rows as columns, above the same line."""
        return replace(self, table=self.table.T)

    def query(self, condition: str) -> ShownTable:
        """The rows of a condition, as ``DataFrame.query`` has it, above the same line."""
        return replace(self, table=self.table.query(condition))

    def rows(self, labels: Collection[str]) -> ShownTable:
        """The rows with these labels, in the order of the table, above the same line."""
        is_chosen = self.table.index.get_level_values(0).isin(list(labels))
        return replace(self, table=self.table[is_chosen])


AnyTable = pd.DataFrame | ShownTable  # one that may have a line below it


def as_shown(table: AnyTable) -> ShownTable:
    """A table with the line below it, if there is one."""
    return table if isinstance(table, ShownTable) else ShownTable(table)


def with_note(table: AnyTable, *notes: str) -> ShownTable:
    """A table with more sentences on the line below it; empty ones are omitted."""
    shown = as_shown(table)
    return replace(shown, note="; ".join(filter(None, [shown.note, *notes])))


def method_notes(run: Run) -> list[str]:
    """What a reader must know of a run's methods next to their numbers: settings, and MEND's training."""
    notes = []
    for settings in run.about.settings.values():
        editor = EDITORS.get(settings.get("editor", ""))
        if editor and editor.reported:
            values = settings["hyperparameters"]
            reported = ", ".join(f"{name} {values[name]:g}" for name in editor.reported)
            notes.append(f"{editor.label}: {reported}")
    return [*dict.fromkeys(notes), *training_notes(run)]


def training_notes(run: Run) -> list[str]:
    """Which of a run's networks, MEND's, are undertrained."""
    networks = [settings.get("network", "") for settings in run.about.settings.values()]
    steps = [
        UNDERTRAINED_NETWORKS[network] for network in networks if network in UNDERTRAINED_NETWORKS
    ]
    return [f"MEND: undertrained ({count} steps)" for count in dict.fromkeys(steps)]


def with_relations(table: AnyTable, samples: Iterable[ArrayLike]) -> ShownTable:
    """A table with a line on the units behind its intervals and tests, which are of these samples."""
    relation_counts = {relation_count_of(sample) for sample in samples} - {None, 0}  # of relations
    enough = [count for count in relation_counts if not too_few(count)]
    not_enough = [count for count in relation_counts if too_few(count)]
    relation_notes = []
    if enough:
        relation_notes.append(f"intervals and tests by relation ({_ends(enough)} relations)")
    if not_enough:
        fewest = f"too few relations for tests ({_ends(not_enough)}): intervals over records"
        relation_notes.append(fewest)
    return with_note(table, *relation_notes)


def with_power(
    table: AnyTable,
    least: Iterable[float],
    n: Iterable[int],
    *,
    unit: str = "",
    digits: int = 1,
    tests: int = 1,
) -> ShownTable:
    """A table of tests with a line below: their ``detectable`` differences, rounded up, and numbers n.

    ``tests`` is what ``detectable`` was given: how many tests share the 5 %.
    """
    scale = 10**digits
    rounded_up = []
    counts = []
    for difference, count in zip(least, n, strict=True):
        if difference > 0:
            rounded_up.append(math.ceil(round(difference * scale, 6)) / scale)
            counts.append(count)
    if not counts:
        return as_shown(table)
    range_ends = dict.fromkeys((min(rounded_up), max(rounded_up)))
    differences = "–".join(f"{difference:.{digits}f}" for difference in range_ends)
    n_range = _ends(counts)
    level = "5 %" if tests == 1 else f"5 % divided by {tests} tests"
    power_note = f"could detect {differences}{unit} (n = {n_range}; two-sided {level}, power 80 %)"
    return with_note(table, power_note)


def _ends(counts: Sequence[Any]) -> str:
    """``9``, or ``9–12``."""
    return "–".join(map(str, dict.fromkeys((min(counts), max(counts)))))
