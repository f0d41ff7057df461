"""Editors as they are usually written: one edit at a time, dense solves, weights written.

Each takes one of our editors for its settings and shares none of its computation.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, cast

import torch
from torch import Tensor

from benchmarks.plain import _template_rows, plain_read, plain_vector
from helpers.editing.ft import Ft
from helpers.editing.kn import Kn
from helpers.editing.memit import AlphaEdit, Memit, before_norm
from helpers.editing.mend import Mend
from helpers.editing.rect_prune import Rect
from helpers.editing.request import EditRequest
from helpers.editing.rome import Rome
from helpers.editing.update import Delta, Dense, LowRank, Update, apply
from helpers.models.tokens import answer_ids, prompt_ids


def plain_rome(editor: Rome, request: EditRequest) -> Update:
    """ROME, one edit."""
    language_model = editor.language_model
    module = language_model.layout.mlp(editor.hyperparameters.layers[0])
    found = plain_vector(language_model, request, editor.contexts, editor.hyperparameters, module)
    moment = (
        editor.second_moments[editor.hyperparameters.layers[0]]
        .matrix.to(found.keys.device)
        .double()
    )
    direction = torch.linalg.solve(moment, found.keys.double().mean(0))
    direction = direction / direction.norm()
    left = found.delta.double() / (found.keys[0].double() @ direction)
    low_rank = LowRank(left.float()[:, None], direction.float()[:, None])
    return Update({language_model.layout.mlp_out(editor.hyperparameters.layers[0]): low_rank})


def plain_memit(editor: Memit, request: EditRequest) -> Update:
    """MEMIT, one edit: layer by layer, an [f, f] solve each, weights written in between."""
    weight = editor.hyperparameters.mom2_update_weight

    def solve(layer: int, key: Tensor, residual: Tensor) -> Tensor:
        moment = editor.second_moments[layer].matrix.to(key.device).double()
        system = weight * moment + torch.outer(key, key)
        return torch.outer(residual, torch.linalg.solve(system, key))

    return _spread(editor, request, solve)


def plain_rect(editor: Rect, request: EditRequest) -> Update:
    """RECT upon MEMIT, one edit: its dense update, sorted by what it changes relative to W."""
    deltas: dict[str, Delta] = {}
    for name, delta in plain_memit(cast(Memit, editor.base), request).items():
        change = delta.dense()
        ratio = (change / editor.language_model.weight(name)).abs().flatten()
        dropped = ratio.argsort()[: int((1 - editor.hyperparameters.keep) * ratio.numel())]
        deltas[name] = Dense(change.flatten().index_fill(0, dropped, 0.0).view_as(change))
    return Update(deltas)


def plain_alphaedit(editor: AlphaEdit, request: EditRequest) -> Update:
    """AlphaEdit, one edit: the projection as a matrix, an [f, f] solve per layer."""

    def solve(layer: int, key: Tensor, residual: Tensor) -> Tensor:
        identity = torch.eye(len(key)).to(key)
        occupied = editor.null_space(layer).occupied
        projection = identity - occupied @ occupied.T
        system = projection @ torch.outer(key, key) + editor.hyperparameters.L2 * identity
        return torch.linalg.solve(system, projection @ torch.outer(key, residual)).T

    return _spread(editor, request, solve)


def _spread(editor: Any, request: EditRequest, solve: Any) -> Update:
    language_model, layers = editor.language_model, editor.hyperparameters.layers
    layout = language_model.layout
    last = layout.block(layers[-1])
    found = plain_vector(language_model, request, editor.contexts, editor.hyperparameters, last)
    rows, places, _ = _template_rows(language_model, request, editor.contexts)
    weights = torch.tensor(editor.contexts.weights, dtype=torch.float64).to(language_model.device)
    deltas = {}
    with ExitStack() as written:
        for index, layer in enumerate(layers):
            name = layout.mlp_out(layer)
            keys = plain_read(language_model, rows, places, name, inputs=True)[:-1]
            current = plain_read(language_model, rows, places, last, inputs=False)[0]
            residual = (found.initial + found.delta - current).double() / (len(layers) - index)
            if norm := layout.mlp_norm(layer):
                mlp = layout.mlp(layer)
                output = plain_read(language_model, rows, places, mlp, inputs=False)[:1].T
                module = language_model.module(norm)
                residual = before_norm(module, output, residual[:, None])[:, 0]
            deltas[name] = Dense(solve(layer, weights @ keys.double(), residual).float())
            written.enter_context(apply(language_model, Update({name: deltas[name]})))
    return Update(deltas)


def plain_ft(editor: Ft, request: EditRequest) -> Update:
    """FT-M or FT-L, one edit: Adam on the model's own matrix, whole forward passes."""
    language_model, settings = editor.language_model, editor.hyperparameters
    prompt = prompt_ids(language_model, request.text)
    target = answer_ids(language_model, request.target)
    together = settings.objective == "prompt_last"
    row = prompt if together else (*prompt, *target[:-1])
    ids = torch.tensor([row], device=language_model.device)
    weight = language_model.module(editor.module).get_parameter("weight")
    before = weight.detach().clone()
    weight.requires_grad_(True)
    optimiser = torch.optim.Adam([weight], lr=settings.lr)
    for _ in range(settings.num_steps):
        scores = language_model.model(ids).logits[0].float().log_softmax(-1)
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
    return Update({editor.module: delta})


