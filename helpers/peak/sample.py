"""How representative a published run's records are, and what an edit's success depends on.

*figures/data/peak_samples/<run>* holds, for a run, the counts of its records and of the whole file, the
relations of both, and which prompts begin with their subject. *figures/data/peak_edits/<run>* has the size
of each edit.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from helpers.peak.tables import Metrics


def sample_counts(samples: Mapping[str, Mapping[str, pd.DataFrame]]) -> pd.DataFrame:
    """Of each run the numbers of records and relations, here and in the whole file, and its largest relation.

    ``samples`` has, by run, the tables ``counts`` (one row) and ``relations``.
    """
    rows = {}
    for name, sample in samples.items():
        largest = sample["relations"].nlargest(1, "records").iloc[0]
        rows[name] = {
            **sample["counts"].iloc[0],
            "largest relation": largest["relation"],
            "its records": largest["records"],
            "its records_whole": largest["records_whole"],
        }
    return pd.DataFrame(rows).T.rename_axis("run")


def update_sizes(edits: pd.DataFrame) -> pd.DataFrame:
    """Of each method how many edits there are, how many flagged as very large, and the largest |dW|/|W|."""
    by_method = edits.groupby("method", sort=False)
    return by_method.agg(
        edits=("case_id", "size"), flagged=("exploding", "sum"), largest=("relative_norm", "max")
    )


def by_update_size(
    metrics: pd.DataFrame, edits: pd.DataFrame, *, method: str
) -> dict[str, pd.DataFrame]:
    """A method's metrics by whether its update was flagged, of the records that have all of them."""
    flagged_edits = edits[(edits["method"] == method) & edits["exploding"]]
    complete = metrics.dropna()
    is_flagged = complete.index.isin(flagged_edits["case_id"], level="case_id")
    return {"flagged": complete[is_flagged], "not flagged": complete[~is_flagged]}


def by_subject_position(
    by_record: Metrics, prompts: pd.DataFrame, *, methods: tuple[str, ...]
) -> dict[str, pd.DataFrame]:
    """The metrics of some methods by whether the edit's prompt begins with its subject.

    ``prompts`` has a row a record with ``case_id`` and ``subject_first``.
    """
    subject_first = prompts.set_index("case_id")["subject_first"]
    parts = {}
    for method in (name for name in methods if name in by_record):
        metrics = by_record[method]
        is_first = subject_first.loc[metrics.index.get_level_values("case_id")].to_numpy()
        parts[f"{method}, subject first"] = metrics[is_first]
        parts[f"{method}, elsewhere"] = metrics[~is_first]
    return parts
