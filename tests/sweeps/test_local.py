"""Sweeps on this machine: shards meet in one table; what dies is tried again, what fails is kept."""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pandas as pd
import psutil
import pytest

from helpers import UserError
from helpers.execute import OUTCOME
from helpers.paths import PARAMS
from helpers.sweeps.drive import merged_tables, run_file, run_sweep, sole_use, status, status_lines
from helpers.sweeps.engines import local_engine, worker_environments
from tests.sweeps.conftest import CASE_IDS, stored

QUICK = PARAMS / "sweeps" / "quick.yaml"
_START = """
import pickle, sys
from pathlib import Path
from helpers.sweeps.drive import run_sweep, sole_use
from helpers.sweeps.engines import local_engine

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    with sole_use(folder / "sweep"):
        run_sweep(pickle.loads((folder / "groups").read_bytes()), local_engine("cpu"))
"""


def calls(folder: Path, method: str) -> list[int]:
    """Record numbers in the order they were computed."""
    return [int(line) for line in (folder / "store" / f"{method}.calls").read_text().split()]


def printed(path: str) -> str:
    cells = nbformat.read(path, as_version=4).cells
    return "".join(o.get("text", "") for c in cells for o in c.get("outputs", []))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_sweep_is_alone_is_killed_leaves_nothing_behind_and_resumes(toy, tmp_path):
    groups = toy("rome", "ft-l", shard=4)
    (tmp_path / "groups").write_bytes(pickle.dumps(groups))
    (tmp_path / "start.py").write_text(_START)
    first = subprocess.Popen([sys.executable, str(tmp_path / "start.py"), str(tmp_path)])
    pids = tmp_path / "store" / "pids"
    try:
        _until(lambda: pids.exists() and len(pids.read_text().split()) == 2, 400)
        states = status(groups)["state"].tolist()
        assert states == ["done", "done", "done", "unfinished", "waiting", "waiting"]
        with pytest.raises(UserError, match=r"another sweep is running in .*another --folder"):
            run_file(QUICK, folder=tmp_path / "sweep")
        lines, _ = run_file(QUICK, folder=tmp_path / "sweep", dry_run=True)  # looking is allowed
        assert any(line.startswith("6 runs: ") for line in lines)
        children = [psutil.Process(int(pid)) for pid in pids.read_text().split()]
        first.send_signal(signal.SIGKILL)
        first.wait()
        _until(lambda: not any(map(_alive, children)), 20)
    finally:
        first.kill()
    (tmp_path / "store" / "go").touch()
    with sole_use(tmp_path / "sweep"):
        run_sweep(groups, local_engine("cpu", 2), resume=True)
    table = status(groups)
    assert set(table["state"]) == {"done"}
    assert table["edits"].tolist() == [0, 4, 4, 4, 4, 0]
    assert sorted(calls(tmp_path, "rome")) == CASE_IDS
    for method in ("rome", "ft-l"):
        assert stored(tmp_path, method) == CASE_IDS
    total = sum(CASE_IDS)
    assert printed(table["notebook"].iloc[-1]) == f"rome {total}\nft-l {total}\n"
    rows = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("run.json")}
    run_sweep(groups, local_engine("cpu"), resume=True)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("run.json")} == rows


@pytest.mark.slow
def test_killed_workers_and_kernels_resume_and_failures_are_kept(toy, tmp_path):
    groups = toy("memit", "kn", "mend")
    run_sweep(groups, local_engine("cpu", 2))
    _, kernel, worker, failed, whole = status(groups).itertuples()
    assert (kernel.state, worker.state) == ("failed", "unfinished")
    assert kernel.error == "DeadKernelError: Kernel died"
    assert failed.error == "ValueError: no network for this model:\ntrain one first"
    assert "train one first" in Path(failed.notebook).read_text()
    assert whole.state == "waiting"
    lines = list(status_lines(status(groups)))
    (told,) = [line for line in lines if "no network" in line]
    assert "no network for this model:\n    train one first\n" in told
    assert told.endswith(f"notebook: {failed.notebook}")
    assert any("try again with --resume" in line for line in lines)
    run_sweep(groups, local_engine("cpu", 2), resume=True)
    assert status(groups)["state"].tolist() == ["done", "done", "done", "failed", "waiting"]
    for method in ("memit", "kn"):
        # The first chunk was finished before the kill: it is there, and was made once.
        made = calls(tmp_path, method)
        assert sorted(set(made)) == CASE_IDS
        assert made.count(made[0]) == 1
        assert stored(tmp_path, method) == CASE_IDS


def test_what_shards_share_is_made_first_and_the_table_last(toy, tmp_path):
    groups, rounds = toy("rome", shard=4), []

    def engine(jobs):
        rounds.append([job.name.rpartition("_")[2] for job in jobs])
        for job in jobs:
            job.run.tables.mkdir(parents=True)
            row = {"started": "", "seconds": 2.0, "status": "done", "error": ""}
            row |= {"helpers_version": ""}
            (job.run.output_folder / OUTCOME).write_text(json.dumps(row))
            yield job

    run_sweep(groups, engine)
    assert rounds == [["shared"], ["00000", "00004"], ["table"]]
    run_sweep(groups, engine, resume=True)
    assert rounds[3:] == [[], [], []]
    (groups[0].table_job.run.tables / "07-editing.csv").write_text("method,ROME\nES,97 ± 4\n")
    text, written = merged_tables(groups, tmp_path / "tables.csv")
    assert text.startswith("\nshape:gpt2-xl on peak-mini-cf\n")
    assert written.endswith("tables.csv")
    assert (tmp_path / "tables.csv").read_text() == (
        "model,dataset,method,ROME\nshape:gpt2-xl,peak-mini-cf,ES,97 ± 4\n"
    )


def test_a_folder_is_free_after_a_failure(tmp_path):
    with pytest.raises(RuntimeError, match="gone"), sole_use(tmp_path):
        raise RuntimeError("the pool is gone")
    with sole_use(tmp_path):
        pass


def test_how_far_a_sweep_is():
    rows = [
        ("a", 4, "done", 8.0, "", ""),
        ("b", 4, "waiting", None, "", ""),
        ("d", 4, "failed", 1.0, "ValueError: no\nremedy", "d.ipynb"),
    ]
    names = ["run", "edits", "state", "seconds", "error", "notebook"]
    lines = list(status_lines(pd.DataFrame(rows, columns=names)))
    assert lines[1:] == [
        "failed: d: ValueError: no\n    remedy\n  notebook: d.ipynb",
        "3 runs: 1 done, 1 waiting, 1 failed",
        "8 of 12 edits left at 2.0 s: 16 s for one worker",
    ]


def test_one_worker_per_gpu_or_one_on_the_cpu(monkeypatch):
    assert [len(worker_environments("cpu", count)) for count in (None, 3)] == [1, 3]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert worker_environments("cuda") == [{"CUDA_VISIBLE_DEVICES": n} for n in ("2", "5")]
    assert len(worker_environments("cuda", 1)) == 1
    for device, count, message in (
        ("cuda", 3, "2 GPUs"),
        ("cpu", 0, "at least 1"),
        ("cuda:1", None, "CUDA_VISIBLE_DEVICES"),
    ):
        with pytest.raises(UserError, match=message):
            worker_environments(device, count)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UserError, match="use cpu"):
        worker_environments("cuda")


def _alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def _until(true, patience: float) -> None:
    end = time.monotonic() + patience
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)