def plain_mend(editor: Mend, request: EditRequest) -> Update:
    """MEND, one edit: a whole backward pass with weight gradients, dense updates summed."""
    language_model, network = editor.language_model, editor.network
    prompt = prompt_ids(language_model, request.text)
    target = answer_ids(language_model, request.target)
    seen: dict[str, tuple[Tensor, Tensor]] = {}

    def keep(name: str) -> Any:
        def hook(_module: object, arguments: tuple[Tensor, ...], output: Tensor) -> None:
            output.retain_grad()
            seen[name] = arguments[0], output

        return hook

    weights = [language_model.module(name).get_parameter("weight") for name in network.shapes]
    with ExitStack() as hooked:
        for name, weight in zip(network.shapes, weights, strict=True):
            weight.requires_grad_(True)
            handle = language_model.module(name).register_forward_hook(keep(name))
            hooked.callback(handle.remove)
        ids = torch.tensor([(*prompt, *target[:-1])], device=language_model.device)
        logits = language_model.model(ids).logits[0].float()
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
    return Update(deltas)


def plain_kn(editor: Kn, request: EditRequest) -> Tensor:
    """KN's attributions [layers, f] of one edit: layer by layer, whole sequences, m rows each."""
    language_model, steps = editor.language_model, editor.hyperparameters.steps
    layout = language_model.layout
    ids = list(prompt_ids(language_model, request.text))
    device = language_model.device
    total = torch.zeros(layout.blocks, layout.intermediate_size, device=device)
    target = answer_ids(language_model, request.correct[0])
    for token in target:
        place = torch.tensor([len(ids) - 1], device=device)
        for layer in range(layout.blocks):
            name = layout.mlp_out(layer)
            activation = plain_read(language_model, [ids], place, name, inputs=True)[0]
            scaled = torch.linspace(0, 1, steps, device=device)[:, None] * activation
            scaled.requires_grad_(True)

            def hook(_module: object, arguments: tuple, scaled: Tensor = scaled) -> tuple:
                changed = arguments[0].clone()
                changed[:, -1] = scaled
                return (changed,)

            handle = language_model.module(name).register_forward_pre_hook(hook)
            repeated = torch.tensor([ids] * steps, device=device)
            logits = language_model.model(repeated).logits[:, -1].float()
            handle.remove()
            (gradient,) = torch.autograd.grad(logits.softmax(-1)[:, token].sum(), scaled)
            total[layer] += activation * gradient.sum(0) / steps
        with torch.no_grad():
            grown = torch.tensor([ids], device=device)
            ids.append(int(language_model.model(grown).logits[0, -1].argmax()))
    return total / len(target)


PLAIN: dict[str, Any] = {
    "rome": plain_rome,
    "memit": plain_memit,
    "alphaedit": plain_alphaedit,
    "rect": plain_rect,
    "ft-l": plain_ft,
    "ft-m": plain_ft,
    "kn": plain_kn,
    "mend": plain_mend,
}
