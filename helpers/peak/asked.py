"""What a PEAK record asks of a model, and whether the model can be asked."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from helpers import UserError
from helpers.editing.request import EditRequest
from helpers.models.language_model import LanguageModel
from helpers.peak.schema import PeakRecord
from helpers.records import Usable
from helpers.scoring.answers import Question, tokenised

KEYS = ["case_id", "role", "prompt_index", "list", "answer_index"]


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


def askable(
    language_model: LanguageModel, records: Sequence[PeakRecord], *, where: str
) -> Usable[PeakRecord]:
    """The records that this model can be asked about, and what is wrong with the others.

    Args:
        language_model: the model.
        records: by their order.
        where: the file, for the messages.
    """

    def ask(_: int, record: PeakRecord) -> PeakRecord:
        try:
            edit_request(record)
            tokenised(language_model, questions(record)[0])
        except ValueError as error:
            raise UserError(f"{where}, case_id {record.case_id}: {error}") from error
        return record

    return Usable(dict(enumerate(records))).through(ask)
