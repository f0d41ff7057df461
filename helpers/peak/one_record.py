"""One PEAK record under several edits, for notebooks that teach and for the explorer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from helpers.editing.update import Update
from helpers.models.language_model import LanguageModel
from helpers.peak.run import score_records
from helpers.peak.schema import PeakRecord

KEYS = ["role", "prompt_index", "list", "answer_index"]


def record_scores(
    language_model: LanguageModel, record: PeakRecord, states: Mapping[str, Update | None]
) -> pd.DataFrame:
    """Mean-token log-probability of every answer of a record in each state of the model.

    Args:
        states: name of a state → its update; None is the unedited model.

    Returns:
        role, prompt_index, list, answer_index, answer (text), and one column per state.
    """
    table = pd.DataFrame()
    for name, update in states.items():
        updates = None if update is None else [update]
        scores = score_records(language_model, [record], updates)
        if table.empty:
            table = scores[KEYS].assign(answer=[_text(record, row) for row in scores.itertuples()])
        table[name] = (scores["sum"] / scores["tokens"]).to_numpy()
    return table


def edit_prompt_probabilities(scores: pd.DataFrame) -> pd.DataFrame:
    """The edit prompt's answers with their probabilities, lists in reading order.

    Takes the table of ``record_scores``; returns answer, list and one column per state.
    """
    states = [c for c in scores.columns if c not in (*KEYS, "answer")]
    at_edit = scores[scores["role"] == "edit"]
    shown = at_edit[["answer", "list"]].copy()
    for state in states:
        shown[state] = np.exp(at_edit[state])
    return shown.reset_index(drop=True)


def joined_scores(
    language_model: LanguageModel, record: PeakRecord, update: Update
) -> pd.DataFrame:
    """The record's scores before and after an update, in the columns the metrics take."""
    before = score_records(language_model, [record]).rename(columns={"sum": "sum_before"})
    after = score_records(language_model, [record], [update])
    return before.assign(sum_after=after["sum"])


def _text(record: PeakRecord, row: object) -> str:
    role, prompt, name, index = (getattr(row, key) for key in KEYS)
    if role == "locality" and name != "target":
        return record.locality[0 if name == "first" else prompt][1]
    return record.lists[name][index]
