"""A small notebook with the parameters of notebook 03, and faults on demand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nbformat
import pandas as pd
import pytest

from helpers.peak.records import load_peak
from helpers.results.store import ResultsStore
from helpers.sweeps.matrix import JobGroup, Sweep, expand

CASE_IDS = sorted(record.case_id for record in load_peak("peak-mini-cf", limit=8).records)

# Without a model: each record's "score" is its number. Editors stand for what goes wrong: memit's
# kernel is killed once, kn's worker too, rect's worker is told that its time is up, mend fails, and
# ft-l waits for a file.
_CELLS = (
    """\
model: str = "shape:gpt2-xl"  # not loaded
dataset: str = "peak-mini-cf"  # as in notebook 03
records: "int or None" = None  # as in notebook 03
methods: list[str] = ["rome"]  # see compute
published: list[str] = []  # as in notebook 03
store: str = ""  # folder of the results store""",
    "from pathlib import Path\nPath(store, 'shared').touch()",
    """\
import os
import signal
import time

import pandas as pd

from helpers.peak.records import load_peak
from helpers.results.store import Cases
from helpers.results.store import ResultsStore""",
    """\
def compute(case_ids):
    with Path(store, f"{method}.calls").open("a") as calls:
        calls.writelines(f"{case_id}\\n" for case_id in case_ids)
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
    if method == "ft-l" and results.done():
        Path(store, "pids").write_text(f"{os.getppid()} {os.getpid()}")
        while not Path(store, "go").exists():
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
    cells[0].metadata["tags"], cells[1].metadata["tags"] = ["parameters"], ["shared"]
    path = tmp_path / "toy.ipynb"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
    return path


@pytest.fixture
def toy(notebook: Path, tmp_path: Path) -> Callable[..., list[JobGroup]]:
    """The runs of a sweep of the small notebook; its store is ``tmp_path / "store"``."""
    (tmp_path / "store").mkdir()

    def groups(*editors: str, shard: int = 8, records: int = 8) -> list[JobGroup]:
        sweep = Sweep(
            models=["shape:gpt2-xl"],
            datasets=["peak-mini-cf"],
            editors=list(editors),
            records=records,
            shard=shard,
            params={"store": str(tmp_path / "store")},
        )
        return expand(sweep, source="toy.yaml", folder=tmp_path / "sweep", notebook=notebook)

    return groups


def stored(folder: Path, method: str) -> list[int]:
    """The records in a sweep's store."""
    store = ResultsStore(folder / "store")
    table: pd.DataFrame = store.open({"method": method, "dataset": "peak-mini-cf"}).read()
    return list(table["case_id"])
