"""Sweeps on a real Slurm: one node, started here, on the loopback device."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
import uuid
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import submitit
import torch
import yaml

from helpers import __version__
from helpers.execute import ROW, ManifestRow
from helpers.models.shapes import random_model
from helpers.paths import REPOSITORY, RUNS
from helpers.peak.records import load_peak
from helpers.results.store import ResultsStore
from helpers.sweeps import slurm as slurm_engine
from helpers.sweeps.command import run_file
from helpers.sweeps.drive import run_sweep, status, write_jobs
from helpers.sweeps.matrix import Sweep, expand
from helpers.sweeps.slurm import SlurmEngine, SlurmError
from tests.sweeps.one_node import NoSlurmError, one_node_slurm

OPTIONS = {"timeout_min": 5, "cpus_per_task": 1}


@pytest.fixture(scope="module")
def cluster():
    """A running Slurm that this process and its jobs talk to; skipped where none can run."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch:
        try:
            with one_node_slurm(folder) as settings:
                patch.setenv("SLURM_CONF", str(settings))
                yield settings
        except NoSlurmError as error:
            pytest.skip(str(error))
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def tiny_folder(tmp_path) -> Path:
    """A random model with just enough blocks for the embedded model's tuned ROME (layer 5)."""
    settings = {
        "model_type": "llama",
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 6,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "initializer_range": 0.3,
    }
    model, tokenizer = random_model(settings, seed=0, dtype=torch.float32, device="cpu")
    folder = tmp_path / "smollm2-135m"  # the name chooses the hyperparameters
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def results() -> Path:
    """A results folder below ``runs``, as params files may name."""
    folder = RUNS / f"test-{uuid.uuid4().hex[:8]}"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_an_array_of_the_quick_profile(cluster, tiny_folder, results, tmp_path, monkeypatch):
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "mine.yaml"
    sweep = {
        "models": [str(tiny_folder)],
        "datasets": ["peak-mini-cf"],
        "editors": ["rome"],
        "records": 4,
        "shard": 2,
        "params": {
            "results": str(results.relative_to(REPOSITORY)),
            "corpus": "self-8x32",
            "preset": "generic",
        },
        "slurm": OPTIONS,
    }
    file.write_text(yaml.safe_dump(sweep))
    lines, failed = run_file(file, engine="slurm", folder=tmp_path / "sweep")
    assert not failed, "\n".join(lines)
    assert "4 done" in lines
    assert lines[-1] == f"\nwritten to {tmp_path / 'sweep' / 'tables.csv'}"
    assert "AFF_hard" in (tmp_path / "sweep" / "tables.csv").read_text()
    # What the shards share, two tasks of one array, and the table.
    scripts = list((tmp_path / "sweep" / "slurm").rglob("*submission.sh"))
    arrays = [re.findall(r"--array=(\S+)", path.read_text()) for path in scripts]
    assert sorted(map(len, arrays)) == [0, 0, 1]
    (whole,) = (tmp_path / "sweep").rglob("*_table-*/notebook.ipynb")
    outputs = [o for c in nbformat.read(whole, as_version=4).cells for o in c.get("outputs", [])]
    assert any("4 records" in o.get("data", {}).get("text/plain", "") for o in outputs)
    tables = [ResultsStore(results).open(settings(path)).read() for path in results.iterdir()]
    assert len(tables) == 2  # before and after: the shards share their keys
    for table in tables:
        assert table["case_id"].nunique() == 4  # the store's own numbers, by content
        assert not table.duplicated(
            ["case_id", "role", "prompt_index", "list", "answer_index"]
        ).any()
    assert list(whole.parent.glob("figures/*.png"))  # not in the repository's figures


def settings(folder: Path) -> dict:
    return json.loads((folder / "settings.json").read_text())


def test_tasks_killed_or_out_of_time_are_submitted_again(cluster, notebook, tmp_path):
    store = tmp_path / "store"
    store.mkdir()
    sweep = Sweep(
        models=["shape:gpt2-xl"],
        datasets=["peak-mini-cf"],
        editors=["kn", "rect", "mend"],
        records=4,
        shard=4,
        params={"store": str(store)},
    )
    folder = tmp_path / "sweep"
    found = expand(sweep, where="toy.yaml", notebook=notebook)
    groups = write_jobs(found, folder, notebook=notebook)
    run_sweep(groups, SlurmEngine(folder / "slurm", OPTIONS, poll=0.5, patience=3))
    killed, late, failed, table = status(groups).itertuples()
    assert (killed.state, killed.attempts) == ("done", 2)
    assert (late.state, late.attempts) == ("done", 2)  # as the same task, which Slurm put back
    assert len(list((folder / "slurm").glob("*_1"))) == 1
    assert (failed.state, failed.attempts) == ("failed", 1)
    assert failed.error == "ValueError: no network for this model:\ntrain one first"
    assert table.state == "waiting"
    expected = sorted(record.case_id for record in load_peak("peak-mini-cf", limit=4).records)
    for method in ("kn", "rect"):
        read = ResultsStore(store).open({"method": method, "dataset": "peak-mini-cf"}).read()
        assert read["case_id"].tolist() == expected


# In place of a task's Python: its job's row is there, and is put where it belongs.
_EMPTY = 'exec cp {rows}/$SLURM_ARRAY_TASK_ID.json "$(cat {rows}/$SLURM_ARRAY_TASK_ID.place)"'


