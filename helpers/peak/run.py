"""Scores of PEAK records before and after edits, computed in batches and kept in the store."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from helpers.editing.editor import Editor
from helpers.editing.request import EditRequest
from helpers.editing.update import Update
from helpers.models.language_model import LanguageModel
from helpers.peak.records import PeakData
from helpers.peak.schema import PeakRecord
from helpers.records import RecordError
from helpers.results.run import Cases, flag_unusable
from helpers.results.store import Results, ResultsStore
from helpers.scoring.answers import Question, score_answers, tokenised

KEYS = ["case_id", "role", "prompt_index", "list", "answer_index"]
EDIT_COLUMNS = [
    "case_id",
    "failure",
    "steps",
    "final_nll",
    "relative_norm",
    "exploding",
    "diagnostics",
]
SCORING_VERSION = 1  # raise it when what is scored, or how, changes


def edit_request(record: PeakRecord) -> EditRequest:
    """A record as an edit: append o*, with O and O_h for APP.

    A list that holds o* itself (possible where contradictions are kept) goes without it: no
    objective can keep an answer from itself.
    """
    correct, false = (
        tuple(answer for answer in answers if answer.strip() != record.target_new.strip())
        for answers in (record.correct, record.hard_false)
    )
    return EditRequest(
        subject=record.subject,
        prompt=record.prompt,
        target=record.target_new,
        correct=correct,
        false=false,
        record=str(record.case_id),
    )


def questions(record: PeakRecord) -> tuple[list[Question], pd.DataFrame]:
    """All questions of a record, and the key of each answer in their order."""
    lists = record.lists
    asked, keys = [], []
    prompts = [("edit", 0, record.edit_prompt)]
    prompts += [("paraphrase", i, prompt) for i, prompt in enumerate(record.paraphrases)]
    for role, index, prompt in prompts:
        asked.append(Question(prompt, tuple(a for answers in lists.values() for a in answers)))
        keys += [(role, index, name, i) for name, group in lists.items() for i in range(len(group))]
    for index, (prompt, own) in enumerate(record.locality):
        asked.append(Question(prompt, (record.target_new, own, record.locality[0][1])))
        keys += [("locality", index, name, 0) for name in ("target", "locality", "first")]
    table = pd.DataFrame(keys, columns=KEYS[1:])
    table.insert(0, "case_id", record.case_id)
    return asked, table


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


def check_records(
    language_model: LanguageModel, records: Sequence[PeakRecord], *, where: str
) -> None:
    """Refuse records that this model cannot be asked about, before the first of them is edited.

    Raises:
        RecordError: with every such record and what is wrong with it.
    """
    wrong = []
    for record in records:
        try:
            edit_request(record)
            tokenised(language_model, questions(record)[0])
        except ValueError as error:
            wrong.append(f"case_id {record.case_id}: {error}")
    if wrong:
        more = f"; and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise RecordError(
            f"{where}: {'; '.join(wrong[:5])}{more}. Mend or remove them: nothing was edited yet"
        )


@dataclass(frozen=True)
class PeakRun:
    """One model on one data set, with the store its scores are kept in.

    ``chunk`` records are edited and scored together; it bounds what an interruption can cost.
    """

    language_model: LanguageModel
    data: PeakData
    store: ResultsStore
    chunk: int = 32
    progress: bool = False

    def before(self) -> pd.DataFrame:
        """Scores of the unedited model."""

        def scored(records: Sequence[PeakRecord]) -> dict[str, pd.DataFrame]:
            return {"scores": score_records(self.language_model, records, progress=self.progress)}

        return self._completed(self.results(), scored)

    def after(self, editor: Editor) -> pd.DataFrame:
        """Scores of each record under its own, independent edit."""

        def edited(records: Sequence[PeakRecord]) -> dict[str, pd.DataFrame]:
            updates = editor.edit([edit_request(record) for record in records])
            scores = score_records(self.language_model, records, updates, progress=self.progress)
            edits = flag_unusable(diagnostics_table(records, updates), scores, "sum")
            return {"scores": scores, "edits": edits}

        return self._completed(self.results(editor), edited)

    def _completed(self, results: Results, make: Any) -> pd.DataFrame:
        """All cases, those that are missing checked before the first of them is made."""
        missing = [self.cases.by_id[case_id] for case_id in self.cases.missing(results)]
        check_records(self.language_model, missing, where=str(self.data.path))
        return self.cases.completed(results, make)

    @property
    def cases(self) -> Cases[PeakRecord]:
        """The records by number."""
        return Cases({record.case_id: record for record in self.data.records}, self.chunk)

    def results(self, editor: Editor | None = None) -> Results:
        """Where an editor's results are kept; without one, the unedited model's."""
        how = {"mode": "independent", **editor.settings()} if editor else {"editor": "none"}
        return self.store.open(self.settings(how))

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

    def adopt(self, editor: Editor, scores: pd.DataFrame) -> None:
        """Count scores before and after, made by this editor in another run, as finished.

        How the edits themselves went is not known of them: ``edits`` does not list them.
        """
        columns = {"sum_before": self.results(), "sum_after": self.results(editor)}
        for column, results in columns.items():
            fresh = scores[~scores["case_id"].isin(results.done())]
            if len(fresh):
                results.append(fresh[[*KEYS, "tokens"]].assign(sum=fresh[column]))

    def edits(self, editor: Editor) -> pd.DataFrame:
        """Diagnostics (``EDIT_COLUMNS``) of each edit of this run's records that was made here."""
        return self.cases.read(self.results(editor), "edits").reindex(columns=EDIT_COLUMNS)

    def settings(self, more: Mapping[str, Any]) -> dict[str, Any]:
        """Everything the scores depend on: model, data, scoring and ``more``, such as an editor's."""
        return {
            "benchmark": "peak",
            "dataset": self.data.name,
            "checksum": self.data.checksum,
            "strict_lists": self.data.strict_lists,
            **self.language_model.identity,
            "scoring_version": SCORING_VERSION,
            "scored_by": {"answers": Question.version},
            **more,
        }


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
