"""What lower precision changes: log-probabilities, and AFF and ANF of the same edits.

    python -m benchmarks.precision --records 8 --dtypes bfloat16

Weights and activations are in the lower precision; the deltas, losses and solves of an editor stay
in fp32 (or fp64) in every row, and statistics and contexts are the fp32 model's. Differences are
against fp32 on the same device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import typer

from benchmarks.editing import editor_of, preset_of
from benchmarks.machine import measured
from helpers import models
from helpers.editing.editor import Editor
from helpers.editing.vector import VectorEditor
from helpers.models.language_model import LanguageModel
from helpers.peak.metrics import KEYS, metrics_table
from helpers.peak.records import PeakRecord, load_peak
from helpers.peak.run import edit_request, score_records


def main(
    model: str = "smollm2-135m",
    methods: str = "rome,memit",
    dataset: str = "peak-cf",
    records: int = 8,
    dtypes: str = "bfloat16",
    device: str = "cpu",
) -> None:
    """Print, per method and dtype, the deviation from fp32 in log-probability and in points."""
    chosen = load_peak(dataset, limit=records).records
    full = models.load(model, device=device)
    lowered = {name: models.load(model, dtype=name, device=device) for name in dtypes.split(",")}
    for method in methods.split(","):
        editor = editor_of(method, full, {"preset": preset_of(model)})
        if editor is None:
            continue
        exact, exact_cost = _scores(editor, chosen)
        for dtype, language_model in lowered.items():
            lower, cost = _scores(_moved(editor, language_model), chosen)
            costs = {"busy s per record": cost / records, "fp32 / lower": exact_cost / cost}
            row = {"method": method, "dtype": dtype, **_deviation(exact, lower), **costs}
            print(pd.DataFrame([row]).round(4).to_string(index=False), flush=True)


def _moved(editor: Any, language_model: LanguageModel) -> Editor:
    """The editor on another model, with the statistics it has."""
    changes: dict[str, Any] = {"language_model": language_model}
    if isinstance(editor, VectorEditor):
        changes["second_moments"] = {
            layer: replace(moment, fingerprint=language_model.fingerprint)
            for layer, moment in editor.second_moments.items()
        }
    moved: Editor = replace(editor, **changes)
    return moved


def _scores(editor: Editor, records: Sequence[PeakRecord]) -> tuple[pd.DataFrame, float]:
    """Scores before and after, and the busy seconds of editing and scoring."""
    language_model = editor.language_model
    before = score_records(language_model, records)

    def edit_and_score() -> pd.DataFrame:
        updates = editor.edit([edit_request(record) for record in records])
        return score_records(language_model, records, updates)

    cost, after = measured(edit_and_score, language_model.device.type)
    both = before.rename(columns={"sum": "sum_before"}).assign(sum_after=after["sum"])
    return both.set_index(KEYS), cost.busy


def _deviation(exact: pd.DataFrame, lower: pd.DataFrame) -> dict[str, float]:
    """Median and largest difference of mean log-probabilities, mean difference of the metrics."""
    found: dict[str, float] = {}
    for moment in ("before", "after"):
        gap = (lower[f"sum_{moment}"] - exact[f"sum_{moment}"]).abs() / exact["tokens"]
        found[f"|dlogp| {moment}, median"] = float(np.median(gap))
        found[f"|dlogp| {moment}, 99 %"] = float(np.quantile(gap, 0.99))
    ours, base = (metrics_table(table.reset_index()) for table in (lower, exact))
    for metric in ("ES", "AFF_hard", "ANF_hard"):
        found[f"{metric}, points"] = 100 * float((ours[metric] - base[metric]).mean())
    return found


if __name__ == "__main__":
    typer.run(main)