def test_empty_jobs_cost_little(cluster, notebook, tmp_path, capsys):
    """Bookkeeping alone: tasks that do nothing. With HELPERS_EMPTY_JOBS=1000, docs/sweeps.md."""
    many = int(os.environ.get("HELPERS_EMPTY_JOBS", "20"))
    clock, cpu = time.perf_counter(), time.process_time()
    sweep = Sweep(
        models=[f"shape:{number}" for number in range(many // 20)],
        datasets=["peak-mini-cf"],
        editors=["rome"],
        records=20,
        shard=1,
    )
    found = expand(sweep, where="toy.yaml", notebook=notebook)
    groups = write_jobs(found, tmp_path, notebook=notebook)
    written = time.perf_counter() - clock
    jobs = [job for group in groups for job in group.shards]
    (rows := tmp_path / "rows").mkdir()
    for number, job in enumerate(jobs):
        planned = job.planned()
        planned.output_folder.mkdir(parents=True)
        (rows / f"{number}.place").write_text(str(planned.output_folder / ROW))
        row = ManifestRow("", "", "", "", 1.0, "done", "", __version__)
        (rows / f"{number}.json").write_text(json.dumps(asdict(row)))
    begun, made = time.perf_counter(), time.process_time()
    options = {**OPTIONS, "slurm_setup": [_EMPTY.format(rows=rows)]}
    engine = SlurmEngine(tmp_path / "slurm", options, poll=1)
    assert sorted(job.name for job in engine(jobs)) == sorted(job.name for job in jobs)
    waited, ours = time.perf_counter() - begun, time.process_time() - made
    begun = time.perf_counter()
    assert (status(groups)["state"] == "done").sum() == many
    told = (
        f"{many} jobs: written {written:.1f} s, queue {waited:.1f} s, of it ours {ours:.1f} s CPU"
    )
    with capsys.disabled():
        print(f"\n{told}, status {time.perf_counter() - begun:.1f} s")
    assert time.process_time() - cpu < 5 + 0.05 * many


def test_wrong_options_name_the_right_ones(cluster, notebook, tmp_path):
    for options, message in (
        ({"partitions": "gpu"}, "submitit's names.*begin with slurm_"),
        ({"slurm_partition": "none-such", **OPTIONS}, "Slurm did not take the jobs.*partition"),
        ({"timeout_min": "long"}, "timeout_min"),
    ):
        sweep = Sweep(models=["m"], datasets=["peak-mini-cf"], editors=["rome"], records=1)
        found = expand(sweep, where="toy.yaml", notebook=notebook)
        groups = write_jobs(found, tmp_path, notebook=notebook)
        with pytest.raises(SlurmError, match=f"(?s){message}"):
            run_sweep(groups, SlurmEngine(tmp_path / "slurm", options))


def test_without_slurm_the_remedy_is_named(notebook, tmp_path, monkeypatch):
    monkeypatch.setattr(slurm_engine.shutil, "which", lambda name: None)
    with pytest.raises(SlurmError, match="--engine local"):
        list(SlurmEngine(tmp_path / "slurm")([]))


def test_a_silent_scheduler_is_not_taken_for_the_end_of_all_jobs(tmp_path, monkeypatch):
    """Answers: none, the job is there, it is gone. It is yielded after the third only."""
    answers = iter([None, {"7"}, set()])
    asked = []

    def queue():
        asked.append(next(answers))
        return asked[-1]

    monkeypatch.setattr(slurm_engine, "_queue", queue)
    monkeypatch.setattr(SlurmEngine, "_submit", lambda self, jobs: ["7"])
    engine = SlurmEngine(tmp_path, poll=0, patience=0)
    assert len(list(engine([Named("a")]))) == 1
    assert len(asked) == 3


class Named:
    """A job as far as the engine looks at it."""

    def __init__(self, key):
        self.key = key

    def planned(self):
        return self

    def row(self):
        return None


def test_arrays_are_no_larger_than_slurm_takes_them(tmp_path, monkeypatch):
    """Of five jobs at most two to an array; the limit of tasks at a time is dealt among the arrays."""
    submitted = []

    class Executor:
        def __init__(self, folder, cluster):
            pass

        def update_parameters(self, **options):
            submitted.append(options["slurm_array_parallelism"])

        def map_array(self, function, jobs):
            submitted.append([job.key for job in jobs])
            number = len(submitted)
            return [SimpleNamespace(job_id=f"{number}_{i}") for i in range(len(jobs))]

    monkeypatch.setattr(submitit, "AutoExecutor", Executor)
    monkeypatch.setattr(slurm_engine.shutil, "which", lambda name: name)
    config = SimpleNamespace(stdout="MaxArraySize            = 2\nMaxJobCount = 9\n")
    monkeypatch.setattr(slurm_engine, "_asked", lambda *command: config)
    jobs = [Named(key) for key in "abcde"]
    engine = SlurmEngine(tmp_path, {"slurm_array_parallelism": 7})
    assert engine._submit(jobs) == ["2_0", "2_1", "3_0", "3_1", "4_0"]
    assert submitted == [2, ["a", "b"], ["c", "d"], ["e"]]


def test_tasks_of_an_earlier_command_are_waited_for_and_not_submitted_again(tmp_path, monkeypatch):
    (tmp_path / "tasks.json").write_text(json.dumps({"a": "7_0", "b": "7_1"}))
    answers = iter([{"7_0"}, {"7_0", "8"}, set()])
    asked = []
    monkeypatch.setattr(slurm_engine, "_queue", lambda: next(answers))
    monkeypatch.setattr(
        SlurmEngine, "_submit", lambda self, jobs: [asked.append(j.key) or "8" for j in jobs]
    )
    done = SlurmEngine(tmp_path, poll=0, patience=0)([Named("a"), Named("b")])
    assert sorted(job.key for job in done) == ["a", "b"]
    assert asked == ["b"]  # its task is gone
