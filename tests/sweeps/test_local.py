"""Sweeps on this machine: shards meet in one table; what dies is tried again, what fails is kept."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import pandas as pd
import pytest

from helpers import __version__
from helpers.execute import ManifestRow, record
from helpers.peak.records import load_peak
from helpers.results.store import ResultsStore
from helpers.sweeps.drive import run_sweep, status, write_jobs
from helpers.sweeps.jobs import run_job
from helpers.sweeps.local import LocalEngine, worker_environments
from helpers.sweeps.matrix import Sweep, expand
from helpers.sweeps.report import made_tables, outcome, progress

ENGINE = LocalEngine([{}, {}])


def groups(notebook: Path, folder: Path, store: Path, *, editors: list[str], shard: int):
    store.mkdir(exist_ok=True)
    sweep = Sweep(
        models=["shape:gpt2-xl"],
        datasets=["peak-mini-cf"],
        editors=editors,
        records=8,
        shard=shard,
        params={"store": str(store)},
    )
    found = expand(sweep, where="toy.yaml", notebook=notebook)
    return write_jobs(found, folder, notebook=notebook)


def stored(store: Path, method: str) -> pd.DataFrame:
    return ResultsStore(store).open({"method": method, "dataset": "peak-mini-cf"}).read()


def calls(store: Path, method: str) -> list[int]:
    """Record numbers in the order they were computed."""
    lines = (store / "calls.txt").read_text().splitlines()
    return [
        n for line in lines if line.startswith(method) for n in json.loads(line.split(" ", 1)[1])
    ]


CASE_IDS = sorted(record.case_id for record in load_peak("peak-mini-cf", limit=8).records)


def printed(path: str) -> str:
    cells = nbformat.read(path, as_version=4).cells
    return "".join(o.get("text", "") for c in cells for o in c.get("outputs", []))


def test_shards_merge_into_one_table_and_resume_runs_nothing_twice(notebook, tmp_path):
    store = tmp_path / "store"
    mine = groups(notebook, tmp_path / "sweep", store, editors=["rome"], shard=4)
    run_sweep(mine, ENGINE)
    table = status(mine)
    assert table["state"].tolist() == ["done"] * 3
    assert table["edits"].tolist() == [4, 4, 0]
    assert sorted(calls(store, "rome")) == CASE_IDS
    assert stored(store, "rome")["case_id"].tolist() == CASE_IDS
    assert printed(table["notebook"].iloc[-1]) == f"rome {sum(CASE_IDS)}\n"
    rows = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("run.json")}
    run_sweep(mine, ENGINE, resume=True)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("run.json")} == rows


def test_killed_workers_and_kernels_are_tried_again_and_failures_are_kept(notebook, tmp_path):
    store = tmp_path / "store"
    editors = ["memit", "kn", "mend"]
    mine = groups(notebook, tmp_path / "sweep", store, editors=editors, shard=8)
    run_sweep(mine, ENGINE)
    kernel, worker, failed, whole = status(mine).itertuples()
    assert (kernel.state, worker.state) == ("done", "done")
    assert (kernel.attempts, worker.attempts) == (2, 2)
    for method in ("memit", "kn"):
        # The first chunk was finished before the kill: it is there, and was made once.
        made = calls(store, method)
        assert made[:1] + made[3:] == [
            r.case_id for r in load_peak("peak-mini-cf", limit=8).records
        ]
        assert made[1:2] == made[3:4]
        assert stored(store, method)["case_id"].tolist() == CASE_IDS
    assert (failed.state, failed.attempts) == ("failed", 1)
    assert failed.error == "ValueError: no network for this model:\ntrain one first"
    assert "train one first" in Path(failed.notebook).read_text()
    assert whole.state == "waiting"
    (told,) = [text for text in outcome(status(mine)) if text.startswith("failed: ")]
    assert "no network for this model:\n    train one first\n" in told
    assert told.endswith(f"notebook: {failed.notebook}")


def test_what_shards_share_is_made_first_by_the_cells_that_say_so(notebook, tmp_path):
    content = nbformat.read(notebook, as_version=4)
    shares = nbformat.v4.new_code_cell("from pathlib import Path\nPath(store, 'shared').touch()")
    shares.metadata["tags"] = ["shared"]
    content.cells.insert(1, shares)
    nbformat.write(content, notebook)
    store = tmp_path / "store"
    mine = groups(notebook, tmp_path / "sweep", store, editors=["rome"], shard=4)
    rounds = []

    def engine(jobs):
        rounds.append([job.name.rpartition("_")[2] for job in jobs])
        for job in jobs:
            if job.part:
                run_job(job)
                assert not (store / "calls.txt").exists()  # nothing else was executed
            else:
                row = ManifestRow("", "", "", "", 2.0, "done", "", __version__)
                planned = job.planned()
                planned.output_folder.mkdir(parents=True)
                record(planned, row)
            yield job

    run_sweep(mine, engine)
    assert rounds == [["shared"], ["00000", "00004"], ["table"]]
    assert (store / "shared").exists()
    assert status(mine)["state"].tolist() == ["done"] * 4
    run_sweep(mine, engine, resume=True)
    assert rounds[3:] == []


def test_how_far_a_sweep_is():
    rows = [
        ("a", 4, "done", 8.0, ""),
        ("b", 4, "unfinished", None, ""),
        ("c", 4, "unfinished", None, ""),
    ]
    rows += [("d", 4, "failed", 1.0, "ValueError: no\nremedy")]
    table = pd.DataFrame(rows, columns=["run", "edits", "state", "seconds", "error"])
    assert list(progress(table, running=True)) == [
        "2 unfinished, 1 done, 1 failed",
        "failed: d: ValueError: no",
        "a sweep is running",
        "12 edits left at 2.0 s: 24 s for one worker, 12 s for the 2 at work",
    ]


def test_tables_of_a_sweep_are_told_and_written(notebook, tmp_path):
    mine = groups(notebook, tmp_path / "sweep", tmp_path / "store", editors=["rome"], shard=8)
    planned = mine[0].table.planned()
    planned.tables.mkdir(parents=True)
    (planned.tables / "07-editing.csv").write_text("method,ROME\nES,97 ± 4\n")
    assert list(made_tables(mine, tmp_path / "tables.csv")) == []  # the run has not ended well
    record(planned, ManifestRow("", "", "", "", 2.0, "done", "", __version__))
    text, written = made_tables(mine, tmp_path / "tables.csv")
    assert text.startswith("\nshape:gpt2-xl on peak-mini-cf\n")
    assert "97 ± 4" in text
    assert written.endswith("tables.csv")
    assert (tmp_path / "tables.csv").read_text() == (
        "model,dataset,method,ROME\nshape:gpt2-xl,peak-mini-cf,ES,97 ± 4\n"
    )


def test_a_worker_that_dies_twice_is_reported_with_the_remedy(notebook, tmp_path):
    mine = groups(notebook, tmp_path / "sweep", tmp_path / "store", editors=["rome"], shard=8)

    def engine(jobs):  # every worker is killed before it can write anything
        yield from jobs

    run_sweep(mine, engine)
    (run, table) = status(mine).itertuples()
    assert (run.state, table.state) == ("failed", "waiting")
    assert "--resume" in run.error


def test_two_sweeps_at_once_on_one_store_count_every_record_once(notebook, tmp_path):
    store = tmp_path / "store"
    both = [
        groups(notebook, tmp_path / name, store, editors=["ft-l"], shard=8) for name in ("a", "b")
    ]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda mine: run_sweep(mine, LocalEngine([{}])), both))
    assert sorted(calls(store, "ft-l")) == sorted(CASE_IDS * 2)  # they did overlap
    for mine in both:
        assert set(status(mine)["state"]) == {"done"}
        assert printed(status(mine)["notebook"].iloc[-1]) == f"ft-l {sum(CASE_IDS)}\n"
    assert stored(store, "ft-l")["case_id"].tolist() == CASE_IDS


def test_one_worker_per_gpu_or_one_on_the_cpu(monkeypatch):
    assert len(worker_environments("cpu")) == 1
    assert len(worker_environments("cpu", 3)) == 3
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert worker_environments("cuda") == [{"CUDA_VISIBLE_DEVICES": n} for n in ("2", "5")]
    assert len(worker_environments("cuda", 1)) == 1
    with pytest.raises(ValueError, match="2 GPUs"):
        worker_environments("cuda", 3)
    with pytest.raises(ValueError, match="at least 1"):
        worker_environments("cpu", 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ValueError, match="CUDA_VISIBLE_DEVICES"):
        worker_environments("cuda:1")
    with pytest.raises(ValueError, match="use device: cpu"):
        worker_environments("cuda")
