"""A resumable run: which cases are done, the missing ones made in chunks, each chunk kept as it is made.

A benchmark says what its cases are and what to make of some of them; this module owns the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import pandas as pd

from helpers.results.store import Results

Case = TypeVar("Case")
NOT_FINITE = "scores under the edited model are not finite; use a wider dtype"


@dataclass(frozen=True)
class Cases(Generic[Case]):
    """What is run, by the number that the column ``case_id`` of its results has.

    ``chunk`` cases are made together; it bounds what an interruption can cost.
    """

    by_id: Mapping[int, Case]
    chunk: int = 32

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
        for start in range(0, len(missing), self.chunk):
            tables = dict(make([self.by_id[each] for each in missing[start : start + self.chunk]]))
            last = tables.pop(mark)
            results.add({**tables, mark: last})  # last: it marks the chunk as done
        return self.read(results, mark)

    def missing(self, results: Results, *, mark: str = "scores") -> list[int]:
        """Cases that are not done."""
        done = results.done(mark)
        return [case_id for case_id in self.by_id if case_id not in done]

    def read(self, results: Results, kind: str = "scores") -> pd.DataFrame:
        """What is kept of these cases, whether all are done or not."""
        table = results.read(kind)
        return table[table["case_id"].isin(list(self.by_id))].reset_index(drop=True)


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
