"""The command line: every verb answers, mistakes exit with one clear line."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from helpers.cli import app

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
        (["run", "no/such.yaml"], "notebook"),
        (["publish", "no/such.yaml"], "no params file"),
        (["fetch", "no-such-data"], "known: smollm2-135m"),
    ],
)
def test_mistakes_exit_with_one_line(arguments, message):
    result = runner.invoke(app, arguments)
    assert result.exit_code == 1
    assert result.output.startswith("error: ")
    assert message in result.output
