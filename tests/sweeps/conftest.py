"""A small notebook with the parameters of notebook 03, and faults on demand."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

# Without a model: each record's "score" is its number. Editors stand for what goes wrong: memit's
# kernel is killed once, kn's worker too, rect's worker is told that its time is up, mend fails, and
# ft-l waits for a second run to make the same.
_CELLS = (
    """\
model: str = "shape:gpt2-xl"  # not loaded
dataset: str = "peak-mini-cf"  # as in notebook 03
records: int | None = None  # as in notebook 03
methods: list[str] = ["rome"]  # see compute
store: str = ""  # folder of the results store""",
    """\
import os
import signal
import time
from pathlib import Path

import pandas as pd

from helpers.peak.records import load_peak
from helpers.results.store import Cases
from helpers.results.store import ResultsStore""",
    """\
def compute(case_ids):
    Path(store, "calls.txt").open("a").write(f"{method} {case_ids}\\n")
    once = Path(store, f"{method}.once")
    blow = {
        "memit": (os.getpid(), signal.SIGKILL),
        "kn": (os.getppid(), signal.SIGKILL),
        "rect": (os.getppid(), signal.SIGUSR2),
    }
    if method in blow and results.done() and not once.exists():
        once.touch()
        os.kill(*blow[method])
        signal.pause()
    if method == "ft-l":
        Path(store, f"begun-{os.getpid()}").touch()
        while len(list(Path(store).glob("begun-*"))) < 2:
            time.sleep(0.05)
    if method == "mend":
        raise ValueError("no network for this model:\\ntrain one first")
    return {"scores": pd.DataFrame({"case_id": case_ids, "score": case_ids})}""",
    """\
data = load_peak(dataset, limit=records)
for method in methods:
    results = ResultsStore(Path(store)).open({"method": method, "dataset": data.name})
    by_id = {record.case_id: record.case_id for record in data.records}
    Cases(by_id, 2).completed(results, compute)
    print(method, results.read()["score"].sum())""",
)


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    """The small notebook."""
    cells = [nbformat.v4.new_code_cell(source) for source in _CELLS]
    cells[0].metadata["tags"] = ["parameters"]
    path = tmp_path / "toy.ipynb"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    made = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(made, path)
    return path
