"""The command line: every verb answers, mistakes exit with one clear line."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from helpers.cli import app
from helpers.paths import PARAMS

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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "no/such.yaml"], "no params file"),
        (["publish", "no/such.yaml"], "no params file"),
        (["fetch", "no-such-data"], "known: smollm2-135m"),
        (["sweep", "no/such.yaml"], "examples are in params/sweeps"),
    ],
)
def test_mistakes_exit_with_one_line(arguments, message):
    result = runner.invoke(app, arguments)
    assert result.exit_code == 1
    assert result.output.startswith("error: ")
    assert message in result.output


def test_a_dry_run_lists_runs_edits_and_memory_and_runs_nothing(tmp_path):
    arguments = ["sweep", str(PARAMS / "sweeps" / "quick.yaml"), "--dry-run"]
    result = runner.invoke(app, [*arguments, "--folder", str(tmp_path)])
    assert result.exit_code == 0
    assert "5 runs, 16 edits; not done yet: 5 runs, 16 edits" in result.output
    assert "smollm2-135m: weights in float32 0.5 GiB" in result.output
    assert not list(tmp_path.rglob("*.ipynb"))
