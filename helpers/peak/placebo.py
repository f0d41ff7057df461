"""PEAK's noise floor: what an edit that has nothing to do with a record does to the record's answers.

Kept answers are selected on the unedited model, so that any change of the scores looks like forgetting and
noise. AFF and ANF of an edit are therefore read against those of a placebo: the same editor's edit of another
record, of another relation and about another subject (``placebo_run``).

*figures/data/placebo/<model>_<dataset>* holds one table of scores for each method, as
*figures/data/peak* does, each record under its placebo.
"""

from __future__ import annotations

import pandas as pd

from helpers.peak.metrics import metric_interval
from helpers.peak.tables import Metrics, metric_contrast
from helpers.results.statistics import holm
from helpers.results.text import in_points

COMPARED_METRICS = ("LS", "AFF_hard", "ANF_hard", "AFF_random", "ANF_random")


def placebo_table(own_metrics: Metrics, placebo_metrics: Metrics) -> pd.DataFrame:
    """Means in percent under each record's own edit and under its placebo, and the paired difference.

    ``hard - random`` is how much more the hard false answers are confused with the correct ones than
    the random ones are: its placebo is what the selection of answers alone makes of it.

    ``Holm`` is p after the correction for all tests of the table.
    """
    rows_of_metrics = []
    p_values = []
    for method in (name for name in own_metrics if name in placebo_metrics):
        measured_both = {
            metric: (own_metrics[method][metric], placebo_metrics[method][metric])
            for metric in COMPARED_METRICS
        }
        for factor in ("AFF", "ANF"):
            measured_both[f"{factor} hard - random"] = (
                own_metrics[method][f"{factor}_hard"] - own_metrics[method][f"{factor}_random"],
                placebo_metrics[method][f"{factor}_hard"]
                - placebo_metrics[method][f"{factor}_random"],
            )
        for metric, (under_own, under_placebo) in measured_both.items():
            placebo_values, own_values = under_placebo.align(under_own, join="inner")
            measured_twice = placebo_values.notna() & own_values.notna()
            placebo_values = placebo_values[measured_twice]
            own_values = own_values[measured_twice]
            contrast = metric_contrast(metric, placebo_values, own_values)
            rows_of_metrics.append(
                {
                    "method": method,
                    "metric": metric,
                    "own edit": in_points(metric_interval(metric, own_values)),
                    "placebo": in_points(metric_interval(metric, placebo_values)),
                    "difference": in_points(contrast.difference, signed=True),
                    "p": f"{contrast.p_value:.4f}",
                    "n": contrast.difference.n,
                }
            )
            p_values.append(contrast.p_value)
    table = pd.DataFrame(rows_of_metrics).set_index(["method", "metric"])
    return table.assign(Holm=[f"{p_value:.4f}" for p_value in holm(p_values)])
