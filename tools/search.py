"""The recorded search behind the ``tuned`` presets.

Every combination of a small grid edits the same records, which are in no reported table: the last
ones of the official file, whereas runs take the first ones. One objective judges an editor alone and
with APP (``objective``): the harmonic mean of ES, GS, LS, 100 - AFF and 100 - ANF (hard), so that
neither is searched on what the other is judged by. Most presets are older than this objective: each one's
``source`` states what was chosen, and where the objective would choose otherwise.

    python -m tools.search smollm2-135m rome layers='[[3],[5],[7]]'
    python -m tools.search smollm2-135m rome+app app='[{"alpha":0.2,"beta":0.2,"gamma":0.1}]'

Results go to ``params/models/search/<model>.csv``: one row per combination, with its settings, the
records edited, those that the metrics' filters left (``scored``), the objective (``score``), the
flagged updates, and the statistics behind it. Scores compare within a method and a number of records.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Annotated, Any

import pandas as pd
import typer

from helpers import models
from helpers.editing.app import App
from helpers.editing.build import build_editor
from helpers.editing.editor import Memo
from helpers.paths import PARAMS, RUNS, file_name
from helpers.peak.metrics import metrics_table
from helpers.peak.records import load_peak
from helpers.peak.run import PeakRun
from helpers.results.store import ResultsStore

SAME = ["method", "point", "dataset", "records", "statistics"]  # a row takes such a one's place
SUCCESS = ["ES", "GS", "LS"]  # in percent, more is better
DAMAGE = ["AFF_hard", "ANF_hard"]  # in percent, less is better
LEAST = 1.0  # percent: a part below counts as this much, so that a zero does not hide the others


def main(  # noqa: PLR0913 - the options of a command
    model: str,
    method: str,
    grid: Annotated[list[str], typer.Argument(help="name='[value, value]' as JSON")],
    dataset: str = "peak-cf",
    records: int = 25,
    preset: str = "tuned",
    dtype: str = "float32",
    device: str = "cpu",
    corpus: str = "self",
) -> None:
    """Edit the held-out records under every combination of the grid and record the means."""
    lm = models.load(model, dtype=dtype, device=device)
    data = load_peak(dataset)
    held_out = replace(data, records=data.records[-records:])
    run = PeakRun(lm, held_out, ResultsStore(RUNS / "search"))
    axes = {name: json.loads(values) for name, _, values in (item.partition("=") for item in grid)}
    memo: Memo = {}
    path = PARAMS / "models" / "search" / f"{file_name(model)}.csv"
    for values in itertools.product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        row = pd.DataFrame([_measure(run, method, preset, point, corpus, memo)])
        before = [pd.read_csv(path)] if path.exists() else []
        together = pd.concat([*before, row]).drop_duplicates(SAME, keep="last")
        together["score"] = objective(together)
        together.to_csv(path, index=False)
        print(together.tail(1).to_string(index=False))


def objective(means: pd.DataFrame) -> pd.Series:
    """The harmonic mean of ES, GS, LS, 100 - AFF and 100 - ANF (hard), in percent, of each row."""
    parts = pd.concat([means[SUCCESS], 100 - means[DAMAGE]], axis=1).clip(lower=LEAST)
    return (len(parts.columns) / (1 / parts).sum(axis=1)).round(2)


def _measure(
    run: PeakRun, method: str, preset: str, point: dict[str, Any], corpus: str, memo: Memo
) -> dict[str, Any]:
    overrides = {name: value for name, value in point.items() if name != "app"}
    app = App(**point["app"]) if "app" in point else None
    options: dict[str, Any] = {"app": app, "overrides": overrides, "corpus": corpus}
    editor = build_editor(method, run.lm, preset=preset, memo=memo, **options)
    table = metrics_table(run.scores(editor))
    means, edits = 100 * table[[*SUCCESS, *DAMAGE]].mean(), run.edits(editor)
    return {
        "method": method,
        "point": json.dumps(point),
        "dataset": run.data.name,
        "records": len(run.data.records),
        **{metric: round(float(means[metric]), 2) for metric in (*SUCCESS, *DAMAGE)},
        "score": float("nan"),  # `objective` of the rounded means, once all rows are together
        "flagged": int(edits["exploding"].sum()),
        "failed": int((edits["failure"] != "").sum()),
        "scored": int(table["ES"].count()),
        "statistics": json.dumps(editor.settings().get("second_moments", {})),
    }


if __name__ == "__main__":
    typer.run(main)
