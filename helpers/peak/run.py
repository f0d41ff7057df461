"""Scores of PEAK records before and after edits, computed in batches and kept in the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from helpers.editing.editor import Editor
from helpers.editing.update import Update
from helpers.models.batching import records_at_once
from helpers.models.language_model import LanguageModel
from helpers.peak.asked import KEYS, askable, edit_request, questions
from helpers.peak.records import PeakData
from helpers.peak.schema import STRICT, PeakRecord
from helpers.results.store import Cases, Results, ResultsStore, flag_unusable, settings_key
from helpers.scoring.answers import Question, score_answers

EDIT_COLUMNS = [
    "case_id",
    "failure",
    "steps",
    "final_nll",
    "relative_norm",
    "exploding",
    "diagnostics",
]
_OF_THE_FILE = ("dataset", "checksum", "strict_lists")  # a record's own content says as much
Make = Callable[[Sequence[PeakRecord]], Mapping[str, pd.DataFrame]]
SCORING_VERSION = 1  # raise it when what is scored, or how, changes


def score_records(
    language_model: LanguageModel,
    records: Sequence[PeakRecord],
    updates: Sequence[Update] | None = None,
    *,
    progress: bool = False,
) -> pd.DataFrame:
    """Long table (case_id, role, prompt_index, list, answer_index, tokens, sum) of all records.

    Args:
        records: PEAK records.
        updates: one per record, under which it is scored; default: the unedited model.
    """
    asked, keys, owners = [], [], []
    for index, record in enumerate(records):
        asked_here, table = questions(record)
        asked += asked_here
        keys.append(table)
        owners += [index if updates is not None else -1] * len(asked_here)
    scores = score_answers(language_model, asked, updates, owners, progress=progress)
    return pd.concat(keys, ignore_index=True).assign(
        tokens=scores["tokens"].to_numpy(), sum=scores["sum"].to_numpy()
    )


@dataclass(frozen=True)
class PeakRun:
    """One model on one data set, with the store its scores are kept in.

    ``chunk`` records are edited and scored together (default: 32, and 128 on a GPU with room); it
    bounds what an interruption can cost.
    """

    language_model: LanguageModel
    data: PeakData
    store: ResultsStore
    chunk: int | None = None
    progress: bool = False

    def before(self) -> pd.DataFrame:
        """Scores of the unedited model."""

        def scored(records: Sequence[PeakRecord]) -> dict[str, pd.DataFrame]:
            return {"scores": score_records(self.language_model, records, progress=self.progress)}

        return self.completed(_how(None), scored)

    def after(self, editor: Editor) -> pd.DataFrame:
        """Scores of each record under its own, independent edit."""

        def edited(records: Sequence[PeakRecord]) -> dict[str, pd.DataFrame]:
            updates = editor.edit([edit_request(record) for record in records])
            scores = score_records(self.language_model, records, updates, progress=self.progress)
            edits = flag_unusable(diagnostics_table(records, updates), scores, "sum")
            return {"scores": scores, "edits": edits}

        return self.completed(_how(editor), edited)

    def completed(self, how: Mapping[str, Any], make: Make) -> pd.DataFrame:
        """The scores of all records, the missing ones checked before the first of them is made.

        Args:
            how: settings beside the run's own.
            make: from some records to tables by kind.

        Raises:
            UserError: records that the model cannot be asked about.
        """
        results = self.open(how)
        missing = [self.cases.by_id[case_id] for case_id in self.cases.missing(results)]
        askable(self.language_model, missing, where=str(self.data.path)).checked()
        return self.cases.completed(results, make)

    @cached_property
    def cases(self) -> Cases[PeakRecord]:
        """The records by number, kept by their content."""
        by_id = {record.case_id: record for record in self.data.records}
        chunk = self.chunk or records_at_once(self.language_model.device, 32)
        return Cases(by_id, chunk, PeakRecord.to_json)

    def open(self, how: Mapping[str, Any]) -> Results:
        """Where the rows of records are kept, whichever file they are from."""
        return self.store.open(self._by_content(how))

    def open_together(self, how: Mapping[str, Any], records: Sequence[PeakRecord]) -> Results:
        """Where rows are kept that depend on all of some records."""
        content = settings_key({"records": [record.to_json() for record in records]})
        return self.store.open(self._by_content(how, content))

    def _by_content(self, how: Mapping[str, Any], records: str = "by content") -> dict[str, Any]:
        settings = self.settings(how).items()
        kept = {name: value for name, value in settings if name not in _OF_THE_FILE}
        return {**kept, "records": records}

    def results(self, editor: Editor | None = None) -> Results:
        """Where an editor's results are kept; without one, the unedited model's."""
        return self.open(_how(editor))

    def scores(self, editor: Editor, *, finished: bool = False) -> pd.DataFrame:
        """Scores before and after, in the columns the metrics take; failed edits are left out.

        Args:
            finished: take the records that are in the store and compute nothing.
        """
        if finished:
            unedited, edited = (self.cases.read(self.results(e)) for e in (None, editor))
        else:
            unedited, edited = self.before(), self.after(editor)
        before = unedited.rename(columns={"sum": "sum_before"})
        if before.empty or edited.empty:
            return pd.DataFrame(columns=[*KEYS, "tokens", "sum_before", "sum_after"])
        after = edited.rename(columns={"sum": "sum_after"}).drop(columns="tokens")
        edits = self.edits(editor)
        broken = edits.loc[edits["failure"] != "", "case_id"]
        return before.merge(after[~after["case_id"].isin(broken)], on=KEYS, validate="1:1")

    def edits(self, editor: Editor) -> pd.DataFrame:
        """Diagnostics (``EDIT_COLUMNS``) of each edit of this run's records that was made here."""
        return self.cases.read(self.results(editor), "edits").reindex(columns=EDIT_COLUMNS)

    def settings(self, more: Mapping[str, Any]) -> dict[str, Any]:
        """What the scores are of: model, data file, scoring and ``more``, such as an editor's."""
        return {
            "benchmark": "peak",
            "dataset": self.data.name,
            "checksum": self.data.checksum,
            "strict_lists": STRICT if self.data.strict_lists else False,
            **self.language_model.identity,
            "scoring_version": SCORING_VERSION,
            "scored_by": {"answers": Question.version},
            **more,
        }


def _how(editor: Editor | None) -> dict[str, Any]:
    """What makes an editor's scores, or the unedited model's."""
    return {"mode": "independent", **editor.settings()} if editor else {"editor": "none"}


def diagnostics_table(records: Sequence[PeakRecord], updates: Sequence[Update]) -> pd.DataFrame:
    """One row per edit: failure, steps, loss, norm, flag; the full record as JSON.

    ``final_nll`` is of the last evaluation: MEND's, and that of an FT edit that uses all its steps,
    is from before the last step.
    """
    rows = []
    for record, update in zip(records, updates, strict=True):
        known = update.diagnostics
        rows.append(
            (
                record.case_id,
                known.get("failure", ""),
                known.get("steps"),
                (known.get("losses") or [{}])[-1].get("nll"),
                max(known.get("relative_norm", {}).values(), default=None),
                bool(known.get("exploding", False)),
                json.dumps(dict(known)),
            )
        )
    return pd.DataFrame(rows, columns=EDIT_COLUMNS)
