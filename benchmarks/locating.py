"""What locating costs per sentence, per method.

python -m benchmarks.locating --sentences 4
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import typer

from benchmarks.report import Report
from helpers import models
from helpers.cli import run_command
from helpers.klob.examples import load_examples
from helpers.locating.locators import LOCATORS, make_locator
from helpers.locating.query import encode
from helpers.models.weights import torch_dtype
from helpers.paths import RUNS


def main(
    model: str = "smollm2-135m",
    locators: str = ",".join(LOCATORS),
    sentences: int = 4,
    dtype: str = "float32",
    device: str = "cpu",
    folder: Path = RUNS / "benchmarks",
) -> None:
    """Print busy seconds per sentence of every locator."""
    lm = models.load(model, dtype=dtype, device=device)
    groups = load_examples("consistency", count=sentences).groups
    queries = encode(lm, [group[0] for group in groups])
    report = Report("locating", "sentence", torch_dtype(dtype), device, model, folder)
    for name in locators.split(","):
        call = partial(make_locator(name).scores, lm, queries)
        try:
            report.measure(name, name, (call, len(queries)))
        except (ValueError, RuntimeError, MemoryError) as error:
            typer.echo(f"{name} is skipped: {error}", err=True)


if __name__ == "__main__":
    run_command(main)
