"""The design of a sample: records by relation, in proportion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

POWER = 2.8  # standard errors that a two-sided test at 5 % finds in four of five cases


def stratified(records: Sequence[Any], seed: int) -> list[Any]:
    """Records in random order such that the first n, for every n, are a sample stratified by relation
    (Webster's proportional allocation): a relation's i-th record (from 0) comes at (i + 1/2) / size.
    """
    shuffled_records = pd.Series(records, dtype=object)
    shuffled_records = shuffled_records.sample(frac=1, random_state=seed)
    records_by_relation = shuffled_records.groupby([record.relation for record in shuffled_records])
    relative_places = (records_by_relation.cumcount() + 0.5) / records_by_relation.transform("size")
    return list(shuffled_records[relative_places.sort_values(kind="stable").index])
