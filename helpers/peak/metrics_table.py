"""PEAK metrics of many records, from the long table of stored log-probabilities.

One row per scored answer:

============== ====================================================================
case_id        record
role           ``edit``, ``paraphrase`` or ``locality``
prompt_index   number of the prompt within its role, from 0
list           ``target``, ``correct``, ``hard``, ``random`` (edit and paraphrase);
               ``target``, ``locality`` (the prompt's own answer) and optionally
               ``first`` (the record's first locality answer) at locality prompts
answer_index   number of the answer within its list, from 0
tokens         tokens of the answer
sum_before     sum of its token log-probabilities, unedited model (natural logarithm)
sum_after      the same, edited model
============== ====================================================================
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from helpers.peak.metrics import (
    METRICS,
    PROBABILITIES,
    SHARES,
    LocalityScores,
    PromptScores,
    RecordScores,
    record_metrics,
    record_probabilities,
)
from helpers.results.statistics import Estimate, fraction_interval, mean_interval, share_interval

Normalise = Literal["mean", "sum"]
Place = tuple[str, int, str]  # role, prompt_index, list
Lists = Mapping[Place, NDArray[np.float64]]

KEYS = ["case_id", "role", "prompt_index", "list", "answer_index"]
COLUMNS = [*KEYS, "tokens", "sum_before", "sum_after"]
LISTS = {
    "edit": {"target", "correct", "hard", "random"},
    "paraphrase": {"target", "correct", "hard", "random"},
    "locality": {"target", "locality", "first"},
}

_NOTHING = np.empty(0)
_FRACTIONS = {*PROBABILITIES, *(m for m in METRICS if m[:3] in ("RFF", "RNF", "AFF", "ANF"))}


def iterate_records(
    table: pd.DataFrame, *, normalise: Normalise = "mean"
) -> Iterator[tuple[int, RecordScores, RecordScores]]:
    """Scores of each record before and after its edit, in order of case_id.

    Args:
        table: see the module's description; one edit per record.
        normalise: ``"mean"`` takes P = exp(sum / tokens), the geometric mean over the answer's
            tokens (as the authors' code does); ``"sum"`` takes P = exp(sum).

    Raises:
        ValueError: a column is missing, a role or list is unknown, a score is NaN, an answer stands
            twice, or a prompt has no target.
    """
    _check(table)
    ordered = table.sort_values(KEYS)
    scale = ordered["tokens"].to_numpy(float) if normalise == "mean" else 1.0
    before = ordered["sum_before"].to_numpy(float) / scale
    after = ordered["sum_after"].to_numpy(float) / scale
    # A list's answers stand together: their scores are a slice, which costs no row by row.
    labels = ordered[KEYS[:-1]]
    starts = np.flatnonzero((labels != labels.shift()).any(axis=1))
    ends = np.append(starts, len(ordered))[1:]
    places = labels.iloc[starts].itertuples(index=False, name=None)
    parts = zip(places, starts, ends, strict=True)
    for case_id, record in groupby(parts, key=lambda part: part[0][0]):
        slices = [(place, slice(start, end)) for (_, *place), start, end in record]
        lists_before, lists_after = (
            {tuple(place): scores[part] for place, part in slices} for scores in (before, after)
        )
        yield case_id, _record(case_id, lists_before), _record(case_id, lists_after)


def metrics_table(
    table: pd.DataFrame, *, normalise: Normalise = "mean", **switches: Any
) -> pd.DataFrame:
    """``record_metrics`` of every record: one row per case_id, one column per metric.

    ``switches`` are those of ``record_metrics``. Errors as in ``iterate_records``.
    """
    return _by_record(
        {
            case_id: record_metrics(before, after, **switches)
            for case_id, before, after in iterate_records(table, normalise=normalise)
        },
        METRICS,
    )


def probabilities_table(
    table: pd.DataFrame, *, normalise: Normalise = "mean", hard_share: float = 0.2
) -> pd.DataFrame:
    """``record_probabilities`` of every record: one row per case_id."""
    return _by_record(
        {
            case_id: record_probabilities(before, after, hard_share=hard_share)
            for case_id, before, after in iterate_records(table, normalise=normalise)
        },
        PROBABILITIES,
    )


def metric_interval(metric: str, values: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """Mean over records of one metric with the interval that fits its kind.

    Shares of prompts (ES, GS, LS): exact where every record gives 0 or 1, else the bootstrap over
    records. Other fractions (AFF, ANF and their parts, probabilities): Student's t, cut at 0 and 1.
    The rest: Student's t.
    """
    if metric in SHARES:
        return share_interval(values, confidence=confidence)
    interval = fraction_interval if metric in _FRACTIONS else mean_interval
    return interval(values, confidence=confidence)


def summarise(by_record: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """Mean over records of each column, with its interval (``metric_interval``) and its records.

    Returns:
        Index metric; columns mean, low, high, n. A record for which a metric is undefined (NaN)
        is left out of that metric's mean and of its n.
    """
    estimates = {
        metric: vars(metric_interval(metric, by_record[metric].to_numpy(), confidence=confidence))
        for metric in by_record.columns
    }
    summary = pd.DataFrame.from_dict(
        estimates, orient="index", columns=["mean", "low", "high", "n"]
    ).astype({"n": int})
    return summary.rename_axis("metric")


def _by_record(rows: Mapping[int, Mapping[str, float]], columns: Sequence[str]) -> pd.DataFrame:
    """The columns are there without rows, too: every edit of a method may have been given up."""
    if not rows:
        return pd.DataFrame(columns=list(columns), dtype=float).rename_axis("case_id")
    return pd.DataFrame.from_dict(dict(rows), orient="index").rename_axis("case_id")


def _record(case_id: int, lists: Lists) -> RecordScores:
    """One model's scores of one record."""

    def prompt(role: str, index: int) -> PromptScores:
        return PromptScores(
            target=_only(case_id, lists, (role, index, "target")),
            correct=lists.get((role, index, "correct"), _NOTHING),
            hard=lists.get((role, index, "hard"), _NOTHING),
            random=lists.get((role, index, "random"), _NOTHING),
        )

    def locality(name: str) -> NDArray[np.float64]:
        return np.array([_only(case_id, lists, ("locality", i, name)) for i in indices["locality"]])

    indices = {role: sorted({index for name, index, _ in lists if name == role}) for role in LISTS}
    has_first = not indices["locality"] or ("locality", 0, "first") in lists
    return RecordScores(
        edit=prompt("edit", 0),
        paraphrases=tuple(prompt("paraphrase", index) for index in indices["paraphrase"]),
        locality=LocalityScores(
            answer=locality("locality"),
            target=locality("target"),
            first=locality("first") if has_first else None,
        ),
    )


def _only(case_id: int, lists: Lists, place: Place) -> float:
    """The single score at a place."""
    scores = lists.get(place, _NOTHING)
    if len(scores) != 1:
        role, index, name = place
        raise ValueError(
            f"case_id {case_id}: {role} prompt {index} needs one {name} row, has {len(scores)}"
        )
    return float(scores[0])


def _check(table: pd.DataFrame) -> None:
    """Refuse a table that does not keep the contract."""
    if missing := [column for column in COLUMNS if column not in table]:
        raise ValueError(f"columns missing from the score table: {', '.join(missing)}")
    for role, name in table[["role", "list"]].drop_duplicates().itertuples(index=False):
        if name not in LISTS.get(role, ()):
            raise ValueError(f"the score table holds list {name!r} at role {role!r}")
    if (table["tokens"] < 1).any():
        raise ValueError("the score table holds an answer without tokens")
    scores = table[["sum_before", "sum_after"]]
    if (undefined := scores.isna().any(axis=1)).any():
        raise ValueError(
            "log-probabilities are NaN in the score table, case_id "
            f"{sorted(table.loc[undefined, 'case_id'].unique().tolist())}; leave those edits out"
        )
    if (twice := table.duplicated(KEYS)).any():
        row = table.loc[twice, KEYS].iloc[0].to_dict()
        raise ValueError(f"the score table holds an answer twice: {row}; pass one run at a time")
