"""What locating costs per sentence, per method, beside a plain path where one is usually written.

python -m benchmarks.locating --sentences 4
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
import typer
from torch import Tensor

from benchmarks.machine import arithmetic, cost_of
from benchmarks.report import Report
from helpers import models
from helpers.klob.questions import load_examples
from helpers.locating.locators import LOCATORS, make_locator
from helpers.locating.query import Query, encode
from helpers.models.language_model import LanguageModel
from helpers.models.weights import torch_dtype
from helpers.paths import RUNS

ALL = ",".join(LOCATORS)


def main(
    model: str = "smollm2-135m",
    locators: str = ALL,
    sentences: int = 4,
    dtype: str = "float32",
    device: str = "cpu",
    threads: int = torch.get_num_threads(),
    folder: Path = RUNS / "benchmarks",
) -> None:
    """Print busy seconds per sentence of every locator, and the sentences an hour allows."""
    torch.set_num_threads(threads)
    language_model = models.load(model, dtype=dtype, device=device)
    groups = load_examples("consistency", count=sentences).groups
    queries = encode(language_model, [group[0] for group in groups])
    label = f"{model}_{locators.replace(',', '-')}" if locators != ALL else model
    report = Report("locating", "sentence", torch_dtype(dtype), device, label)
    for name in locators.split(","):
        try:
            _locate(report, name, language_model, queries)
        except (ValueError, RuntimeError, MemoryError) as error:
            typer.echo(f"{name} is left out: {error}", err=True)
            continue
        report.save(folder, axis="locator")  # each row at once: the next one may not fit


def _locate(
    report: Report, name: str, language_model: LanguageModel, queries: Sequence[Query]
) -> None:
    """One row: what a locator costs, beside its plain path where one is usually written."""
    device, n = report.device, len(queries)
    call = partial(make_locator(name).scores, language_model, queries)
    cost = cost_of(call, device)
    plain = float("nan")
    if name == "knowledge-neurons":
        one = partial(_integrated_layer_by_layer, language_model, queries[:1])
        plain = cost_of(one, device).busy
    hour = 3600 * n / cost.wall
    report.add(name, name, cost.busy / n, plain=plain, flop=arithmetic(call) / n, hour=hour)


def _integrated_layer_by_layer(
    language_model: LanguageModel, queries: Sequence[Query], steps: int = 20
) -> list[Tensor]:
    """Integrated gradients as usually written: per layer, ``steps`` copies of the sentence."""
    layers = range(language_model.layout.blocks)
    return [_integrated(language_model, q, layer, steps) for q in queries for layer in layers]


def _integrated(language_model: LanguageModel, query: Query, layer: int, steps: int) -> Tensor:
    """One sentence's scores [f] of one layer's neurons."""
    scaled: list[Tensor] = []

    def scale(_: object, arguments: tuple[Tensor, ...]) -> tuple[Tensor]:
        (changed,) = (argument.clone() for argument in arguments)
        shares = torch.linspace(0, 1, steps, device=changed.device)[:, None]
        scaled.append((shares * changed[:, query.slot]).detach().requires_grad_())
        changed[:, query.slot] = scaled[0]
        return (changed,)

    module = language_model.module(language_model.layout.mlp_out(layer))
    handle = module.register_forward_pre_hook(scale)
    ids = torch.tensor([query.ids] * steps, device=language_model.device)
    logits = language_model.model(ids).logits[:, query.slot].float()
    handle.remove()
    probability = logits.softmax(-1)[:, query.required_target].sum()
    (gradient,) = torch.autograd.grad(probability, scaled[0])
    return gradient.mean(0) * scaled[0][-1].detach()


if __name__ == "__main__":
    typer.run(main)
