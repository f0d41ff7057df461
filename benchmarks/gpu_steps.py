"""The steps of ``python -m benchmarks.gpu``: each yields its measurements as they are made."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.gpu_setting import Setting
from benchmarks.machine import (
    copy_speed,
    matmul_peak,
    measured,
    median_cost,
    peak_memory,
    reset_peak_memory,
)
from benchmarks.plain import plain_scores
from benchmarks.plain_editors import PLAIN
from helpers.paths import REPOSITORY
from helpers.peak.run import edit_request, questions, score_records

Measurement = dict[str, Any]
BATCHES = (1, 4, 16, 64, 256)
HEAD_SIZE = 128


def device_checks(setting: Setting) -> Iterator[Measurement]:
    """Everything that touches a model, on this device against the CPU."""
    if setting.device == "cpu":
        yield {"name": "device checks", "skipped": "the CPU is what devices are checked against"}
        return
    command = [sys.executable, "-m", "tests.devices.checks", setting.device]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    wrong = {check["check"]: check["problem"][-400:] for check in found if check["problem"]}
    yield {"name": "device checks", "checks": len(found), "wrong": wrong}


def packed_gradients(setting: Setting) -> Iterator[Measurement]:
    """Gradients of attention in bf16 under packed masks against fp32; some kernels were wrong."""
    device = torch.device(setting.device)
    torch.backends.cuda.enable_cudnn_sdp(False)  # as loading a model does
    generator = torch.Generator().manual_seed(0)
    for queries, constant in ((86, 80), (64, 64), (7, 1)):
        shape = (2, 4, queries + constant, HEAD_SIZE)
        exact = [torch.randn(shape, generator=generator) for _ in range(3)]
        visible = torch.rand(2, 1, queries, queries + constant, generator=generator) < 0.2
        visible[..., constant:] |= torch.eye(queries, dtype=torch.bool)
        found = []
        for dtype in (torch.float32, torch.bfloat16):
            low = torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(dtype).min)
            parts = [p.to(torch.bfloat16).to(device, dtype).requires_grad_() for p in exact]
            query, key, value = parts
            mixed = scaled_dot_product_attention(
                query[:, :, constant:], key, value, low.to(device, dtype)
            )
            found.append([g.float() for g in torch.autograd.grad(mixed.square().sum(), parts)])
        gaps = [((a - b).norm() / a.norm()).item() for a, b in zip(*found, strict=True)]
        yield {
            "name": f"bf16 gradients, {queries} queries after {constant}",
            "relative error": max(gaps),
            "finite": all(bool(part.isfinite().all()) for part in found[1]),
        }


def ceilings(setting: Setting) -> Iterator[Measurement]:
    """What the device does at best: matrix products by type, and copies."""
    # Some CPUs have no fast bfloat16: a large product would take minutes there.
    seconds, size = (0.05, 256) if setting.tiny else (1.0, None)
    for dtype in (torch.bfloat16, torch.float32):
        peak = matmul_peak(dtype, setting.device, seconds=seconds, size=size)
        yield {"name": f"matrix product, {dtype}".replace("torch.", ""), "TFLOP/s": peak / 1e12}
    if setting.device.startswith("cuda"):
        torch.set_float32_matmul_precision("high")
        peak = matmul_peak(torch.float32, setting.device)
        torch.set_float32_matmul_precision("highest")
        yield {"name": "matrix product, tf32", "TFLOP/s": peak / 1e12}
    speed = copy_speed(setting.device, gib=0.01 if setting.tiny else 4)
    yield {"name": "copy", "GB/s": speed / 1e9}


def edited(method: str, setting: Setting) -> Iterator[Measurement]:
    """A method's edits of the shape, all at once and, where there is a plain path, one by one."""
    requests = [edit_request(record) for record in setting.chosen()]
    editor = setting.editor(method)
    yield _measured(f"{method}, ours", partial(editor.edit, requests), len(requests), setting)
    if plain := PLAIN.get(method):
        alone = requests[: setting.plain]
        call = partial(_each, partial(plain, editor), alone)
        yield _measured(f"{method}, plain", call, len(alone), setting)


def scored(setting: Setting) -> Iterator[Measurement]:
    """Full scoring of records by the shape, packed and plain."""
    model, records = setting.model, setting.chosen()
    call = partial(score_records, model, records)
    yield _measured("scoring, ours", call, len(records), setting)
    asked = [questions(record)[0] for record in records[: setting.plain]]
    plain = partial(_each, partial(plain_scores, model), asked)
    yield _measured("scoring, plain", plain, len(asked), setting)


def batches(method: str, setting: Setting) -> Iterator[Measurement]:
    """How a method's cost falls with the number of edits at once."""
    editor = setting.editor(method)
    for count in BATCHES[:2] if setting.tiny else BATCHES:
        requests = [edit_request(record) for record in setting.chosen(count)]
        call = partial(editor.edit, requests)
        yield _measured(f"{method}, {count} at once", call, count, setting)


def real_weights(setting: Setting) -> Iterator[Measurement]:
    """The embedded model for real: edits that take, and what they cost."""
    if setting.tiny:
        yield {"name": "embedded model", "skipped": "no tiny one has real weights"}
        return
    model, records = setting.embedded, setting.chosen()
    requests = [edit_request(record) for record in records]
    editor = setting.editor("rome", model)
    yield _measured("embedded, rome", partial(editor.edit, requests), len(records), setting)
    updates = editor.edit(requests)
    nll = [update.diagnostics["losses"][-1]["nll"] for update in updates if not update.failed]
    call = partial(score_records, model, records, updates)
    found = _measured("embedded, scoring of edits", call, len(records), setting)
    yield found | {"edits": len(updates), "took": sum(loss < 0.5 for loss in nll)}


@dataclass(frozen=True)
class Step:
    """A step's name, the seconds it may take, and what it does."""

    name: str
    seconds: int
    run: Callable[[Setting], Iterator[Measurement]]


STEPS = (
    Step("device checks", 240, device_checks),
    Step("gradients", 90, packed_gradients),
    Step("ceilings", 90, ceilings),
    Step("scoring", 240, scored),
    Step("rome", 360, partial(edited, "rome")),
    Step("rome+app", 360, partial(edited, "rome+app")),
    Step("ft-m", 300, partial(edited, "ft-m")),
    Step("embedded", 240, real_weights),
    Step("rome batches", 420, partial(batches, "rome")),
    Step("ft-m batches", 420, partial(batches, "ft-m")),
    Step("memit batches", 540, partial(batches, "memit")),
    Step("memit", 480, partial(edited, "memit")),
    Step("kn", 480, partial(edited, "kn")),
    Step("alphaedit", 540, partial(edited, "alphaedit")),
)


def _measured(name: str, call: Callable[[], object], count: int, setting: Setting) -> Measurement:
    """The cost per record, the middle of three runs, and the memory they took."""
    reset_peak_memory(setting.device)
    if setting.tiny:
        cost, _ = measured(call, setting.device)
    else:
        cost = median_cost(call, setting.device)
    return {
        "name": name,
        "records": count,
        "seconds a record": cost.wall / count,
        "busy seconds a record": cost.busy / count,
        "peak GiB": peak_memory(setting.device),
    }


def _each(call: Callable[[Any], object], items: Sequence[Any]) -> None:
    for item in items:
        call(item)
