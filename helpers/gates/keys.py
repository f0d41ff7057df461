"""What a gate can recognise a prompt by, and how near each prompt is to every stored fact.

Of the input k [in] of a layer's second MLP matrix, and of that block's output h [hidden]:

    last      minus the distance of k at the last tokens                                  (GRACE)
    subject   minus the distance of the stored k at the subject's last token to the nearest k of the prompt
    mask      shared columns among the K largest of |mean of k, centred|                  (MEMOIR)
    hidden    cosine of the mean of h over the tokens, centred                            (``memory-hidden``)

and of the words alone: ``bm25`` of the fact's statement (``memory-bm25``), and ``bm25-subject``, which is 0
for statements whose subject the prompt does not name, as an oracle of entity linking would have it.

The first token rarely varies from prompt to prompt: ``subject`` and ``hidden`` omit it. Centres are
those of the background prompts, which no fact is about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from helpers.editing.contexts import read_at_subjects
from helpers.editing.demonstrations import background_prompts, names_one
from helpers.editing.grace import distances
from helpers.editing.in_context import statements_of
from helpers.editing.masks import SHARE, mask_size, shared_columns, top_columns
from helpers.editing.request import EditRequest
from helpers.editing.retrieval import Bm25
from helpers.models import LanguageModel
from helpers.models.batching import token_batches
from helpers.models.forest import padded
from helpers.models.forward import hidden_states
from helpers.models.hooks import record
from helpers.models.tokens import ids_of_prompts, subject_prompt

LAYER_KEYS = ("last", "subject", "mask", "hidden")
WORD_KEYS = ("bm25", "bm25-subject")
WITHOUT_LAYER = -1


@dataclass(frozen=True)
class PromptStates:
    """What is read at one layer, of one prompt or, with a first dimension more, of several; fp32."""

    last_input: Tensor  # [in], at the last token
    mean_input: Tensor  # [in], over all tokens
    mean_output: Tensor  # [hidden], over all tokens but the first
    subject_distance: Tensor  # [stored keys], of the nearest token but the first

    @classmethod
    def of_tokens(cls, inputs: Tensor, outputs: Tensor, subject_keys: Tensor) -> PromptStates:
        """Of one prompt's inputs [tokens, in] and outputs [tokens, hidden], and stored keys [entries, in]."""
        first = min(1, len(inputs) - 1)  # the first token counts where it is the only one
        return cls(
            last_input=inputs[-1],
            mean_input=inputs.mean(0),
            mean_output=outputs[first:].mean(0),
            subject_distance=distances(inputs[first:], subject_keys).amin(0),
        )

    @classmethod
    def of_prompts(cls, states: Sequence[PromptStates]) -> PromptStates:
        """Several prompts' states as one."""
        return cls(
            last_input=torch.stack([state.last_input for state in states]),
            mean_input=torch.stack([state.mean_input for state in states]),
            mean_output=torch.stack([state.mean_output for state in states]),
            subject_distance=torch.stack([state.subject_distance for state in states]),
        )


StatesByLayer = dict[int, PromptStates]


@torch.inference_mode()
def prompt_states(
    lm: LanguageModel,
    prompts: Sequence[str],
    layers: Sequence[int],
    subject_keys: Mapping[int, Tensor] | None = None,
) -> StatesByLayer:
    """The states of prompts by layer, from one pass of each.

    ``subject_keys`` are stored keys [entries, in] by layer, to which distances are found; None: to none.
    """
    layout = lm.layout
    inputs = [layout.mlp_out(layer) for layer in layers]
    outputs = [layout.block(layer) for layer in layers]
    if subject_keys is None:
        no_keys = torch.empty(0, layout.intermediate_size, device=lm.device)
        subject_keys = dict.fromkeys(layers, no_keys)
    ids_of_prompt = ids_of_prompts(lm, prompts)
    ids = [ids_of_prompt[prompt] for prompt in prompts]
    states: dict[int, dict[int, PromptStates]] = {layer: {} for layer in layers}  # by the prompt
    # In half precision each prompt alone: its states must not depend on the others in its batch.
    token_budget = 4096 if lm.dtype.itemsize >= 4 else 1
    for batch in token_batches([len(of_prompt) for of_prompt in ids], token_budget):
        texts = padded(lm, [ids[index] for index in batch])
        with record(lm, inputs=inputs, outputs=outputs) as recorded:
            hidden_states(lm, texts.ids, texts.positions, texts.visible)
        for layer, input_name, output_name in zip(layers, inputs, outputs, strict=True):
            for row, index in enumerate(batch):
                length = len(ids[index])
                states[layer][index] = PromptStates.of_tokens(
                    recorded[input_name][row, :length].float(),
                    recorded[output_name][row, :length].float(),
                    subject_keys[layer],
                )
    return {
        layer: PromptStates.of_prompts([by_prompt[index] for index in range(len(prompts))])
        for layer, by_prompt in states.items()
    }


