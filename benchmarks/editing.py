"""Every editor against its plain path, on the same records in one run.

python -m benchmarks.editing --records 16 --plain 2
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import pandas as pd
import torch
import typer

from benchmarks.machine import matmul_peak, measured, peak_memory
from benchmarks.plain import plain_scores
from benchmarks.plain_editors import (
    plain_alphaedit,
    plain_ft,
    plain_kn,
    plain_memit,
    plain_mend,
    plain_rome,
)
from helpers import models
from helpers.data.peak import load_peak
from helpers.runs.methods import build_method
from helpers.runs.peak_scores import edit_request, questions, score_records

PLAIN: dict[str, Any] = {
    "rome": plain_rome,
    "memit": plain_memit,
    "alphaedit": plain_alphaedit,
    "ft-l": plain_ft,
    "ft-m": plain_ft,
    "kn": plain_kn,
    "mend": plain_mend,
}


def main(
    model: str = "smollm2-135m",
    dataset: str = "peak-cf",
    records: int = 16,
    plain: Annotated[int, typer.Option(help="records the plain path edits, one by one")] = 2,
    methods: str = "rome,rome+app,memit,memit+app,alphaedit,ft-m,kn,mend",
    threads: int = torch.get_num_threads(),
) -> None:
    """Print CPU-seconds per record of editing and full scoring, and plain / ours per editor."""
    torch.set_num_threads(threads)
    language_model = models.load(model)
    chosen = load_peak(dataset, limit=records).records
    requests = [edit_request(record) for record in chosen]
    print(f"{model}, {dataset}, {records} records, fp32, {threads} threads; CPU-seconds per record")
    print(f"matrix peak {matmul_peak(torch.float32) / 1e9:.0f} GFLOP per CPU-second", flush=True)
    asked = [questions(record)[0] for record in chosen[:plain]]
    plain_score = sum(measured(partial(plain_scores, language_model, q))[0].cpu for q in asked)
    for method in methods.split(","):
        editor = build_method(method, language_model, preset="tuned")
        edit, updates = measured(partial(editor.edit, requests))
        score, _ = measured(partial(score_records, language_model, chosen, updates))
        row = {
            "edit": edit.cpu / records,
            "score": score.cpu / records,
            "plain edit": float("nan"),
            "plain score": plain_score / plain,
        }
        if method in PLAIN:
            costs = [measured(partial(PLAIN[method], editor, r))[0].cpu for r in requests[:plain]]
            row["plain edit"] = sum(costs) / plain
        row["edit ratio"] = row["plain edit"] / row["edit"]
        row["score ratio"] = row["plain score"] / row["score"]
        print(pd.DataFrame([row], index=[method]).round(2).to_string(), flush=True)
    print(f"peak memory {peak_memory():.1f} GiB")


if __name__ == "__main__":
    typer.run(main)
