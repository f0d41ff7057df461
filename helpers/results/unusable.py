"""Edits under which a model no longer gives numbers, as can happen in half precision."""

from __future__ import annotations

import pandas as pd

NOT_FINITE = "scores under the edited model are not finite; use a wider dtype"


def flag_unusable(edits: pd.DataFrame, scores: pd.DataFrame, column: str) -> pd.DataFrame:
    """Give edits a failure, unless they have one, where a score is not a number.

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
