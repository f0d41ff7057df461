"""PEAK's noise floor: what an edit that has nothing to do with a record does to the record's answers.

Kept answers are selected on the unedited model, so that any change of the scores looks like forgetting and
noise. AFF and ANF of an edit are therefore read against those of a placebo: the same editor's edit of another
record, of another relation and about another subject.

*figures/data/placebo/<model>_<dataset>* holds one table of scores for each method, as
*figures/data/peak* does, each record under its placebo.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from helpers.editing.editor import Editor
from helpers.editing.editors import method_label
from helpers.editing.placebo import Topic, foreign_records
from helpers.peak.metrics import metric_interval
from helpers.peak.publish import editors_of, peak_run, publication_of
from helpers.peak.records import PeakRecord
from helpers.peak.run import PeakRun
from helpers.peak.tables import Metrics, metric_contrast
from helpers.results.benchmark import evaluation_part
from helpers.results.evaluation import Mode
from helpers.results.publish import Publication
from helpers.results.statistics import holm
from helpers.results.text import in_points

COMPARED_METRICS = ("LS", "AFF_hard", "ANF_hard", "AFF_random", "ANF_random")


@dataclass(frozen=True)
class PeakPlacebo:
    """A run's records, each scored under the edit of another of its records, drawn by ``seed``."""

    run: PeakRun
    seed: int = 0

    @cached_property
    def edited_instead(self) -> dict[int, PeakRecord]:
        """For each record's number the record whose edit is its placebo."""
        records = self.run.data.records
        foreign_indices = foreign_records([_topic(record) for record in records], seed=self.seed)
        return {
            record.case_id: records[foreign_index]
            for record, foreign_index in zip(records, foreign_indices, strict=True)
        }

    @property
    def mode(self) -> Mode[PeakRecord]:
        """How placebos are made."""
        return self.run.benchmark.placebo(self.edited_instead)

    def scores(self, editor: Editor, *, from_store_only: bool = False) -> pd.DataFrame:
        """Scores before and under the placebo, for the metrics; if ``from_store_only``, the stored ones."""
        return self.run.scores(editor, self.mode, from_store_only=from_store_only)


def publication(params: Mapping[str, Any]) -> Publication:
    """Methods of notebook 03's parameter ``placebo``, a table each."""
    run = peak_run(params)
    placebo = PeakPlacebo(run, params["seed"])
    editors = editors_of(run, params["placebo"], params)
    parts = [
        evaluation_part(method_label(method), run.evaluation(editor, placebo.mode))
        for method, editor in editors.items()
    ]
    return publication_of(run, params, parts, params["placebo"], {"placebo_seed": params["seed"]})


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


def _topic(record: PeakRecord) -> Topic:
    """What a record's edit is about, and all that its questions are about."""
    names_of_answers = {
        record.target_new,
        *record.correct,
        *record.hard_false,
        *record.random_false,
    }
    return Topic(str(record.case_id), record.relation, record.subject, frozenset(names_of_answers))
