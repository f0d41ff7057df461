"""Cosines of correct answers' unembeddings with that of o*, which ``similarity`` reads.

``python -m tools.peak_runs similarity RUN`` stores them.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import torch
from torch import Tensor

from helpers.models import LanguageModel
from helpers.models.tokens import Ids, ids_of_answers, separator_after
from helpers.peak.records import PeakRecord


def answer_cosines(lm: LanguageModel, records: Sequence[PeakRecord]) -> pd.DataFrame:
    """The cosine of each correct answer's unembedding with that of o*, a row an answer.

    Columns: ``case_id``, ``answer_index``, ``cosine``, ``first_cosine`` (that of the first tokens alone), and
    ``shares_token``: whether o* has one of its tokens.
    """
    rows_of_matrix = lm.network.get_output_embeddings().weight.detach().float()  # [vocabulary, d]
    mean_row = rows_of_matrix.mean(dim=0)
    rows = []
    for record in records:
        separator = separator_after(record.edit_prompt)
        answers = (record.target_new, *record.correct)
        ids_by_answer = ids_of_answers(lm, answers, separator)
        target_ids = ids_by_answer[record.target_new]
        target = _unit_direction(rows_of_matrix, target_ids, mean_row)
        first_of_target = _unit_direction(rows_of_matrix, target_ids[:1], mean_row)
        for answer_index, answer in enumerate(record.correct):
            ids = ids_by_answer[answer]
            cosine = _unit_direction(rows_of_matrix, ids, mean_row).dot(target)
            first_cosine = _unit_direction(rows_of_matrix, ids[:1], mean_row).dot(first_of_target)
            shares_token = not set(ids).isdisjoint(target_ids)
            measures = float(cosine), float(first_cosine), shares_token
            rows.append((record.case_id, answer_index, *measures))
    types = {
        "case_id": "int32",
        "answer_index": "int16",
        "cosine": "float32",
        "first_cosine": "float32",
        "shares_token": "bool",
    }
    return pd.DataFrame(rows, columns=[*types]).astype(types)


def _unit_direction(rows_of_matrix: Tensor, ids: Ids, mean_row: Tensor) -> Tensor:
    """The unit vector [d] of an answer's mean row, less that of the vocabulary."""
    vector = rows_of_matrix[torch.tensor(ids, device=rows_of_matrix.device)].mean(dim=0) - mean_row
    return vector / vector.norm()
