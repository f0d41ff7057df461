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


_LATE = """
import multiprocessing
from types import SimpleNamespace
from helpers.sweeps.bound import end_with_starter
multiprocessing.parent_process = lambda: SimpleNamespace(pid=GONE)
end_with_starter()
print("goes on")
"""


def test_a_worker_whose_starter_ended_before_it_was_ready_ends(tally):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    late = [sys.executable, "-c", _LATE.replace("GONE", str(gone.pid))]
    done = subprocess.run(late, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    tally("sweep killed while a worker starts: the worker ends", True)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_workers_and_kernels_end_with_a_killed_sweep(tmp_path, tally):
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
            tally("killed sweep: its workers and kernels end", True)
    finally:
        sweep.kill()


_POLLING = """
import os, subprocess, sys, time
from pathlib import Path

child = '''
import os, sys, time
sys.platform = "elsewhere"  # where the kernel does not see to it
from helpers.sweeps.bound import end_with
end_with(os.getppid())
time.sleep(600)
'''
started = subprocess.Popen([sys.executable, "-c", child])
Path(sys.argv[1]).write_text(f"{started.pid} .")
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_worker_that_looks_for_its_parent_ends_with_it(tmp_path, tally):
    place = tmp_path / "pid"
    parent = subprocess.Popen([sys.executable, "-c", _POLLING, str(place)])
    try:
        _until(lambda: place.exists() and place.read_text().endswith("."), 60)
        child = psutil.Process(int(place.read_text().split()[0]))
        # The module is loaded, and the thread runs, once the child has two.
        _until(lambda: child.num_threads() > 1, 60)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        _until(lambda: not _alive(child), 20)
        tally("killed sweep: a worker that polls ends", True)
    finally:
        parent.kill()


def _alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def _until(true: object, patience: float) -> None:
    end = time.monotonic() + patience
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.1)
