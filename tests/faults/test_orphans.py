"""A sweep that is killed leaves no worker and no kernel behind, and its folder is free."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import nbformat
import psutil
import pytest

from helpers.sweeps.lock import sole_use

# The command that hands out one run, by the engine of this machine.
_SWEEP = """
import sys
from pathlib import Path
from helpers.sweeps.jobs import Job, write_params
from helpers.sweeps.local import LocalEngine
from helpers.sweeps.lock import sole_use

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    job = Job("waiting", {}, folder / "waits.ipynb", folder, 1)
    with sole_use(folder):
        write_params(job)
        list(LocalEngine([{}])([job]))
"""
_WAITS = """import os, time
from pathlib import Path

Path("PLACE").write_text(f"{os.getppid()} {os.getpid()}")
time.sleep(600)"""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_workers_and_kernels_end_with_a_killed_sweep(tmp_path):
    pids = tmp_path / "pids"
    cells = [
        nbformat.v4.new_code_cell("seed: int = 0  # none", metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell(_WAITS.replace("PLACE", str(pids))),
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=kernel)
    nbformat.write(notebook, tmp_path / "waits.ipynb")
    script = tmp_path / "sweep.py"
    script.write_text(_SWEEP)
    sweep = subprocess.Popen([sys.executable, str(script), str(tmp_path)])
    try:
        _until(lambda: pids.exists() and len(pids.read_text().split()) == 2, 180)
        children = [psutil.Process(int(pid)) for pid in pids.read_text().split()]
        sweep.send_signal(signal.SIGKILL)
        sweep.wait()
        _until(lambda: not any(_alive(child) for child in children), 20)
        with sole_use(tmp_path):
            pass
    finally:
        sweep.kill()


def _alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def _until(true: object, patience: float) -> None:
    end = time.monotonic() + patience
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.1)
