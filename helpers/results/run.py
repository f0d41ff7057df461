"""A resumable run: which cases are done, the missing ones made in chunks, each chunk kept as it is made.

A benchmark says what its cases are and what to make of some of them; this module owns the rest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import pandas as pd

from helpers.results.store import Results, ResultsStore

Case = TypeVar("Case")


@dataclass(frozen=True)
class Cases(Generic[Case]):
    """What is run, by the number that the column ``case_id`` of its results has.

    ``chunk`` cases are made together; it bounds what an interruption can cost. ``content`` says, as
    JSON values, all that a case's rows depend on beside the settings: the rows are then kept under a
    number made of it, so that mending one case of a file leaves those of the others as they are.
    """

    by_id: Mapping[int, Case]
    chunk: int = 32
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
            results: where they are kept.
            make: from some cases to tables by kind, with a column ``case_id``.
            mark: the kind that says of a case that it is done, and is returned.
        """
        case_ids = {number: case_id for case_id, number in self._numbers.items()}

        def made(numbers: list[int]) -> Mapping[str, pd.DataFrame]:
            return self._numbered(make([self.by_id[case_ids[number]] for number in numbers]))

        complete(results, list(case_ids), made, chunk=self.chunk, mark=mark)
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

    def opened(
        self, store: ResultsStore, settings: Mapping[str, Any], *, earlier: Mapping[str, Any]
    ) -> Results:
        """Where the cases are kept by content, with the rows that earlier settings kept by number."""
        results = store.open(settings)
        found = store.find(earlier) if self.missing(results) else None
        if found is not None:
            self.take(results, {kind: found.read(kind) for kind in found.kinds})
        return results

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


def complete(
    results: Results,
    case_ids: Sequence[int],
    compute: Callable[[list[int]], Mapping[str, pd.DataFrame]],
    *,
    chunk: int,
    mark: str = "scores",
) -> None:
    """Compute the records that are missing, chunk by chunk, appending each chunk as it is made.

    Args:
        results: where they go.
        case_ids: records wanted.
        compute: from a chunk of record ids to tables by kind; ``mark`` must be among them.
        chunk: records per call.
        mark: the kind that marks a record as done.
    """
    done = results.done(mark)
    missing = [case_id for case_id in case_ids if case_id not in done]
    for start in range(0, len(missing), chunk):
        tables = dict(compute(missing[start : start + chunk]))
        last = tables.pop(mark)
        results.add({**tables, mark: last})  # last: it marks the chunk as done
