"""PEAK's records, each scored under the edit of another record, for ``placebo``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from helpers.editing.editor import Editor
from helpers.editing.editors import method_label
from helpers.editing.placebo import Topic, foreign_records
from helpers.peak.publish import editors_of, peak_run, publication_of
from helpers.peak.records import PeakRecord
from helpers.peak.run import PeakRun
from helpers.results.benchmark import evaluation_part
from helpers.results.evaluation import Mode
from helpers.results.publish import Publication


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


def _topic(record: PeakRecord) -> Topic:
    """What a record's edit is about, and all that its questions are about."""
    names_of_answers = {
        record.target_new,
        *record.correct,
        *record.hard_false,
        *record.random_false,
    }
    return Topic(str(record.case_id), record.relation, record.subject, frozenset(names_of_answers))
