"""A resumable run: which cases are done, the missing ones made in chunks, each chunk kept as it is made.

A benchmark says what its cases are and what to make of some of them; this module owns the rest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import pandas as pd

from helpers.processes import Progress
from helpers.results.store import Results

Case = TypeVar("Case")
_GROWTH = 4
NOT_FINITE = "scores under the edited model are not finite; use a wider dtype"


@dataclass(frozen=True)
class Cases(Generic[Case]):
    """What is run, by the number that the column ``case_id`` of its results has.

    Chunks of 1, 4, 16, … up to ``chunk`` cases are made together, so that a run reports early how far it
    is, and an interruption costs little; None: all at once. ``content`` says, as JSON values, all that a
    case's rows depend on beside the settings: the rows are then kept under a number made of it, so that
    mending one case of a file leaves those of the others as they are.
    """

    by_id: Mapping[int, Case]
    chunk: int | None = 32
    content: Callable[[Case], object] | None = None

    def completed(
        self,
        results: Results,
        make: Callable[[Sequence[Case]], Mapping[str, pd.DataFrame]],
        *,
        mark: str = "scores",
    ) -> pd.DataFrame:
        """The rows of all cases, made where they are missing.

        Args:
            make: from some cases to tables by kind, with a column ``case_id``.
            mark: the kind that says of a case that it is done, and is returned.
        """
        missing = self.missing(results, mark=mark)
        progress, done = Progress(len(missing)), 0
        size, most = (1, self.chunk) if self.chunk else (len(missing), len(missing))
        while done < len(missing):
            made = make([self.by_id[each] for each in missing[done : done + size]])
            tables = self._numbered(made)
            last = tables.pop(mark)
            results.add({**tables, mark: last})  # last: it marks the chunk as done
            progress.at(done := done + size)
            size = min(_GROWTH * size, most)
        return self.read(results, mark)

    def missing(self, results: Results, *, mark: str = "scores") -> list[int]:
        """Cases that are not done."""
        done = results.done(mark)
        return [case_id for case_id, number in self._numbers.items() if number not in done]

    def read(self, results: Results, kind: str = "scores") -> pd.DataFrame:
        """What is kept of these cases, whether all are done or not."""
        case_ids = {number: case_id for case_id, number in self._numbers.items()}
        table = results.read(kind)
        mine = table[table["case_id"].isin(list(case_ids))]
        named = mine.assign(case_id=mine["case_id"].map(case_ids).astype("int64"))
        return named.sort_values("case_id", kind="stable", ignore_index=True)

    def take(
        self, results: Results, tables: Mapping[str, pd.DataFrame], *, mark: str = "scores"
    ) -> None:
        """Keep rows that were made elsewhere of the cases that are missing."""
        made = set(tables[mark]["case_id"]) if mark in tables else set()
        if wanted := made & set(self.missing(results, mark=mark)):
            fresh = {kind: table[table["case_id"].isin(wanted)] for kind, table in tables.items()}
            last = fresh.pop(mark)
            results.add(self._numbered({**fresh, mark: last}))

    def _numbered(self, tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
        """Tables under the numbers that they are kept by."""
        return {
            kind: table.assign(case_id=table["case_id"].map(self._numbers).astype("int64"))
            for kind, table in tables.items()
        }

    @cached_property
    def _numbers(self) -> dict[int, int]:
        if self.content is None:
            return {case_id: case_id for case_id in self.by_id}
        return {
            case_id: content_number((case_id, self.content(case)))
            for case_id, case in self.by_id.items()
        }


def content_number(content: object) -> int:
    """A number of 63 bits that stands for JSON values."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def flag_unusable(edits: pd.DataFrame, scores: pd.DataFrame, column: str) -> pd.DataFrame:
    """Give edits a failure, unless they have one, where a score is not a number.

    A model may no longer give numbers under an edit, as can happen in half precision.

    Args:
        edits: columns case_id and failure (empty: none), one row per edit.
        scores: column case_id and scores.
        column: the scores.

    Returns:
        A changed copy of ``edits``.
    """
    unusable = edits["case_id"].isin(scores.loc[scores[column].isna(), "case_id"])
    failure = edits["failure"].mask(unusable & (edits["failure"] == ""), NOT_FINITE)
    return edits.assign(failure=failure)
