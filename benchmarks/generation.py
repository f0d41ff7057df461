"""Generation under overlays against one edit at a time, in tokens a second.

python -m benchmarks.generation --records 24 --plain 4
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.editing import preset_of
from benchmarks.plain import plain_responses
from benchmarks.report import Report
from helpers import models
from helpers.cli import run_command
from helpers.editing.build import build_editors
from helpers.models.weights import torch_dtype
from helpers.paths import RUNS
from helpers.peak.records import load_peak
from helpers.peak.run import edit_request
from helpers.scoring.responses import Sampling, sample_tokens


def main(  # noqa: PLR0913 - the options of a command
    model: str = "smollm2-135m",
    dataset: str = "peak-cf",
    records: int = 24,
    plain: Annotated[int, typer.Option(help="edits of the plain path")] = 4,
    tokens: int = 50,
    methods: str = "ft-m,rome",
    dtype: str = "float32",
    device: str = "cpu",
    folder: Path = RUNS / "benchmarks",
) -> None:
    """Print the cost of greedy responses, one to each record's prompt under the record's own edit."""
    lm = models.load(model, dtype=dtype, device=device)
    chosen = load_peak(dataset, limit=records).records
    prompts = [record.edit_prompt for record in chosen]
    sampling = Sampling(temperature=0, max_new_tokens=tokens, chat=False)
    report = Report("generation", "token", torch_dtype(dtype), device, model, folder)
    some = slice(0, None, max(1, len(chosen) // plain))
    for method, editor in build_editors(methods.split(","), lm, preset=preset_of(model)).items():
        updates = editor.edit([edit_request(record) for record in chosen])
        ours = partial(sample_tokens, lm, prompts, updates, range(len(chosen)), sampling)
        one_by_one = partial(plain_responses, lm, prompts[some], updates[some], tokens)
        drawn, alone = [ids for (ids,) in ours()], one_by_one()
        counted = sum(map(len, drawn)), sum(map(len, alone))
        row = report.measure("generation", method, (ours, counted[0]), (one_by_one, counted[1]))
        same = sum(a == b for a, b in zip(drawn[some], alone, strict=True))
        print(
            f"{method}: {1 / row['ours']:.1f} tokens a second, one edit at a time"
            f" {1 / row['plain']:.1f}; {same} of {len(alone)} responses are the same"
        )


if __name__ == "__main__":
    run_command(main)
