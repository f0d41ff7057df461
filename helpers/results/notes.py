"""The line below a table: the units of its tests, and the smallest difference they can show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from numpy.typing import ArrayLike

from helpers.results.statistics import relations_of, too_few


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


AnyTable = pd.DataFrame | ShownTable  # one that may have a line below it


def as_shown(table: AnyTable) -> ShownTable:
    """A table with the line below it, if there is one."""
    return table if isinstance(table, ShownTable) else ShownTable(table)


def with_note(table: AnyTable, *notes: str) -> ShownTable:
    """A table with more sentences on the line below it; empty ones are omitted."""
    shown = as_shown(table)
    return replace(shown, note="; ".join(filter(None, [shown.note, *notes])))


def with_relations(table: AnyTable, samples: Iterable[ArrayLike]) -> ShownTable:
    """A table with a line on the units behind its intervals and tests, which are of these samples."""
    relation_counts = {relations_of(sample) for sample in samples} - {None, 0}  # of relations
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
) -> ShownTable:
    """A table of tests with a line below: their ``detectable`` differences, rounded up, and numbers n."""
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
    power_note = f"could detect {differences}{unit} (n = {n_range}; two-sided 5 %, power 80 %)"
    return with_note(table, power_note)


def _ends(counts: Sequence[Any]) -> str:
    """``9``, or ``9–12``."""
    return "–".join(map(str, dict.fromkeys((min(counts), max(counts)))))
