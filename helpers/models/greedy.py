"""The model's own most probable continuation, for many prompts at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from helpers.models.forward import causal_visibility, hidden_states
from helpers.models.language_model import LanguageModel


@torch.no_grad()
def greedy_tokens(
    language_model: LanguageModel, prompts: Sequence[Sequence[int]], counts: Sequence[int]
) -> list[tuple[int, ...]]:
    """The ``counts[i]`` tokens that follow ``prompts[i]`` when the likeliest is always taken.

    Meant for the few tokens of an answer: each step runs the whole texts again.
    """
    texts = [list(prompt) for prompt in prompts]
    head = language_model.model.get_output_embeddings()
    pad = language_model.tokenizer.pad_token_id
    for step in range(max(counts, default=0)):
        going = [text for text, count in zip(texts, counts, strict=True) if step < count]
        lengths = [len(text) for text in going]
        positions, visible = causal_visibility(lengths, language_model.device)
        ids = torch.full(positions.shape, pad, device=language_model.device)
        for row, text in enumerate(going):
            ids[row, : len(text)] = torch.tensor(text)
        hidden = hidden_states(language_model, ids, positions, visible)
        last = hidden[torch.arange(len(going)), torch.tensor(lengths) - 1]
        for text, token in zip(going, head(last).argmax(-1).tolist(), strict=True):
            text.append(token)
    return [tuple(text[len(prompt) :]) for text, prompt in zip(texts, prompts, strict=True)]
