"""A sweep's folder is its own while it runs, and free again however it ended."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers.paths import PARAMS
from helpers.sweeps.command import run_file
from helpers.sweeps.lock import sole_use
from helpers.sweeps.matrix import SweepError

FILE = PARAMS / "sweeps" / "quick.yaml"
# A sweep whose runs wait for a file, in a process of its own.
_WAITING = """
import sys, time
from pathlib import Path
from helpers.sweeps.command import run_file

def engine(jobs):
    Path(sys.argv[3]).touch()
    while True:
        time.sleep(0.05)
        yield from ()

run_file(Path(sys.argv[1]), engine=engine, folder=Path(sys.argv[2]))
"""


@pytest.fixture
def running(tmp_path):
    """A running sweep: its folder and its process."""
    folder, begun = tmp_path / "sweep", tmp_path / "begun"
    command = [sys.executable, "-c", _WAITING, str(FILE), str(folder), str(begun)]
    process = subprocess.Popen(command)
    try:
        end = time.monotonic() + 120
        while not begun.exists():
            assert process.poll() is None, "the first sweep did not start"
            assert time.monotonic() < end
            time.sleep(0.05)
        yield folder, process
    finally:
        process.kill()
        process.wait()


def content(folder: Path) -> dict[Path, tuple[int, bytes]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def nothing(jobs):
    """An engine whose workers all die at once."""
    yield from jobs


def test_a_second_sweep_in_a_folder_is_refused_and_touches_nothing(running):
    folder, _ = running
    before = content(folder)
    command = [sys.executable, "-m", "helpers", "sweep", str(FILE), "--folder", str(folder)]
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert f"another sweep is running in {folder}" in second.stderr
    assert "--folder" in second.stderr
    assert content(folder) == before
    lines, _ = run_file(FILE, folder=folder, dry_run=True)  # looking is allowed
    assert lines[1].startswith("6 runs")
    run_file(FILE, engine=nothing, folder=folder.with_name("another"))


def test_a_killed_sweep_leaves_its_folder_free(running):
    folder, process = running
    process.kill()
    process.wait()
    lines, failed = run_file(FILE, engine=nothing, folder=folder)
    assert failed
    assert lines[-1] == "5 failed, 1 waiting"


def test_a_sweep_that_fails_leaves_its_folder_free(tmp_path):
    def broken(jobs):
        raise RuntimeError("the pool is gone")
        yield

    with pytest.raises(RuntimeError, match="the pool is gone"):
        run_file(FILE, engine=broken, folder=tmp_path)
    with sole_use(tmp_path):
        pass


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SweepError, match=r"cannot write to .*another --folder"):
        run_file(FILE, engine=nothing, folder=tmp_path / "file" / "sweep")
