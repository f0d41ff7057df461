"""Keys and values at the subject: inputs and outputs of modules at each subject's last token."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from helpers.editing.overlay import overlay
from helpers.editing.update import Update
from helpers.models.batching import run_halving, token_batches
from helpers.models.forest import Forest, pack
from helpers.models.forward import hidden_states
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import SubjectPrompt
from helpers.models.trace import record


@torch.no_grad()
def read_at_subjects(
    language_model: LanguageModel,
    prompts: Sequence[Sequence[SubjectPrompt]],
    *,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    updates: Sequence[Update] | None = None,
    token_budget: int = 4096,
) -> dict[str, list[Tensor]]:
    """Inputs and outputs of modules at the subject's last token, read in the same forward passes.

    Args:
        prompts: for each edit its prompts (one per context template).
        inputs: modules whose input is read (a key, [f]).
        outputs: modules whose output is read (a value, [d]).
        updates: one update per edit, under which its prompts run; default: the unedited model.

    Returns:
        For each module and edit a tensor [prompts, size] in fp32.
    """
    forests, nodes = [Forest() for _ in prompts], []
    for forest, group in zip(forests, prompts, strict=True):
        nodes.append([forest.add(p.ids[: p.subject_last + 1])[-1] for p in group])
    names = (*inputs, *outputs)
    found: dict[str, dict[int, Tensor]] = {name: {} for name in names}

    def run(chosen: Sequence[int]) -> None:
        packed = pack([forests[i] for i in chosen], language_model)
        owners = chosen if updates is not None else [-1] * len(chosen)
        with (
            overlay(language_model, updates or [], owners),
            record(language_model, inputs=inputs, outputs=outputs) as seen,
        ):
            hidden_states(language_model, packed.ids, packed.positions, packed.visible)
        for name in names:
            for row, index in enumerate(chosen):
                found[name][index] = seen[name][row, nodes[index]].float()

    for batch in token_batches([len(forest) for forest in forests], token_budget):
        run_halving(batch, run)
    return {name: [found[name][i] for i in range(len(prompts))] for name in names}
