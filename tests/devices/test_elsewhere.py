"""Everything that touches a model runs on another device than the CPU, with the same numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

from helpers.paths import REPOSITORY

DEVICE = "cuda" if torch.cuda.is_available() else "elsewhere"


@pytest.mark.skipif(
    DEVICE == "elsewhere" and "CI" not in os.environ, reason="no GPU; CI=1 runs it without one"
)
def test_every_editor_scorer_and_locator_on_another_device():
    """In a process of its own: the make-believe device changes torch for good."""
    command = [sys.executable, "-m", "tests.devices.checks", DEVICE]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    done = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert len(done) > 30
    assert not (problems := [d for d in done if d["problem"]]), problems
