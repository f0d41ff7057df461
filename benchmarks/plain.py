"""The plain path everyone writes first: one edit at a time, whole sequences, logits everywhere.

It is the yardstick of the benchmarks and, because it shares no code with the engine beyond the
tokenisation, an independent check of its results in the tests.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from helpers.editing.context import ContextTemplates
from helpers.editing.deltas import LowRank
from helpers.editing.hyperparameters import RomeHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.second_moment import SecondMoment
from helpers.editing.update import Update
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


def plain_rome(
    language_model: LanguageModel,
    request: EditRequest,
    contexts: ContextTemplates,
    moment: SecondMoment,
    settings: RomeHyperparameters,
) -> Update:
    """One ROME edit, every step over whole padded sequences."""
    layer = settings.layers[0]
    layout = language_model.layout
    prompts = [
        subject_prompt(language_model, t.replace("{}", request.prompt), request.subject)
        for t in contexts.templates
    ]
    kl = subject_prompt(language_model, "{} is a", request.subject)
    target = answer_ids(language_model, request.target)
    rows = [(*p.ids, *target[:-1]) for p in prompts] + [kl.ids]
    places = torch.tensor([p.subject_last for p in (*prompts, kl)])
    keys, initial = _key_and_value(language_model, rows, places, layer)
    delta = torch.zeros(layout.hidden_size, requires_grad=True)
    optimiser = torch.optim.Adam([delta], lr=settings.v_lr)
    reference: Tensor | None = None
    for step in range(settings.v_num_grad_steps):
        logits = _edited_logits(language_model, rows, places, layout.mlp(layer), delta)
        log_probabilities = logits.log_softmax(-1)
        nll = torch.stack(
            [
                -log_probabilities[i, len(p.ids) - 1 + j, token]
                for i, p in enumerate(prompts)
                for j, token in enumerate(target)
            ]
        ).mean()
        current = log_probabilities[-1, kl.subject_last]
        reference = current.detach() if reference is None else reference
        loss = nll + settings.kl_factor * (current.exp() * (current - reference)).sum()
        loss = loss + settings.v_weight_decay * delta.norm() / initial.norm() ** 2
        watched = nll if settings.stop_on == "nll" else loss
        if (
            float(watched.detach()) < settings.stop_threshold
            or step + 1 == settings.v_num_grad_steps
        ):
            break
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            limit = settings.clamp_norm_factor * initial.norm()
            delta.mul_((limit / delta.norm()).clamp(max=1))
    direction = moment.solve(keys[:-1].mean(0)).double()
    direction = direction / direction.norm()
    left = delta.detach().double() / (keys[0].double() @ direction)
    low_rank = LowRank(left.float()[:, None], direction.float()[:, None])
    return Update({layout.mlp_out(layer): low_rank})


def _padded(language_model: LanguageModel, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    width = max(map(len, rows))
    pad = language_model.tokenizer.pad_token_id
    ids = torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows])
    lengths = torch.tensor([len(row) for row in rows])
    return ids, (torch.arange(width) < lengths[:, None]).long()


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
    def hook(_module: object, _inputs: object, output: Tensor) -> Tensor:
        edited = output.clone()
        edited[torch.arange(len(places)), places] += delta
        return edited

    handle = language_model.module(module).register_forward_hook(hook)
    try:
        return _logits(language_model, rows)
    finally:
        handle.remove()


def _key_and_value(
    language_model: LanguageModel, rows: Sequence[Sequence[int]], places: Tensor, layer: int
) -> tuple[Tensor, Tensor]:
    """Keys [rows, f] and the bare prompt's value [d] at the subjects."""
    seen: dict[str, Tensor] = {}

    def hook(_module: object, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen["key"] = inputs[0][torch.arange(len(places)), places]
        seen["value"] = output[0, places[0]]

    name = language_model.layout.mlp_out(layer)
    handle = language_model.module(name).register_forward_hook(hook)
    try:
        with torch.no_grad():
            _logits(language_model, rows)
    finally:
        handle.remove()
    return seen["key"], seen["value"]
