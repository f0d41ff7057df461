"""What docs/sweeps.md shows works."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import yaml

from helpers import __version__
from helpers.execute import RunRow, record
from helpers.paths import PARAMS, REPOSITORY
from helpers.sweeps import drive, engines
from helpers.sweeps.matrix import Job, Sweep

TEXT = (REPOSITORY / "docs" / "sweeps.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    return found


def test_the_sweep_file_is_valid():
    assert Sweep(**yaml.safe_load(block("yaml"))).shard == 500


def test_the_ray_recipe(tmp_path, monkeypatch, capsys):
    """Ray's three calls are stood in for, and a run is a row that says it is done."""

    def pretend(job: Job) -> None:
        planned = job.planned
        planned.output_folder.mkdir(parents=True)
        row = RunRow("", "", "", "", 1.0, "done", "", __version__)
        record(planned, row)

    def remote(**options: object):
        return lambda function: SimpleNamespace(remote=lambda job: (function(job), object())[1])

    ray = SimpleNamespace(remote=remote, wait=lambda waiting: (waiting[:1], waiting[1:]))
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(engines, "run_job", pretend)
    monkeypatch.setattr(drive, "RUNS", tmp_path)
    code = block("python").replace("params/sweeps/mine.yaml", str(PARAMS / "sweeps" / "quick.yaml"))
    exec(code, {})
    assert capsys.readouterr().out.splitlines()[-1] == "6 done"