@dataclass(frozen=True)
class StoredFacts:
    """What gates know of the facts that were edited, by layer."""

    edit_prompts: StatesByLayer
    statements: StatesByLayer  # of prompts with their targets
    background: StatesByLayer
    subject_keys: dict[int, Tensor]  # [facts, in], at the subject's last token of the edit prompt


def stored_facts(
    lm: LanguageModel, requests: Sequence[EditRequest], layers: Sequence[int]
) -> StoredFacts:
    """Read what every layer's gate stores of the requests."""
    module_names = [lm.layout.mlp_out(layer) for layer in layers]
    subjects = [[subject_prompt(lm, request.prompt, request.subject)] for request in requests]
    at_subjects = read_at_subjects(lm, subjects, inputs=module_names)
    subject_names = [request.subject for request in requests]
    return StoredFacts(
        edit_prompts=prompt_states(lm, [request.text for request in requests], layers),
        statements=prompt_states(lm, statements_of(lm, requests), layers),
        background=prompt_states(lm, background_prompts(subject_names), layers),
        subject_keys={
            layer: torch.cat(at_subjects[name])
            for layer, name in zip(layers, module_names, strict=True)
        },
    )


def layer_nearness(stored: StoredFacts, layer: int, states: PromptStates) -> dict[str, np.ndarray]:
    """How near prompts are to the stored facts at a layer, by key [prompts, facts]; higher is nearer."""
    edit_prompts = stored.edit_prompts[layer]
    background = stored.background[layer]
    input_center = background.mean_input.mean(0)
    output_center = background.mean_output.mean(0)
    count = mask_size(SHARE, len(input_center))
    stored_masks = top_columns(edit_prompts.mean_input - input_center, count)
    masks = top_columns(states.mean_input - input_center, count)
    stored_outputs = stored.statements[layer].mean_output - output_center
    outputs = states.mean_output - output_center
    nearness = {
        "last": -distances(states.last_input, edit_prompts.last_input),
        "subject": -states.subject_distance,
        "mask": shared_columns(masks, stored_masks) / count,
        "hidden": cosines(outputs, stored_outputs),
    }
    return {key: matrix.cpu().numpy() for key, matrix in nearness.items()}


def cosines(vectors: Tensor, stored: Tensor) -> Tensor:
    """Of each vector [prompts, hidden] with each stored one [facts, hidden]: [prompts, facts]."""
    # [prompts, 1, hidden] with [1, facts, hidden], over the last
    return torch.nn.functional.cosine_similarity(vectors[:, None], stored[None], dim=-1)


def word_nearness(
    statements: Sequence[str], subjects: Sequence[str], prompts: Sequence[str]
) -> dict[str, np.ndarray]:
    """How near prompts are to statements about subjects, by their words [prompts, statements]."""
    index = Bm25(statements)
    scores = np.stack([index.scores(prompt) for prompt in prompts])
    is_named = np.array(
        [[names_one([prompt], [subject]) for subject in subjects] for prompt in prompts]
    )
    return {"bm25": scores, "bm25-subject": scores * is_named}
