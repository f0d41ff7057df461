"""The model's own most probable continuation, for many prompts at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from helpers.models.batching import run_halving, token_batches
from helpers.models.forward import hidden_states
from helpers.models.language_model import LanguageModel
from helpers.models.padding import padded


@torch.no_grad()
def greedy_tokens(
    language_model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    counts: Sequence[int],
    *,
    token_budget: int = 4096,
) -> list[tuple[int, ...]]:
    """The ``counts[i]`` tokens that follow ``prompts[i]`` when the likeliest is always taken.

    Meant for the few tokens of an answer: each step runs the whole texts again.

    Args:
        prompts: token ids, each at least one.
        counts: tokens wanted after each prompt.
    """
    texts = [list(prompt) for prompt in prompts]

    def lengthen(chosen: Sequence[int]) -> None:
        going = [texts[i] for i in chosen]
        for text, token in zip(going, _next_tokens(language_model, going), strict=True):
            text.append(token)

    for step in range(max(counts, default=0)):
        unfinished = [i for i, count in enumerate(counts) if step < count]
        for batch in token_batches([len(texts[i]) for i in unfinished], token_budget):
            run_halving([unfinished[i] for i in batch], lengthen)
    return [tuple(text[len(prompt) :]) for text, prompt in zip(texts, prompts, strict=True)]


def _next_tokens(language_model: LanguageModel, texts: Sequence[Sequence[int]]) -> list[int]:
    """The likeliest next token of each text."""
    batch = padded(language_model, texts)
    hidden = hidden_states(language_model, batch.ids, batch.positions, batch.visible)
    last = batch.last(hidden)
    found: list[int] = language_model.model.get_output_embeddings()(last).argmax(-1).tolist()
    return found
