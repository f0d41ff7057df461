"""The plain path everyone writes first: one edit at a time, whole sequences, dense solves, weights written.

It is the yardstick of the benchmarks and, because it shares no code with the engine beyond the
tokenisation, an independent check of its results in the tests. An editor here takes one of ours for its
settings and shares none of its computation.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.machine import Timed, each
from helpers.editing.app import App
from helpers.editing.contexts import ContextTemplates
from helpers.editing.edit import Edit
from helpers.editing.ft import Ft
from helpers.editing.interventions import Dense, LowRank
from helpers.editing.kn import Kn
from helpers.editing.memit import AlphaEdit, Memit, before_norm
from helpers.editing.mend import Mend
from helpers.editing.presets import VectorHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.rome import Rome
from helpers.editing.weight_edit import WeightEdit, apply
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import Ids, answer_ids, prompt_ids, subject_prompt
from helpers.peak.records import PeakRecord
from helpers.peak.run import edit_request, questions, score_records
from helpers.scoring.answers import Question


def plain_scores(lm: LanguageModel, questions: Sequence[Question]) -> list[float]:
    """Mean log-probability of every answer: every (prompt, answer) pair a padded row of its own."""
    pairs = [(prompt_ids(lm, q.prompt), answer_ids(lm, a)) for q in questions for a in q.answers]
    scores: list[float] = []
    for start in range(0, len(pairs), 32):
        batch = pairs[start : start + 32]
        rows = [(*prompt, *answer) for prompt, answer in batch]
        with torch.no_grad():
            logits = _logits(lm, rows).log_softmax(-1)
        for row, (prompt, answer) in enumerate(batch):
            places = range(len(prompt) - 1, len(prompt) - 1 + len(answer))
            picked = [logits[row, p, t] for p, t in zip(places, answer, strict=True)]
            scores.append(float(torch.stack(picked).mean()))
    return scores


@torch.inference_mode()
def plain_responses(
    lm: LanguageModel, prompts: Sequence[str], edits: Sequence[Edit], tokens: int
) -> list[Ids]:
    """Greedy responses one at a time: the edit is written, transformers generates with its cache."""
    found = []
    for prompt, edit in zip(prompts, edits, strict=True):
        ids = torch.tensor([prompt_ids(lm, prompt)], device=lm.device)
        how = {"attention_mask": torch.ones_like(ids), "max_new_tokens": tokens, "pad_token_id": 0}
        with apply(lm, edit):
            whole = lm.network.generate(ids, do_sample=False, **how)
        ended = whole[0, ids.shape[1] :] == lm.tokenizer.eos_token_id
        found.append(tuple(whole[0, ids.shape[1] :][~ended].tolist()))
    return found


class PlainVector(NamedTuple):
    """An optimised vector with what the update needs: keys [templates, f], the value before.

    ``losses`` holds the terms of each evaluation by name.
    """

    delta: Tensor
    initial: Tensor
    keys: Tensor
    losses: list[dict[str, float]]


def plain_vector(
    lm: LanguageModel,
    request: EditRequest,
    contexts: ContextTemplates,
    settings: VectorHyperparameters,
    module: str,
    app: App | None = None,
) -> PlainVector:
    """The ROME family's optimisation of one edit, every step over whole padded sequences."""
    rows, places, target = _template_rows(lm, request, contexts)
    initial = plain_read(lm, rows, places, module, inputs=False)[0]
    first = lm.layout.mlp_out(settings.layers[0])
    keys = plain_read(lm, rows, places, first, inputs=True)[:-1]
    delta = torch.zeros_like(initial, requires_grad=True)
    optimiser = torch.optim.Adam([delta], lr=settings.v_lr)
    start: tuple[Tensor, list[list[Tensor]]] | None = None
    losses: list[dict[str, float]] = []

    def add(_module: object, _inputs: object, output: Tensor | tuple) -> Tensor | tuple:
        edited = (output[0] if isinstance(output, tuple) else output).clone()
        edited[torch.arange(len(edited)), places[: len(edited)]] += delta
        return (edited, *output[1:]) if isinstance(output, tuple) else edited

    def neighbours() -> list[list[Tensor]]:
        bare = rows[0][: len(rows[0]) - len(target) + 1]
        lists = app.answers(request) if app else ()
        return [[_score(lm, bare, answer) for answer in part] for part in lists]

    for step in range(settings.v_num_grad_steps):
        with lm.module(module).register_forward_hook(add):
            log_probabilities = _logits(lm, rows).log_softmax(-1)
            scores = neighbours()
        nll = torch.stack(
            [
                -log_probabilities[i, len(row) - len(target) + j, token]
                for i, row in enumerate(rows[:-1])
                for j, token in enumerate(target)
            ]
        ).mean()
        current = log_probabilities[-1, places[-1]]
        start = start or (current.detach(), [[s.detach() for s in part] for part in scores])
        terms = {
            "nll": nll,
            "kl": settings.kl_factor * (current.exp() * (current - start[0])).sum(),
            "weight_decay": settings.v_weight_decay * delta.norm() / initial.norm() ** 2,
        }
        if app:
            terms["app"] = _app_loss(app, scores, start[1])
        losses.append({name: float(term.detach()) for name, term in terms.items()})
        loss = torch.stack(list(terms.values())).sum()
        watched = losses[-1]["nll"] if settings.stop_on == "nll" else float(loss.detach())
        if watched < settings.stop_threshold or step + 1 == settings.v_num_grad_steps:
            break
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            limit = settings.clamp_norm_factor * initial.norm()
            delta.mul_((limit / delta.norm()).clamp(max=1))
    return PlainVector(delta.detach(), initial, keys, losses)


