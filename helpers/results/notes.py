"""The line below a table: the units of its tests, and the smallest difference they can show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd
from numpy.typing import ArrayLike

from helpers.results.statistics import relations_of, too_few

_NOTE = "below"  # in a table's ``attrs``, which pandas hands on to copies and selections


def note_of(table: pd.DataFrame) -> str:
    """The line below a table; empty where it has none."""
    return str(table.attrs.get(_NOTE, ""))


def with_note(table: pd.DataFrame, *notes: str) -> pd.DataFrame:
    """A table with more sentences on the line below it; empty ones are omitted."""
    table.attrs[_NOTE] = "; ".join(filter(None, [note_of(table), *notes]))
    return table


def with_relations(table: pd.DataFrame, samples: Iterable[ArrayLike]) -> pd.DataFrame:
    """A table with a line on the units behind its intervals and tests, which are of these samples."""
    counts = {relations_of(sample) for sample in samples} - {None, 0}  # of relations
    enough = [count for count in counts if not too_few(count)]
    not_enough = [count for count in counts if too_few(count)]
    if enough:
        with_note(table, f"intervals and tests by relation ({_ends(enough)} relations)")
    if not_enough:
        over_records = f"too few relations for tests ({_ends(not_enough)}): intervals over records"
        with_note(table, over_records)
    return with_note(table)


def with_power(
    table: pd.DataFrame,
    least: Iterable[float],
    n: Iterable[int],
    *,
    unit: str = "",
    digits: int = 1,
) -> pd.DataFrame:
    """A table of tests with a line below: their ``detectable`` differences, rounded up, and numbers n."""
    tested = [(value, count) for value, count in zip(least, n, strict=True) if value > 0]
    if not tested:
        return table
    scale = 10**digits
    values = [math.ceil(round(value * scale, 6)) / scale for value, _ in tested]
    ends = dict.fromkeys((min(values), max(values)))
    differences = "–".join(f"{value:.{digits}f}" for value in ends)
    counts = _ends([count for _, count in tested])
    line = f"could detect {differences}{unit} (n = {counts}; two-sided 5 %, power 80 %)"
    return with_note(table, line)


def _ends(counts: Sequence[Any]) -> str:
    """``9``, or ``9–12``."""
    return "–".join(map(str, dict.fromkeys((min(counts), max(counts)))))
