"""What lower precision changes: log-probabilities, and the measures of the same edits.

    python -m benchmarks.precision --records 8 --dtypes bfloat16

Edits are made in the lower precision and scored in it and in fp32. Deltas, losses and solves of an editor
stay in fp32 (or fp64), statistics and contexts are the fp32 model's. Differences are from fp32 throughout
on the same device: paired, with 95 % intervals over records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import pandas as pd
import typer

from benchmarks.editing import editor_of, preset_of
from benchmarks.machine import measured
from helpers import models
from helpers.cli import run_command
from helpers.editing.editor import Editor
from helpers.editing.vector import VectorEditor
from helpers.models.language_model import LanguageModel
from helpers.peak.metrics import KEYS, metrics_table
from helpers.peak.records import PeakRecord, load_peak
from helpers.peak.run import edit_request, score_records
from helpers.peak.tables import HARD_METRICS, metric_contrast
from helpers.results.text import in_points


def main(
    model: str = "smollm2-135m",
    methods: str = "rome,memit",
    dataset: str = "peak-cf",
    records: Annotated[int, typer.Option(help="the first ones; negative: the last")] = 8,
    dtypes: str = "bfloat16",
    device: str = "cpu",
    preset: str = "",
) -> None:
    """Print, per method and dtype, the deviation from fp32 in log-probability and in points."""
    chosen = load_peak(dataset).records[min(records, 0) :][: abs(records)]
    full = models.load(model, device=device)
    lowered = {name: models.load(model, dtype=name, device=device) for name in dtypes.split(",")}
    for method in methods.split(","):
        if (editor := editor_of(method, full, {"preset": preset or preset_of(model)})) is None:
            continue
        exact, exact_cost = _scores(editor, full, chosen)
        for dtype, low in lowered.items():
            for scored, scoring in ((dtype, low), ("float32", full)):
                lower, cost = _scores(_moved(editor, low), scoring, chosen)
                row: dict[str, Any] = {"method": method, "edited in": dtype, "scored in": scored}
                row |= _deviation(exact, lower)
                row |= {"busy s per record": cost / len(chosen), "fp32 / lower": exact_cost / cost}
                print(pd.DataFrame([row]).round(4).T.to_string(header=False), "\n", flush=True)


def _moved(editor: Any, lm: LanguageModel) -> Editor:
    """The editor on another model, with the statistics it has."""
    changes: dict[str, Any] = {"lm": lm}
    if isinstance(editor, VectorEditor):
        changes["second_moments"] = {
            layer: replace(moment, fingerprint=lm.fingerprint)
            for layer, moment in editor.second_moments.items()
        }
    return replace(editor, **changes)


def _scores(
    editor: Editor, scoring: LanguageModel, records: Sequence[PeakRecord]
) -> tuple[pd.DataFrame, float]:
    """Scores before and after, and the busy seconds of editing and scoring."""
    before = score_records(scoring, records).rename(columns={"sum": "sum_before"})

    def edit_and_score() -> pd.DataFrame:
        updates = editor.edit([edit_request(record) for record in records])
        return score_records(scoring, records, updates)

    cost, after = measured(edit_and_score, scoring.device.type)
    return before.assign(sum_after=after["sum"]).set_index(KEYS), cost.busy


def _deviation(exact: pd.DataFrame, lower: pd.DataFrame) -> dict[str, object]:
    """Median and largest difference of mean log-probabilities, mean differences of the measures."""
    found: dict[str, object] = {}
    for moment in ("before", "after"):
        gap = (lower[f"sum_{moment}"] - exact[f"sum_{moment}"]).abs() / exact["tokens"]
        found[f"|dlogp| {moment}, median"] = float(gap.median())
        found[f"|dlogp| {moment}, 99 %"] = float(gap.quantile(0.99))
    ours, base = (metrics_table(table.reset_index()) for table in (lower, exact))
    for metric in HARD_METRICS:
        contrast = metric_contrast(metric, base[metric], ours[metric])
        found[f"{metric}, points"] = in_points(contrast.difference, signed=True)
    return found


if __name__ == "__main__":
    run_command(main)
