"""ROME, ours against the plain path, on the same records in one run.

python -m benchmarks.editing --records 16 --plain 2
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import pandas as pd
import torch
import typer

from benchmarks.machine import matmul_peak, measured, peak_memory
from benchmarks.plain import plain_rome, plain_scores
from helpers import models
from helpers.data.peak import load_peak
from helpers.editing.rome import Rome
from helpers.editing.update import apply
from helpers.runs.methods import build_method
from helpers.runs.peak_scores import edit_request, questions, score_records


def main(
    model: str = "smollm2-135m",
    dataset: str = "peak-cf",
    records: int = 16,
    plain: Annotated[int, typer.Option(help="records the plain path edits, one by one")] = 2,
    methods: str = "rome,rome+app",
    threads: int = torch.get_num_threads(),
) -> None:
    """Print CPU-seconds per record of editing and full scoring, and the ratio to the plain path."""
    torch.set_num_threads(threads)
    language_model = models.load(model)
    chosen = load_peak(dataset, limit=records).records
    requests = [edit_request(record) for record in chosen]
    rows = []
    for method in methods.split(","):
        editor = build_method(method, language_model, preset="tuned")
        edit, updates = measured(partial(editor.edit, requests))
        score, _ = measured(partial(score_records, language_model, chosen, updates))
        rows.append((method, "ours", len(chosen), edit.cpu / records, score.cpu / records))
    rome = build_method("rome", language_model, preset="tuned")
    assert isinstance(rome, Rome)
    moment = rome.second_moments[rome.layer]
    for record in chosen[:plain]:
        request, asked = edit_request(record), questions(record)[0]
        arguments = (language_model, request, rome.contexts, moment, rome.hyperparameters)
        edit, update = measured(partial(plain_rome, *arguments))
        with apply(language_model, update):
            score, _ = measured(partial(plain_scores, language_model, asked))
        rows.append(("rome", "plain", 1, edit.cpu, score.cpu))
    table = pd.DataFrame(rows, columns=["method", "path", "records", "edit", "score"])
    table = table.groupby(["method", "path"], sort=False).mean()
    table["both"] = table["edit"] + table["score"]
    print(f"{model}, {dataset}, fp32, {threads} threads; CPU-seconds per record")
    print(table.round(2).to_string())
    parts = ["edit", "score", "both"]
    ratios = table.xs(("rome", "plain"))[parts] / table.xs(("rome", "ours"))[parts]
    print("plain / ours: " + ", ".join(f"{name} {value:.1f}x" for name, value in ratios.items()))
    print(f"matrix peak {matmul_peak(torch.float32) / 1e9:.0f} GFLOP per CPU-second", end=", ")
    print(f"peak memory {peak_memory():.1f} GiB")


if __name__ == "__main__":
    typer.run(main)
