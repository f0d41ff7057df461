"""Keys and values at the subject: inputs and outputs of a module at each subject's last token."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from helpers.editing.overlay import overlay
from helpers.editing.update import Update
from helpers.models.batching import token_batches
from helpers.models.forest import Forest, pack
from helpers.models.forward import hidden_states
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import SubjectPrompt
from helpers.models.trace import record_inputs, record_outputs


@torch.inference_mode()
def read_at_subjects(
    language_model: LanguageModel,
    prompts: Sequence[Sequence[SubjectPrompt]],
    module: str,
    *,
    inputs: bool,
    updates: Sequence[Update] | None = None,
    token_budget: int = 4096,
) -> list[Tensor]:
    """Inputs or outputs of ``module`` at the subject's last token of each prompt.

    Args:
        language_model: the model.
        prompts: for each edit its prompts (one per context template).
        module: name of the module to read.
        inputs: read its input (a key, [f]) or its output (a value, [d]).
        updates: one update per edit, under which its prompts run; default: the unedited model.
        token_budget: tokens per forward pass.

    Returns:
        For each edit a tensor [prompts, size] in fp32.
    """
    forests, nodes = [Forest() for _ in prompts], []
    for forest, group in zip(forests, prompts, strict=True):
        nodes.append([forest.add(p.ids[: p.subject_last + 1])[-1] for p in group])
    record = record_inputs if inputs else record_outputs
    found: dict[int, Tensor] = {}
    for batch in token_batches([len(forest) for forest in forests], token_budget):
        packed = pack([forests[i] for i in batch], language_model)
        owners = batch if updates is not None else [-1] * len(batch)
        with (
            overlay(language_model, updates or [], owners),
            record(language_model, [module]) as seen,
        ):
            hidden_states(language_model, packed.ids, packed.positions, packed.visible)
        for row, index in enumerate(batch):
            found[index] = seen[module][row, nodes[index]].float()
    return [found[i] for i in range(len(prompts))]
