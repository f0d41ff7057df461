"""The steps of ``python -m benchmarks.gpu``: each yields its measurements as they are made."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import cycle, islice
from typing import Any
from unittest.mock import patch

import torch
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.editing import editor_of
from benchmarks.machine import (
    Call,
    Timed,
    copy_speed,
    cost_of,
    matmul_peak,
    median_cost,
    peak_memory,
    reset_peak_memory,
)
from benchmarks.plain import editing_calls, scoring_calls
from helpers import models
from helpers.editing.build import build_editor
from helpers.editing.editor import Editor
from helpers.models.language_model import LanguageModel
from helpers.models.shapes import SHAPE_PREFIX, SHAPES
from helpers.paths import REPOSITORY
from helpers.peak.records import PeakRecord, load_peak
from helpers.peak.run import edit_request, score_records

Measurement = dict[str, Any]
SHAPE = "llama2-7b"
TINY = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}
BATCHES = (1, 4, 16, 64, 256)


@dataclass(frozen=True)
class Setting:
    """What a step measures with; ``tiny`` keeps the shape's depth and nothing else of its size."""

    device: str = "cuda"
    dtype: str = "bfloat16"
    records: int = 16
    plain: int = 2
    tiny: bool = False

    @cached_property
    def lm(self) -> LanguageModel:
        """The random model of the shape."""
        with patch.dict(SHAPES, {SHAPE: SHAPES[SHAPE] | (TINY if self.tiny else {})}):
            return models.load(SHAPE_PREFIX + SHAPE, dtype=self.dtype, device=self.device)

    def chosen(self, count: int | None = None) -> list[PeakRecord]:
        """Packaged records, repeated where there are fewer: no download is needed."""
        packaged = cycle(load_peak("peak-mini-cf").records)
        return list(islice(packaged, count or self.records))

    def editor(self, method: str) -> Editor:
        """A method's editor on the shape with the paper's preset."""
        corpus = "self-64x32" if self.tiny else "self"
        editor = editor_of(method, self.lm, {"preset": "paper", "corpus": corpus})
        assert editor is not None
        return editor


def device_checks(setting: Setting) -> Iterator[Measurement]:
    """Everything that touches a model, on this device against the CPU."""
    if setting.device == "cpu":
        yield {"name": "device checks", "skipped": "the CPU is what devices are checked against"}
        return
    command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "tests/devices"]
    options: dict[str, Any] = {"env": {**os.environ, "HELPERS_DEVICE": setting.device}}
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, **options)
    yield {"name": "device checks", "wrong": run.returncode, "report": run.stdout[-2000:]}


def packed_gradients(setting: Setting) -> Iterator[Measurement]:
    """Gradients of attention in bf16 under packed masks against fp32; some kernels were wrong."""
    device = torch.device(setting.device)
    torch.backends.cuda.enable_cudnn_sdp(False)  # as loading a model does
    generator = torch.Generator().manual_seed(0)
    for queries, constant in ((86, 80), (64, 64), (7, 1)):
        shape = (2, 4, queries + constant, 128)
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
    calls = editing_calls(method, setting.editor(method), setting.chosen(), setting.plain)
    yield from _both(method, calls, setting)


def scored(setting: Setting) -> Iterator[Measurement]:
    """Full scoring of records by the shape, packed and plain."""
    calls = scoring_calls(setting.lm, setting.chosen(), setting.plain)
    yield from _both("scoring", calls, setting)


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
    lm, records = models.load("smollm2-135m", device=setting.device), setting.chosen()
    requests = [edit_request(record) for record in records]
    editor = build_editor("rome", lm, preset="tuned")
    yield _measured("embedded, rome", partial(editor.edit, requests), len(records), setting)
    updates = editor.edit(requests)
    nll = [update.diagnostics["losses"][-1]["nll"] for update in updates if not update.failed]
    call = partial(score_records, lm, records, updates)
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


def _both(name: str, calls: tuple[Timed, Timed | None], setting: Setting) -> Iterator[Measurement]:
    for how, timed in zip(("ours", "plain"), calls, strict=True):
        if timed:
            yield _measured(f"{name}, {how}", *timed, setting)


def _measured(name: str, call: Call, count: int, setting: Setting) -> Measurement:
    """The cost per record, the middle of three runs, and the memory they took."""
    reset_peak_memory(setting.device)
    cost = (cost_of if setting.tiny else median_cost)(call, setting.device)
    return {
        "name": name,
        "records": count,
        "seconds a record": cost.wall / count,
        "busy seconds a record": cost.busy / count,
        "peak GiB": peak_memory(setting.device),
    }
