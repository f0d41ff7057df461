"""Everything that touches a model runs on another device than the CPU, with the same numbers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from torch.utils import backend_registration

from helpers.paths import REPOSITORY


@pytest.mark.parametrize("device", ["elsewhere", "cuda"])
def test_every_editor_scorer_and_locator_on_another_device(device):
    """In a process of its own: the make-believe device changes torch for good."""
    if not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
        pytest.skip("this torch has no Python backends")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU on this machine")
    command = [sys.executable, "-m", "tests.devices.checks", device]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    done = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert len(done) > 40
    assert not (problems := [d for d in done if d["problem"]]), problems
