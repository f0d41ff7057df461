"""The plain path everyone writes first: one edit at a time, whole sequences, logits everywhere.

It is the yardstick of the benchmarks and, because it shares no code with the engine beyond the
tokenisation, an independent check of its results in the tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from helpers.editing.contexts import ContextTemplates
from helpers.editing.presets import VectorHyperparameters
from helpers.editing.request import EditRequest
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import answer_ids, prompt_ids, subject_prompt
from helpers.scoring.answers import Question


def plain_scores(
    language_model: LanguageModel, questions: Sequence[Question], *, batch: int = 32
) -> list[float]:
    """Mean log-probability of every answer: every (prompt, answer) pair a padded row of its own."""
    pairs = [
        (prompt_ids(language_model, q.prompt), answer_ids(language_model, a))
        for q in questions
        for a in q.answers
    ]
    scores: list[float] = []
    for start in range(0, len(pairs), batch):
        rows = [(*prompt, *answer) for prompt, answer in pairs[start : start + batch]]
        with torch.no_grad():
            logits = _logits(language_model, rows).log_softmax(-1)
        for row, (prompt, answer) in enumerate(pairs[start : start + batch]):
            places = range(len(prompt) - 1, len(prompt) - 1 + len(answer))
            picked = [logits[row, p, t] for p, t in zip(places, answer, strict=True)]
            scores.append(float(torch.stack(picked).mean()))
    return scores


@dataclass(frozen=True)
class PlainVector:
    """An optimised vector with what the update needs: keys [templates, f], the value before."""

    delta: Tensor
    initial: Tensor
    keys: Tensor


def plain_vector(
    language_model: LanguageModel,
    request: EditRequest,
    contexts: ContextTemplates,
    settings: VectorHyperparameters,
    module: str,
) -> PlainVector:
    """The ROME family's optimisation of one edit, every step over whole padded sequences."""
    rows, places, target = _template_rows(language_model, request, contexts)
    initial = plain_read(language_model, rows, places, module, inputs=False)[0]
    first = language_model.layout.mlp_out(settings.layers[0])
    keys = plain_read(language_model, rows, places, first, inputs=True)[:-1]
    delta = torch.zeros_like(initial, requires_grad=True)
    optimiser = torch.optim.Adam([delta], lr=settings.v_lr)
    reference: Tensor | None = None
    for step in range(settings.v_num_grad_steps):
        logits = _edited_logits(language_model, rows, places, module, delta)
        log_probabilities = logits.log_softmax(-1)
        nll = torch.stack(
            [
                -log_probabilities[i, len(row) - len(target) + j, token]
                for i, row in enumerate(rows[:-1])
                for j, token in enumerate(target)
            ]
        ).mean()
        current = log_probabilities[-1, places[-1]]
        reference = current.detach() if reference is None else reference
        loss = nll + settings.kl_factor * (current.exp() * (current - reference)).sum()
        loss = loss + settings.v_weight_decay * delta.norm() / initial.norm() ** 2
        watched = float((nll if settings.stop_on == "nll" else loss).detach())
        if watched < settings.stop_threshold or step + 1 == settings.v_num_grad_steps:
            break
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            limit = settings.clamp_norm_factor * initial.norm()
            delta.mul_((limit / delta.norm()).clamp(max=1))
    return PlainVector(delta.detach(), initial, keys)


def plain_read(
    language_model: LanguageModel,
    rows: Sequence[Sequence[int]],
    places: Tensor,
    name: str,
    *,
    inputs: bool,
) -> Tensor:
    """Input or output of a module at one place of each row, through a whole forward pass."""
    seen: list[Tensor] = []

    def hook(_module: object, arguments: tuple[Tensor, ...], output: Tensor | tuple) -> None:
        tensor = arguments[0] if inputs else output[0] if isinstance(output, tuple) else output
        seen.append(tensor[torch.arange(len(places)), places])

    handle = language_model.module(name).register_forward_hook(hook)
    try:
        with torch.no_grad():
            _logits(language_model, rows)
    finally:
        handle.remove()
    return seen[0]


def _template_rows(
    language_model: LanguageModel, request: EditRequest, contexts: ContextTemplates
) -> tuple[list[tuple[int, ...]], Tensor, tuple[int, ...]]:
    """Template prompts with the target but its last token, then the KL prompt; subjects; target."""
    prompts = [
        subject_prompt(language_model, t.replace("{}", request.prompt), request.subject)
        for t in contexts.templates
    ]
    kl = subject_prompt(language_model, "{} is a", request.subject)
    target = answer_ids(language_model, request.target)
    rows = [(*p.ids, *target[:-1]) for p in prompts] + [kl.ids]
    return rows, torch.tensor([p.subject_last for p in (*prompts, kl)]), target


def _padded(language_model: LanguageModel, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    width = max(map(len, rows))
    padded = [[*row, *[0] * (width - len(row))] for row in rows]
    real = [[1] * len(row) + [0] * (width - len(row)) for row in rows]
    device = language_model.device
    return torch.tensor(padded, device=device), torch.tensor(real, device=device)


def _logits(language_model: LanguageModel, rows: Sequence[Sequence[int]]) -> Tensor:
    ids, mask = _padded(language_model, rows)
    return language_model.model(input_ids=ids, attention_mask=mask).logits.float()


def _edited_logits(
    language_model: LanguageModel,
    rows: Sequence[Sequence[int]],
    places: Tensor,
    module: str,
    delta: Tensor,
) -> Tensor:
    def hook(_module: object, _inputs: object, output: Tensor | tuple) -> Tensor | tuple:
        edited = (output[0] if isinstance(output, tuple) else output).clone()
        edited[torch.arange(len(places)), places] += delta
        return (edited, *output[1:]) if isinstance(output, tuple) else edited

    handle = language_model.module(module).register_forward_hook(hook)
    try:
        return _logits(language_model, rows)
    finally:
        handle.remove()
