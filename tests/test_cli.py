"""The command line: every verb answers, mistakes exit with one clear line."""

from __future__ import annotations

import os
import re
import signal
import time

import pytest
import yaml
from typer.testing import CliRunner

from helpers import paths
from helpers.cli import app
from helpers.models import weights as estimate
from helpers.paths import PARAMS
from helpers.sweeps import drive
from helpers.sweeps.drive import sole_use

runner = CliRunner()


def test_doctor_reports_versions_and_data():
    result = runner.invoke(app, ["doctor"])
    assert result.exit_code == 0
    assert "torch" in result.output
    assert "peak-cf" in result.output


def test_figure_lists_and_refuses_unknown_names():
    assert runner.invoke(app, ["figure", "--list"]).exit_code == 0
    result = runner.invoke(app, ["figure", "no-such-figure"])
    assert result.exit_code == 1
    assert "figure --list" in result.output


def test_several_figures_are_drawn_at_a_time(tmp_path):
    result = runner.invoke(
        app, ["figure", "05_reading", "06_recalled_links", "--folder", str(tmp_path)]
    )
    names = ("05_reading", "06_recalled_links")
    drawn = [tmp_path / f"{name}.{kind}" for name in names for kind in ("png", "svg")]
    assert result.output.splitlines() == list(map(str, drawn))
    assert all(map(os.path.exists, drawn))


def test_a_table_as_csv_is_told_what_it_is_of_beside_it():
    result = runner.invoke(app, ["table", "undo", "--format", "csv"])
    assert result.stdout.startswith("method,state,")
    assert result.stderr.startswith("What returns when an edit is edited back\nours: smollm2-135m")
    assert "intervals and tests by relation" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "no/such.yaml"], "no params file"),
        (["publish", "no/such.yaml"], "no params file"),
        (["fetch", "no-such-data"], "known: smollm2-135m"),
        (["sweep", "no/such.yaml"], "see params/sweeps"),
    ],
)
def test_mistakes_exit_with_one_line(arguments, message):
    result = runner.invoke(app, arguments)
    assert (result.exit_code, result.output[:7]) == (1, "error: ")
    assert message in result.output


def changed_sweep(folder, change):
    """The packaged sweep with other entries, as a file."""
    content = yaml.safe_load((PARAMS / "sweeps" / "quick.yaml").read_text("utf-8"))
    path = folder / "changed.yaml"
    path.write_text(yaml.safe_dump({**content, **change}), "utf-8")
    return path


def test_a_dry_run_lists_runs_edits_and_memory_and_runs_nothing(tmp_path):
    arguments = ["sweep", str(PARAMS / "sweeps" / "quick.yaml"), "--dry-run"]
    result = runner.invoke(app, [*arguments, "--folder", str(tmp_path)])
    assert result.exit_code == 0
    assert "6 runs: 6 waiting\n16 of 16 edits left" in result.output
    assert re.search(
        r"model smollm2-135m: weights in float32 0\.5 GiB, [\d.]+ GiB free on cpu\n"
        r"peak memory of smollm2-135m: about [\d.]+ GiB by an estimate",
        result.output,
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"params": {"preset": "x"}}, "no preset 'x'"),
        ({"params": {"corpus": "x"}}, "no corpus 'x'"),
        ({"params": {"device": "tpu"}}, "device 'tpu' is neither"),
        ({"models": ["nosuch"]}, "no model 'nosuch'"),
        ({"datasets": ["nosuch"]}, "nosuch: neither a file nor a PEAK data set"),
        ({"datasets": ["peak-cf[5000:]"]}, "the slice is empty, peak-cf has 1962 records"),
        ({"editors": ["rome", "nosuch"]}, "no method 'nosuch'"),
    ],
)
def test_a_dry_run_refuses_what_no_machine_can_run(tmp_path, monkeypatch, change, message):
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path / "cache"))  # no official data here
    monkeypatch.setenv("HELPERS_DATA", "")
    path = changed_sweep(tmp_path, change)
    result = runner.invoke(app, ["sweep", str(path), "--dry-run"])
    assert (result.exit_code, message in result.output) == (1, True), result.output


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"params": {"preset": "paper"}, "models": ["shape:gpt2-xl"], "editors": ["kn", "mend"]},
            "no MEND network",
        ),
        ({"datasets": ["peak-cf"]}, "peak-cf: .*; save https:.*PEAK_counter.json"),
        ({"params": {"device": "cuda"}}, "device 'cuda': torch sees no GPU"),
    ],
)
def test_a_sweep_refuses_at_once_what_a_dry_run_lists(tmp_path, monkeypatch, change, message):
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HELPERS_DATA", "")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    path, runs = changed_sweep(tmp_path, change), tmp_path / "runs"
    assert runner.invoke(app, ["sweep", str(path), "--dry-run"]).exit_code == 0
    result = runner.invoke(app, ["sweep", str(path), "--folder", str(runs)])
    assert result.exit_code == 1
    assert re.search(message, result.output)
    assert not runs.exists()


def test_sigterm_ends_a_sweep_as_an_interrupt_does(monkeypatch):
    def terminated(*_, **__):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    monkeypatch.setattr(drive, "run_file", terminated)
    before = signal.getsignal(signal.SIGTERM)
    result = runner.invoke(app, ["sweep", str(PARAMS / "sweeps" / "quick.yaml")])
    assert result.exit_code == 130
    assert result.output == "stopped; what is finished is kept, resume with --resume\n"
    assert signal.getsignal(signal.SIGTERM) == before


def test_how_far_a_sweep_is_can_be_asked_at_any_time(tmp_path):
    arguments = ["sweep", str(PARAMS / "sweeps" / "quick.yaml"), "--status", "--folder"]
    with sole_use(tmp_path):
        result = runner.invoke(app, [*arguments, str(tmp_path)])
        assert result.exit_code == 0
        assert "6 waiting\n16 of 16 edits left\na sweep is running" in result.output
    assert "no sweep is running" in runner.invoke(app, [*arguments, str(tmp_path)]).output
    never = runner.invoke(app, [*arguments, str(tmp_path / "other")]).output
    assert ("was never started" in never, "6 waiting" in never) == (True, False)


def test_a_dry_run_says_where_memory_will_not_do(tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "free_bytes", lambda device: 2**30)  # one model's, not three's
    sweep = str(PARAMS / "sweeps" / "quick.yaml")
    arguments = ["sweep", sweep, "--dry-run", "--folder", str(tmp_path)]
    one, three = (runner.invoke(app, [*arguments, "--workers", n]).output for n in ("1", "3"))
    assert "too little" not in one
    assert "0.5 GiB for each of 3 workers, 1.0 GiB free on cpu; too little" in three
    elsewhere = runner.invoke(app, [*arguments, "--engine", "slurm"]).output
    assert "weights in float32 0.5 GiB\n" in elsewhere
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {"avx512_bf16": False})
    assert "slower than fp32" in estimate.memory_in_words("smollm2-135m", "bfloat16", "cpu")


def test_data_of_ones_own_is_published_by_name(tmp_path):
    file, own = tmp_path / "03_editing_runs.yaml", f"{paths.PACKAGED}/peak/peak-mini-cf.json"
    file.write_text(f"dataset: {own}[0:1]\n", "utf-8")
    result = runner.invoke(app, ["publish", str(file)])
    assert (result.exit_code, "name the run with --name" in result.output) == (1, True)
