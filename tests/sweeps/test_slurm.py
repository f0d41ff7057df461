"""Sweeps on a real Slurm: one node, started here, on the loopback device."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import uuid
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import torch
import yaml

from helpers import UserError
from helpers.models.shapes import random_model
from helpers.paths import FIGURES, REPOSITORY, RUNS
from helpers.results.store import ResultsStore
from helpers.sweeps import engines
from helpers.sweeps.drive import run_file, run_sweep, status
from helpers.sweeps.engines import slurm_engine
from tests.sweeps.conftest import CASE_IDS, stored
from tests.sweeps.one_node import NoSlurmError, one_node_slurm

pytestmark = pytest.mark.slow

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
    file, folder = tmp_path / "mine.yaml", tmp_path / "sweep"
    where = str(results.relative_to(REPOSITORY))
    sweep = {
        "models": [str(tiny_folder)],
        "datasets": ["peak-mini-cf"],
        "editors": ["rome"],
        "records": 4,
        "shard": 2,
        "params": {"results": where, "corpus": "self-8x32", "preset": "generic"},
        "slurm": OPTIONS,
    }
    file.write_text(yaml.safe_dump(sweep))
    figures_before = {path: path.stat().st_mtime_ns for path in FIGURES.glob("*.*")}
    lines, failed = run_file(file, engine="slurm", folder=folder)
    assert not failed, "\n".join(lines)
    assert {path: path.stat().st_mtime_ns for path in FIGURES.glob("*.*")} == figures_before
    assert "4 runs: 4 done" in lines
    assert "AFF_hard" in (folder / "tables.csv").read_text()
    # What the shards share, two tasks of one array, and the table.
    scripts = [path.read_text() for path in (folder / "slurm").rglob("*submission.sh")]
    assert sorted(len(re.findall(r"--array=(\S+)", script)) for script in scripts) == [0, 0, 1]
    (whole,) = folder.rglob("*_table-*/notebook.ipynb")
    outputs = [o for c in nbformat.read(whole, as_version=4).cells for o in c.get("outputs", [])]
    assert any("4 records" in o.get("data", {}).get("text/plain", "") for o in outputs)
    stores = [json.loads((path / "settings.json").read_text()) for path in results.iterdir()]
    tables = [ResultsStore(results).open(settings).read() for settings in stores]
    assert [table["case_id"].nunique() for table in tables] == [4, 4]  # before and after


def test_tasks_out_of_time_are_put_back_and_killed_ones_resume(cluster, toy, tmp_path, monkeypatch):
    groups = toy("kn", "rect", "mend")
    monkeypatch.setattr(engines, "POLL", 0.5)
    monkeypatch.setattr(engines, "PATIENCE", 3)
    engine = slurm_engine(tmp_path / "slurm", OPTIONS)
    run_sweep(groups, engine)
    _, killed, late, failed, table = status(groups).itertuples()
    assert killed.state == "unfinished"
    assert late.state == "done"  # as the same task, which Slurm put back
    assert failed.error == "ValueError: no network for this model:\ntrain one first"
    assert table.state == "waiting"
    run_sweep(groups, engine, resume=True)
    for method in ("kn", "rect"):
        assert stored(tmp_path, method) == CASE_IDS


def test_without_slurm_the_remedy_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(engines.shutil, "which", lambda name: None)
    with pytest.raises(UserError, match="--engine local"):
        list(slurm_engine(tmp_path, {})([]))


def test_jobs_take_nothing_from_the_job_a_sweep_is_started_in(tmp_path, monkeypatch):
    outer = {
        "SLURM_NTASKS": "3",
        "SBATCH_PARTITION": "x",
        "SUBMITIT_EXECUTOR": "slurm",
        "RANK": "2",
    }
    kept = {"SLURM_CONF": "/etc/slurm.conf", "MINE": "1"}
    for name, value in (outer | kept).items():
        monkeypatch.setenv(name, value)
    seen = {}

    def map_array(task, jobs):
        seen.update(os.environ)
        return [SimpleNamespace(job_id="1_0") for _ in jobs]

    executor = SimpleNamespace(update_parameters=lambda **_: None, map_array=map_array)
    monkeypatch.setattr(engines.submitit, "AutoExecutor", lambda *_, **__: executor)
    assert engines._submit([None], tmp_path, OPTIONS) == ["1_0"]
    assert kept.items() <= seen.items()
    assert not outer.keys() & seen.keys()
    assert outer.items() <= os.environ.items()


@pytest.fixture
def played(tmp_path, monkeypatch):
    """Runs jobs on a played Slurm, whose queue gives these answers; returns what was submitted."""

    def play(answers, *keys):
        submitted, answers = [], iter(answers)

        def submit(jobs, folder, options):
            submitted.extend(job.key for job in jobs)
            return [f"8_{number}" for number in range(len(jobs))]

        monkeypatch.setattr(engines.shutil, "which", str)
        monkeypatch.setattr(engines, "_queue", lambda: next(answers))
        monkeypatch.setattr(engines, "_submit", submit)
        monkeypatch.setattr(engines, "POLL", 0)
        monkeypatch.setattr(engines, "PATIENCE", 0)
        unwritten = SimpleNamespace(outcome=lambda: None)
        jobs = [SimpleNamespace(key=key, run=unwritten) for key in keys]
        done = slurm_engine(tmp_path, {})(jobs)
        assert sorted(job.key for job in done) == list(keys)
        assert next(answers, "none left") == "none left"
        return submitted

    return play


def test_a_silent_scheduler_is_not_taken_for_the_end_of_all_jobs(played):
    """No answer, the job is there, it is gone: it is yielded after the last only."""
    assert played([set(), None, {"8_0"}, set()], "a") == ["a"]


def test_tasks_of_an_earlier_command_are_waited_for_and_not_submitted_again(played, tmp_path):
    (tmp_path / "tasks.json").write_text(json.dumps({"a": "7_0", "b": "7_1"}))
    assert played([{"7_0"}, {"7_0", "8_0"}, set()], "a", "b") == ["b"]  # its task is gone
