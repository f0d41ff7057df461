"""What an edit costs: CPU seconds to make it, and bytes to keep it, on the first records of a PEAK set.

    OMP_NUM_THREADS=1 python -m tools.edit_costs smollm2-135m rome rome+app memit ultraedit lora grace
    python -m tools.edit_costs qwen2.5-coder-1.5b rome --dtype bfloat16 --corpus smollm2-135m

Records are edited together, as runs do it. One more is edited first, so that what an editor measures or
decomposes once is not counted. Editors share nothing: RECT's costs hold those of MEMIT's vectors. The same
command with other methods adds rows; times of one model should be of one machine.
"""

from __future__ import annotations

import platform
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch

from helpers import UserError, models
from helpers.cli import run_command
from helpers.comparison.measures import COSTS
from helpers.editing.build import build_editor
from helpers.editing.editor import Editor
from helpers.editing.request import EditRequest
from helpers.paths import REPOSITORY, run_name
from helpers.peak.records import load_peak
from helpers.peak.run import PeakRun
from helpers.results.archive import About, archive
from helpers.results.store import ResultsStore


class EditCosts(NamedTuple):
    """Means over edits."""

    edits: int
    cpu_seconds: float
    bytes: float


def costs_of(editor: Editor, requests: Sequence[EditRequest]) -> EditCosts:
    """The costs of all requests but the last, edited together after the last one alone."""
    *timed_requests, first_request = requests
    if not timed_requests:
        raise UserError("costs are measured on two records or more")
    editor.edit([first_request])
    started = time.process_time()
    edits = editor.edit(timed_requests)
    seconds = time.process_time() - started
    with tempfile.TemporaryDirectory() as folder:
        sizes = []
        for edit in edits:
            path = Path(folder) / "edit"
            edit.save(path)
            sizes.append(path.stat().st_size)
    return EditCosts(len(edits), seconds / len(edits), sum(sizes) / len(sizes))


def main(  # noqa: PLR0913 - the options of a command
    model: str,
    methods: list[str],
    dataset: str = "peak-cf",
    records: int = 9,
    preset: str = "tuned",
    dtype: str = "float32",
    device: str = "cpu",
    corpus: str = "self",
    seed: int = 0,
) -> None:
    """Measure the costs of methods, and store each as soon as it is measured."""
    lm = models.load(model, dtype=dtype, device=device)
    data = load_peak(dataset, limit=records)
    run = PeakRun(lm, data, ResultsStore(REPOSITORY / "runs" / "results"))
    requests = [run.request(record) for record in data.records]
    about_run = run.settings({})
    name = run_name(lm.name, data.name)
    machine = {"machine": platform.machine(), "threads": torch.get_num_threads()}
    for method in methods:
        editor = build_editor(method, lm, preset=preset, corpus=corpus, seed=seed)
        costs = costs_of(editor, requests)
        row = pd.DataFrame([{"method": method, **costs._asdict(), **machine}])
        stored = archive("edit_costs").known(name)
        earlier_rows = [] if stored is None else [stored.tables[COSTS].query("method != @method")]
        table = pd.concat([*earlier_rows, row], ignore_index=True)
        about = About(about_run, {method: editor.settings()})
        print(method, costs, archive("edit_costs").put(name, {COSTS: table}, about), flush=True)


if __name__ == "__main__":
    run_command(main)