def _score(lm: LanguageModel, prompt: tuple[int, ...], answer: str) -> Tensor:
    """Mean log-probability of an answer's tokens after a prompt."""
    ids = answer_ids(lm, answer)
    scores = _logits(lm, [(*prompt, *ids[:-1])])[0, len(prompt) - 1 :].log_softmax(-1)
    return scores[range(len(ids)), list(ids)].mean()


def _app_loss(app: App, now: list[list[Tensor]], before: list[list[Tensor]]) -> Tensor:
    """APP's weighted terms (PEAK, eqs. 7-9), pair by pair and answer by answer."""
    (correct, false), (correct_before, false_before) = now, before
    apart = [(app.margin - c + f).relu() for c in correct for f in false]
    sunk = [(b - c).relu() for c, b in zip(correct, correct_before, strict=True)]
    risen = [(f - b).relu() for f, b in zip(false, false_before, strict=True)]
    means = [torch.stack(part).mean() for part in (apart, sunk, risen)]
    return app.total(torch.stack(means))


def plain_read(
    lm: LanguageModel,
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

    with lm.module(name).register_forward_hook(hook), torch.no_grad():
        _logits(lm, rows)
    return seen[0]


def _template_rows(
    lm: LanguageModel, request: EditRequest, contexts: ContextTemplates
) -> tuple[list[tuple[int, ...]], Tensor, tuple[int, ...]]:
    """Template prompts with the target but its last token, then the KL prompt; subjects; target."""
    prompts = [
        subject_prompt(lm, t.replace("{}", request.prompt), request.subject)
        for t in contexts.templates
    ]
    kl = subject_prompt(lm, "{} is a", request.subject)
    target = answer_ids(lm, request.target)
    rows = [(*p.ids, *target[:-1]) for p in prompts] + [kl.ids]
    return rows, torch.tensor([p.subject_last for p in (*prompts, kl)]), target


def _logits(lm: LanguageModel, rows: Sequence[Sequence[int]]) -> Tensor:
    width = max(map(len, rows))
    padded = [[*row, *[0] * (width - len(row))] for row in rows]
    real = [[1] * len(row) + [0] * (width - len(row)) for row in rows]
    ids, mask = (torch.tensor(t, device=lm.device) for t in (padded, real))
    return lm.network(input_ids=ids, attention_mask=mask).logits.float()


def plain_rome(editor: Rome, request: EditRequest) -> WeightEdit:
    """ROME, one edit."""
    lm, layer = editor.lm, editor.hyperparameters.layers[0]
    module = lm.layout.mlp(layer)
    found = plain_vector(lm, request, editor.contexts, editor.hyperparameters, module)
    direction = found.keys.double().mean(0)
    for moment in editor.second_moments.values():  # of the one layer, if any
        direction = torch.linalg.solve(moment.matrix.to(direction), direction)
    left = found.delta.double() / (found.keys[0].double() @ direction)
    low_rank = LowRank(left.float()[:, None], direction.float()[:, None])
    return WeightEdit({lm.layout.mlp_out(layer): low_rank})


def plain_memit(editor: Memit, request: EditRequest) -> WeightEdit:
    """MEMIT, one edit: layer by layer, an [f, f] solve each, weights written in between."""
    weight = editor.hyperparameters.mom2_update_weight

    def solve(layer: int, key: Tensor, residual: Tensor) -> Tensor:
        moment = editor.second_moments[layer].matrix.to(key.device).double()
        system = weight * moment + torch.outer(key, key)
        return torch.outer(residual, torch.linalg.solve(system, key))

    return _spread(editor, request, solve)


def plain_alphaedit(editor: AlphaEdit, request: EditRequest) -> WeightEdit:
    """AlphaEdit, one edit: the projection as a matrix, an [f, f] solve per layer."""

    def solve(layer: int, key: Tensor, residual: Tensor) -> Tensor:
        identity = torch.eye(len(key)).to(key)
        occupied = editor.occupied(layer)
        projection = identity - occupied @ occupied.T
        system = projection @ torch.outer(key, key) + editor.hyperparameters.L2 * identity
        return torch.linalg.solve(system, projection @ torch.outer(key, residual)).T

    return _spread(editor, request, solve)


def _spread(editor: Any, request: EditRequest, solve: Any) -> WeightEdit:
    lm, layers = editor.lm, editor.hyperparameters.layers
    layout = lm.layout
    last = layout.block(layers[-1])
    found = plain_vector(lm, request, editor.contexts, editor.hyperparameters, last)
    rows, places, _ = _template_rows(lm, request, editor.contexts)
    weights = torch.tensor(editor.contexts.weights, dtype=torch.float64).to(lm.device)
    deltas = {}
    with ExitStack() as written:
        for index, layer in enumerate(layers):
            name = layout.mlp_out(layer)
            keys = plain_read(lm, rows, places, name, inputs=True)[:-1]
            current = plain_read(lm, rows, places, last, inputs=False)[0]
            residual = (found.initial + found.delta - current).double() / (len(layers) - index)
            if norm := layout.mlp_norm(layer):
                mlp = layout.mlp(layer)
                output = plain_read(lm, rows, places, mlp, inputs=False)[:1].T
                module = lm.module(norm)
                residual = before_norm(module, output, residual[:, None])[:, 0]
            deltas[name] = Dense(solve(layer, weights @ keys.double(), residual).float())
            written.enter_context(apply(lm, WeightEdit({name: deltas[name]})))
    return WeightEdit(deltas)


def plain_ft(editor: Ft, request: EditRequest) -> WeightEdit:
    """FT-M or FT-L, one edit: Adam on the model's own matrix, whole forward passes."""
    lm, settings = editor.lm, editor.hyperparameters
    prompt = prompt_ids(lm, request.text)
    target = answer_ids(lm, request.target)
    together = settings.objective == "prompt_last"
    row = prompt if together else (*prompt, *target[:-1])
    weight = lm.module(editor.module).get_parameter("weight")
    before = weight.detach().clone()
    weight.requires_grad_(True)
    optimiser = torch.optim.Adam([weight], lr=settings.lr)
    for _ in range(settings.num_steps):
        scores = _logits(lm, [row])[0].log_softmax(-1)
        places = [len(prompt) - 1 + (0 if together else i) for i in range(len(target))]
        loss = -scores[places, list(target)].mean()
        if float(loss.detach()) < settings.stop_threshold:
            break
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if settings.norm_constraint:
            bound = settings.norm_constraint
            with torch.no_grad():
                weight.copy_(before + (weight - before).clamp(-bound, bound))
    weight.requires_grad_(False)
    delta = Dense((weight - before).detach())
    weight.copy_(before)
    return WeightEdit({editor.module: delta})


def plain_mend(editor: Mend, request: EditRequest) -> WeightEdit:
    """MEND, one edit: a whole backward pass with weight gradients, dense updates summed."""
    lm, network = editor.lm, editor.network
    prompt = prompt_ids(lm, request.text)
    target = answer_ids(lm, request.target)
    seen: dict[str, tuple[Tensor, Tensor]] = {}

    def keep(name: str) -> Any:
        def hook(_module: object, arguments: tuple[Tensor, ...], output: Tensor) -> None:
            output.retain_grad()
            seen[name] = arguments[0], output

        return hook

    weights = [lm.module(name).get_parameter("weight") for name in network.shapes]
    with ExitStack() as hooked:
        for name, weight in zip(network.shapes, weights, strict=True):
            weight.requires_grad_(True)
            handle = lm.module(name).register_forward_hook(keep(name))
            hooked.enter_context(handle)
        logits = _logits(lm, [(*prompt, *target[:-1])])[0]
        places = [len(prompt) - 1 + i for i in range(len(target))]
        (-logits.log_softmax(-1)[places, list(target)].mean()).backward()
    for weight in weights:
        weight.requires_grad_(False)
        weight.grad = None
    deltas = {}
    for name, (inputs, output) in seen.items():
        assert output.grad is not None
        with torch.no_grad():
            right, left = network(name, inputs[0].detach(), output.grad[0])
            deltas[name] = Dense(left.T @ right)
    return WeightEdit(deltas)


def plain_kn(editor: Kn, request: EditRequest) -> Tensor:
    """KN's attributions [layers, f] of one edit: layer by layer, whole sequences, m rows each."""
    lm, steps = editor.lm, editor.hyperparameters.steps
    layout = lm.layout
    ids = list(prompt_ids(lm, request.text))
    device = lm.device
    total = torch.zeros(layout.blocks, layout.intermediate_size, device=device)
    target = answer_ids(lm, request.correct[0])
    for token in target:
        place = torch.tensor([len(ids) - 1], device=device)
        for layer in range(layout.blocks):
            name = layout.mlp_out(layer)
            activation = plain_read(lm, [ids], place, name, inputs=True)[0]
            scaled = torch.linspace(0, 1, steps, device=device)[:, None] * activation
            scaled.requires_grad_(True)

            def hook(_module: object, arguments: tuple, scaled: Tensor = scaled) -> tuple:
                changed = arguments[0].clone()
                changed[:, -1] = scaled
                return (changed,)

            with lm.module(name).register_forward_pre_hook(hook):
                logits = _logits(lm, [ids] * steps)[:, -1]
            (gradient,) = torch.autograd.grad(logits.softmax(-1)[:, token].sum(), scaled)
            total[layer] += activation * gradient.sum(0) / steps
        with torch.no_grad():
            ids.append(int(_logits(lm, [ids])[0, -1].argmax()))
    return total / len(target)


PLAIN: dict[str, Any] = {
    "rome": plain_rome,
    "memit": plain_memit,
    "alphaedit": plain_alphaedit,
    "ft-l": plain_ft,
    "ft-m": plain_ft,
    "kn": plain_kn,
    "mend": plain_mend,
}


def editing_calls(
    method: str, editor: Any, records: Sequence[PeakRecord], plain: int
) -> tuple[Timed, Timed | None]:
    """The records' edits at once and, where there is a plain path, ``plain`` of them one by one."""
    requests = [edit_request(record) for record in records]
    ours = partial(editor.edit, requests), len(requests)
    if method not in PLAIN or not plain:
        return ours, None
    alone = requests[:: max(1, len(requests) // plain)][:plain]
    return ours, (partial(each, [partial(PLAIN[method], editor, one) for one in alone]), len(alone))


def scoring_calls(
    lm: LanguageModel, records: Sequence[PeakRecord], plain: int
) -> tuple[Timed, Timed | None]:
    """The scoring that every record needs, packed and, of the first records, plain."""
    ours = partial(score_records, lm, records), len(records)
    asked = [questions(record)[0] for record in records[:plain]]
    calls = [partial(plain_scores, lm, own) for own in asked]
    return ours, (partial(each, calls), plain) if plain else None
