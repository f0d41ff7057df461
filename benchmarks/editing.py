"""Every editor against its plain path, on the same records in one run.

python -m benchmarks.editing --records 16 --plain 2
python -m benchmarks.editing --methods memit,alphaedit,rect --share   # as one run makes them
python -m benchmarks.editing --methods rome --grow edits       # 1 … 256 edits at once
python -m benchmarks.editing --methods rome --grow model       # random models up to 13 B
python -m benchmarks.editing --model shape:llama2-7b --dtype bfloat16 --device cuda
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.machine import arithmetic, cost_of
from benchmarks.plain import PLAIN, plain_scores
from benchmarks.report import Report, records_at_hand
from helpers import models
from helpers.editing.build import build_editor
from helpers.editing.editor import Editor
from helpers.editing.editors import EditorError
from helpers.editing.memit import AlphaEdit
from helpers.editing.mend import NetworkError
from helpers.editing.presets import preset_values
from helpers.models.language_model import LanguageModel
from helpers.models.shapes import SHAPE_PREFIX
from helpers.models.weights import torch_dtype
from helpers.paths import RUNS
from helpers.peak.records import PeakRecord
from helpers.peak.run import edit_request, questions, score_records

POINTS = {
    "edits": "1,4,16,64,256",
    "model": "shape:smollm2-135m,shape:gpt2-xl,shape:llama2-7b,shape:llama2-13b",
}


def main(
    model: str = "smollm2-135m",
    dataset: str = "peak-cf",
    records: int = 16,
    plain: Annotated[int, typer.Option(help="records the plain path edits, one by one")] = 2,
    methods: str = "rome,rome+app,memit,memit+app,alphaedit,ft-m,kn,mend",
    grow: Annotated[str, typer.Option(help="methods, edits or model")] = "methods",
    points: Annotated[str, typer.Option(help="edits, or models, to grow through")] = "",
    preset: Annotated[str, typer.Option(help="default: tuned, or else paper")] = "",
    dtype: str = "float32",
    device: str = "cpu",
    folder: Path = RUNS / "benchmarks",
) -> None:
    """Print busy seconds per record of editing and full scoring, and plain / ours per editor."""
    if grow not in ("methods", *POINTS):
        raise typer.BadParameter(f"--grow is methods, edits or model, not {grow!r}")
    chosen = records_at_hand(dataset)
    growing = (points or POINTS.get(grow, "")).split(",")
    counts = [int(n) for n in growing if int(n) <= len(chosen)] if grow == "edits" else [records]
    label = "_".join([*([] if grow == "model" else [model]), methods])
    report = Report(f"editing_{grow}", "record", torch_dtype(dtype), device, label)
    for name in growing if grow == "model" else (model,):
        language_model = models.load(name, dtype=dtype, device=device)
        options: dict[str, Any] = {"preset": preset or preset_of(name)}
        for method in methods.split(","):
            editor = editor_of(method, language_model, options)
            if editor is None:
                continue
            for count in counts:
                x = {"edits": str(count), "model": name, "methods": method}[grow]
                series = "editing" if grow == "methods" else method
                _edit(report, series, x, editor, chosen[:count], PLAIN.get(method), plain)
                report.save(folder)  # each row at once: the next one may not fit
        x = name if grow == "model" else "scoring"
        _score(report, language_model, x, chosen[:records], plain)
        report.save(folder)
        del editor, language_model  # before the next one comes


def preset_of(model: str) -> str:
    """The preset of our own search where the model has one, else the paper's."""
    try:
        preset_values("rome", model, "tuned")
    except EditorError:
        return "paper"
    return "tuned"


def editor_of(
    method: str, language_model: LanguageModel, options: Mapping[str, Any]
) -> Editor | None:
    """The editor; None, with a notice, where it cannot be built for the model."""
    try:
        editor = build_editor(method, language_model, **options)
    except (NetworkError, EditorError) as error:
        typer.echo(f"{method} is left out: {error}", err=True)
        return None
    random = language_model.name.startswith(SHAPE_PREFIX)
    return shape_threshold(editor) if random and isinstance(editor, AlphaEdit) else editor


def shape_threshold(editor: AlphaEdit) -> AlphaEdit:
    """The editor with a median second moment as its null space's threshold.

    A threshold of a trained model says nothing about random weights, none of whose directions may
    be below it. With the largest median of its layers at least half of each layer's are.
    """
    found = []
    for moment in editor.second_moments.values():
        along, _ = moment.directions
        found.append(float(along[along > along[-1] * len(along) * 2**-52].median()))
    threshold = max(found)
    values = editor.hyperparameters.model_copy(update={"nullspace_threshold": threshold})
    return replace(editor, hyperparameters=values)


def _edit(
    report: Report,
    series: str,
    x: str,
    editor: Editor,
    records: Sequence[PeakRecord],
    plain_editor: Any,
    plain: int,
) -> None:
    """One row: the edits at once, ``plain`` of them (evenly spaced) one by one, the arithmetic."""
    requests = [edit_request(record) for record in records]
    cost = cost_of(partial(editor.edit, requests), report.device)  # the updates are let go
    one_by_one = float("nan")
    if plain_editor and plain:
        alone = requests[:: max(1, len(requests) // plain)][:plain]
        calls = [partial(plain_editor, editor, request) for request in alone]
        one_by_one = sum(cost_of(call, report.device).busy for call in calls) / len(calls)
    flop = arithmetic(partial(editor.edit, requests))
    n = len(requests)
    report.add(series, x, cost.busy / n, plain=one_by_one, flop=flop / n, wall=cost.wall / n)


def _score(
    report: Report, language_model: LanguageModel, x: str, records: Sequence[PeakRecord], plain: int
) -> None:
    """The scoring that every record needs, packed and plain."""
    call = partial(score_records, language_model, records)
    asked = [questions(record)[0] for record in records[:plain]]
    calls = [partial(plain_scores, language_model, own) for own in asked]
    cost = cost_of(call, report.device)
    one_by_one = sum(cost_of(each, report.device).busy for each in calls) / max(1, plain)
    n = len(records)
    report.add("scoring", x, cost.busy / n, plain=one_by_one, flop=arithmetic(call) / n)


if __name__ == "__main__":
    typer.run(main)
