"""PEAK's noise floor: what an edit that has nothing to do with a record does to the record's answers.

Kept answers are selected on the unedited model, so that any change of the scores looks like forgetting and
noise. AFF and ANF of an edit are therefore read against those of a placebo: the same editor's edit of another
record, of another relation and about another subject.

*figures/data/placebo/<model>_<dataset>* holds one table of scores for each method, as
*figures/data/peak* does, each record under its placebo.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from helpers.editing.editor import Editor
from helpers.editing.editors import method_label
from helpers.editing.placebo import Topic, foreign_records
from helpers.peak.metrics import COLUMNS, metric_interval
from helpers.peak.publish import editors_of, part_of_records, peak_run, publication_of
from helpers.peak.records import PeakRecord
from helpers.peak.run import PeakRun, edit_request
from helpers.peak.tables import Metrics, metric_contrast
from helpers.results.evaluation import diagnostics_table, joined
from helpers.results.publish import Part, Publication
from helpers.results.statistics import holm
from helpers.results.store import Cases, Results, flag_unusable
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

    def scores(self, editor: Editor, *, stored_only: bool = False) -> pd.DataFrame:
        """Scores before and under the placebo, for the metrics; if ``stored_only``, the stored ones."""

        def make(records: Sequence[PeakRecord]) -> dict[str, pd.DataFrame]:
            edited_records = [self.edited_instead[record.case_id] for record in records]
            updates = editor.edit([edit_request(record) for record in edited_records])
            scores = self.run.score(records, updates)
            edit_rows = flag_unusable(diagnostics_table(records, updates), scores, "sum")
            return {"scores": scores, "edits": edit_rows}

        results = self._results(editor)
        if not stored_only:
            self.run.check(self.run.data.records)
            self._cases.completed(results, make)
        before = self.run.cases.read(self.run.results()) if stored_only else self.run.scored()
        after = self._cases.read(results)
        if before.empty or after.empty:
            return pd.DataFrame(columns=COLUMNS)
        edit_rows = self._cases.read(results, "edits")
        failed_cases = edit_rows.loc[edit_rows["failure"] != "", "case_id"]
        return joined(before, after[~after["case_id"].isin(failed_cases)])

    @cached_property
    def _cases(self) -> Cases[PeakRecord]:
        """The records, kept by their content and that of the record that is edited."""

        def content(record: PeakRecord) -> object:
            return record.to_json(), self.edited_instead[record.case_id].to_json()

        return Cases(self.run.cases.by_id, self.run.cases.chunk, content)

    def _results(self, editor: Editor) -> Results:
        return self.run.open({"mode": "placebo", **editor.settings()})


def publication(params: Mapping[str, Any]) -> Publication:
    """Methods of notebook 03's parameter ``placebo``, a table each."""
    run = peak_run(params)
    placebo = PeakPlacebo(run, params["seed"])
    parts = list(_parts(placebo, editors_of(run, params["placebo"], params)))
    return publication_of(run, params, parts, params["placebo"], {"placebo_seed": params["seed"]})


def _parts(placebo: PeakPlacebo, editors: Mapping[str, Editor]) -> Iterator[Part]:
    give_scores: Callable[..., pd.DataFrame] = placebo.scores
    for method, editor in editors.items():
        yield part_of_records(method_label(method), placebo.run, give_scores, editor)


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
