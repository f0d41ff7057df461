"""The teacher of icd: what the model before an edit predicts of training probes with their contexts.

It is run when a batch of edits is prepared, under whatever edit the model is under then, and no more.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from helpers.editing.rows import EditRow, check_record_length
from helpers.models import LanguageModel
from helpers.models.batching import token_batches, tokens_at_once
from helpers.models.forest import pack
from helpers.models.forward import hidden_states, vocabulary_scores


@torch.no_grad()
def teacher_probabilities(lm: LanguageModel, rows: Sequence[EditRow]) -> list[Tensor]:
    """Of each row the teacher's probabilities at its distilled tokens [tokens, vocabulary].

    They are means over a probe's contexts. Where a token is excluded, it has probability 0, and the others
    add to 1.
    """
    with_probes = [row for row in rows if row.distilled]
    for row in with_probes:
        check_record_length(lm, row.record, max(row.teacher.positions) + 1)
    vocabulary = lm.network.get_output_embeddings().weight.shape[0]
    nothing = torch.zeros(0, vocabulary, device=lm.device)
    of_rows = dict.fromkeys(range(len(rows)), nothing)
    indices = [index for index, row in enumerate(rows) if row.distilled]
    lengths = [len(row.teacher) for row in with_probes]
    for batch_numbers in token_batches(lengths, tokens_at_once(lm, 2048, gradients=False)):
        batch_indices = [indices[number] for number in batch_numbers]
        packed = pack([rows[index].teacher for index in batch_indices], lm)
        hidden = hidden_states(lm, packed.ids, packed.positions, packed.visible)
        for index, hidden_of_row in zip(batch_indices, hidden, strict=True):
            of_rows[index] = _mean_over_contexts(lm, rows[index], hidden_of_row)
    return list(of_rows.values())


def _mean_over_contexts(lm: LanguageModel, row: EditRow, hidden: Tensor) -> Tensor:
    """A row's probabilities [tokens, vocabulary] from the hidden states of its teacher's nodes."""
    nodes = [node for token in row.distilled for node in token.teacher_nodes]
    token_numbers = [
        number for number, token in enumerate(row.distilled) for _ in token.teacher_nodes
    ]
    no_tokens = torch.zeros(0, dtype=torch.long, device=lm.device)
    _, log_probabilities = vocabulary_scores(
        lm, hidden[nodes], no_tokens, no_tokens, distribution_rows=slice(None)
    )
    context_counts = torch.tensor(
        [len(token.teacher_nodes) for token in row.distilled], device=lm.device
    )
    means = log_probabilities.new_zeros(len(row.distilled), log_probabilities.shape[-1])
    means.index_add_(0, torch.tensor(token_numbers, device=lm.device), log_probabilities.exp())
    means /= context_counts[:, None]
    for number, token in enumerate(row.distilled):
        if token.excluded_token >= 0:
            means[number, token.excluded_token] = 0.0
            means[number] /= means[number].sum()
    return means
