"""Every editor against its plain path, on the same records in one run, and what a pass consists of.

python -m benchmarks.editing --records 16 --plain 2
python -m benchmarks.editing --methods rome,memit --grow edits --most 16 --plain 0 \
    --dtype float32,bfloat16,bf16-products
python -m benchmarks.editing --methods rome --grow edits       # 1 … 256 edits at once
python -m benchmarks.editing --methods rome --grow model       # random models up to 13 B
python -m benchmarks.editing --model shape:llama2-7b --dtype bfloat16 --device cuda
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from benchmarks.plain import editing_calls, scoring_calls
from benchmarks.report import Report
from helpers import models
from helpers.cli import run_command
from helpers.editing.build import build_editor
from helpers.editing.editor import Editor
from helpers.editing.editors import EditorError
from helpers.editing.memit import AlphaEdit
from helpers.editing.mend import NetworkError
from helpers.editing.presets import preset_values
from helpers.models.language_model import LanguageModel
from helpers.models.products import BF16_PRODUCTS
from helpers.models.shapes import SHAPE_PREFIX
from helpers.models.weights import torch_dtype
from helpers.paths import RUNS
from helpers.peak.records import load_peak

POINTS = {
    "edits": "1,4,16,64,256",
    "model": "shape:smollm2-135m,shape:gpt2-xl,shape:llama2-7b,shape:llama2-13b",
}


def main(  # noqa: PLR0913 - the options of a command
    model: str = "smollm2-135m",
    dataset: str = "peak-cf",
    records: int = 16,
    plain: Annotated[int, typer.Option(help="records the plain path edits, one by one")] = 2,
    methods: str = "rome,rome+app,memit,memit+app,alphaedit,ft-m,kn,mend",
    grow: Annotated[str, typer.Option(help="methods, edits or model")] = "methods",
    preset: Annotated[str, typer.Option(help="default: tuned, or else paper")] = "",
    dtype: Annotated[str, typer.Option(help="one, or several with commas")] = "float32",
    most: Annotated[int, typer.Option(help="edits at once, with --grow edits")] = 256,
    device: str = "cpu",
    folder: Path = RUNS / "benchmarks",
) -> None:
    """Print busy seconds per record of editing and full scoring, and plain / ours per editor.

    Peak memory is the process's so far, with the profiler's events of earlier rows, which are more than an
    edit takes: give one method and one dtype a run where it matters.
    """
    if grow not in ("methods", *POINTS):
        raise typer.BadParameter(f"--grow is methods, edits or model, not {grow!r}")
    chosen = load_peak(dataset).records
    growing = POINTS.get(grow, "").split(",")
    counts = [int(n) for n in growing if int(n) <= most] if grow == "edits" else [records]
    for dtype_name in dtype.split(","):
        # Products of bf16 are held against what the machine multiplies in bf16.
        of_peak = torch.bfloat16 if dtype_name == BF16_PRODUCTS else torch_dtype(dtype_name)
        label = "_".join([*([] if grow == "model" else [model]), methods, dtype_name])
        report = Report(f"editing_{grow}", "record", of_peak, device, label, folder)
        for name in growing if grow == "model" else (model,):
            lm = models.load(name, dtype=dtype_name, device=device)
            options: dict[str, Any] = {"preset": preset or preset_of(name)}
            for method in methods.split(","):
                editor = editor_of(method, lm, options)
                if editor is None:
                    continue
                for count in counts:
                    x = {"edits": str(count), "model": name, "methods": method}[grow]
                    series = "editing" if grow == "methods" else method
                    report.measure(series, x, *editing_calls(method, editor, chosen[:count], plain))
            x = name if grow == "model" else "scoring"
            report.measure("scoring", x, *scoring_calls(lm, chosen[:records], plain))
            del editor, lm  # before the next one comes


def preset_of(model: str) -> str:
    """The preset of our own search where the model has one, else the paper's."""
    try:
        preset_values("rome", model, "tuned")
    except EditorError:
        return "paper"
    return "tuned"


def editor_of(method: str, lm: LanguageModel, options: Mapping[str, Any]) -> Editor | None:
    """The editor; None, with a notice, where it cannot be built for the model."""
    try:
        editor = build_editor(method, lm, **options)
    except (NetworkError, EditorError) as error:
        typer.echo(f"{method} is skipped: {error}", err=True)
        return None
    random = lm.name.startswith(SHAPE_PREFIX)
    return shape_threshold(editor) if random and isinstance(editor, AlphaEdit) else editor


def shape_threshold(editor: AlphaEdit) -> AlphaEdit:
    """The editor with a median second moment as its null space's threshold.

    A threshold of a trained model does not apply to random weights, none of whose directions may
    be below it. With the largest median of its layers at least half of each layer's are.
    """
    found = []
    for moment in editor.second_moments.values():
        along, _ = moment.directions
        found.append(float(along[along > along[-1] * len(along) * 2**-52].median()))
    threshold = max(found)
    values = editor.hyperparameters.model_copy(update={"nullspace_threshold": threshold})
    return replace(editor, hyperparameters=values)


if __name__ == "__main__":
    run_command(main)
