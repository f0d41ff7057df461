"""Several notebooks with one command: none stops another, progress is told, Ctrl-C ends them all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import nbformat
import pytest

from helpers import UserError, params
from helpers.execute import run_files
from helpers.paths import FIGURES, NOTEBOOKS
from helpers.processes import environment

CELL = 'act: str = "print"  # what the notebook does'
BODY = """import os, pathlib, time
from helpers.processes import Progress
if act == "fail":
    raise ValueError("no such thing")
if act == "die":
    os.kill(os.getppid(), 9)
    time.sleep(60)
if act == "wait":
    time.sleep(2.2)
if act == "hang":
    time.sleep(600)
if act == "show":
    for kind, ending in (("TABLES", "csv"), ("FIGURES", "png")):
        place = pathlib.Path(os.environ["HELPERS_" + kind])
        place.mkdir(exist_ok=True)
        (place / f"01-one.{ending}").touch()
    progress = Progress(9, started_at=time.monotonic() - 12, reported_at=time.monotonic() - 11)
    progress.at(6)
    progress.at(7)
if act == "interpreter":
    import sys
    print(act, sys.executable)
print(act, os.environ.get("OMP_NUM_THREADS"))"""


def test_environment_variables_are_put_back(monkeypatch):
    monkeypatch.setenv("HELPERS_TRY_SET", "before")
    monkeypatch.delenv("HELPERS_TRY_UNSET", raising=False)
    variables = {"HELPERS_TRY_SET": "in", "HELPERS_TRY_UNSET": "in"}
    with suppress(KeyError), environment(variables):
        assert os.environ["HELPERS_TRY_SET"] == os.environ["HELPERS_TRY_UNSET"] == "in"
        raise KeyError
    assert os.environ["HELPERS_TRY_SET"] == "before"
    assert "HELPERS_TRY_UNSET" not in os.environ


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Notebooks 01 to 04, all alike, and a folder for params files."""
    cells = [
        nbformat.v4.new_code_cell(CELL, metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell(BODY),
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebooks = tmp_path / "notebooks"
    notebooks.mkdir()
    for number in range(1, 5):
        made = nbformat.v4.new_notebook(cells=cells, metadata=kernel)
        nbformat.write(made, notebooks / f"0{number}_try.ipynb")
    monkeypatch.setattr(params, "NOTEBOOKS", notebooks)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    return tmp_path


def files(folder: Path, *acts: str) -> list[Path]:
    made = [folder / f"0{number}_try.yaml" for number in range(1, len(acts) + 1)]
    for file, act in zip(made, acts, strict=True):
        file.write_text(f"# Usual time: 3 s.\nact: {act}\n")
    return made


def test_the_kernel_is_this_interpreter_without_start_up_files(folder, capfd, monkeypatch):
    """Others of that name, as on a machine of several environments, are left alone."""
    other = folder / "jupyter" / "kernels" / "python3"
    other.mkdir(parents=True)
    spec = {"argv": ["/bin/false", "{connection_file}"], "display_name": "", "language": "python"}
    (other / "kernel.json").write_text(json.dumps(spec))
    startup = folder / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00.py").write_text("raise SystemExit('of the user')")
    (startup / "01.py").write_text("print = None")
    monkeypatch.setenv("JUPYTER_PATH", str(folder / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(folder / "ipython"))
    (mine,) = files(folder, "interpreter")
    assert run_files([mine], folder=folder / "runs", workers=1, tell=str)
    (executed,) = (folder / "runs").rglob("notebook.ipynb")
    assert f"interpreter {sys.executable}\\n" in executed.read_text()


@pytest.mark.slow
def test_one_that_fails_or_dies_does_not_stop_the_others(folder, capfd):
    told: list[str] = []
    mine = files(folder, "fail", "die", "wait", "print")
    assert not run_files(mine, folder=folder / "runs", workers=2, tell=told.append)
    assert any("02_try: its process was killed (signal 9)" in line for line in told)
    well, _, failed = told[-1].partition("; failed: ")
    assert well == "2 of 4 notebooks ended well"
    assert sorted(failed.split(", ")) == ["01_try", "02_try"]
    out, err = capfd.readouterr()
    assert "01_try: started, usually 3 s." in out
    assert "04_try: done in" in out
    assert "ValueError: no such thing" in err


def test_nothing_runs_where_one_file_is_wrong(folder, capfd):
    mine = files(folder, "print", "print")
    mine[1].write_text("akt: print\n")
    with pytest.raises(UserError, match="no parameter 'akt'"):
        run_files(mine, folder=folder / "runs", workers=2, tell=print)
    with pytest.raises(ValueError, match="at least 1"):
        run_files(mine, folder=folder / "runs", workers=0, tell=print)
    assert not (folder / "runs").exists()
    assert capfd.readouterr().out == ""


def test_figures_and_tables_stand_beside_the_run_and_progress_is_told(folder, capfd):
    """Never among the committed ones."""
    committed = {
        path: path.stat().st_mtime_ns for path in (*FIGURES.rglob("*"), *NOTEBOOKS.glob("*"))
    }
    assert run_files(files(folder, "show"), folder=folder / "runs", workers=1, tell=print)
    out, _ = capfd.readouterr()
    (made,) = (folder / "runs" / "01_try").iterdir()
    assert list((made / "figures").iterdir())
    assert list((made / "tables").iterdir())
    assert f"-> {made / 'notebook.ipynb'}, with figures and tables" in out
    told = "01_try: 6 of 9 records, 30.0 a minute, 6 s left"
    assert [line for line in out.splitlines() if "records" in line] == [told]
    assert {path: path.stat().st_mtime_ns for path in committed} == committed


_INTERRUPTED = """
import sys
from pathlib import Path
from types import SimpleNamespace
from helpers import params

if __name__ == "__main__":
    params.NOTEBOOKS = Path(sys.argv[1])
    from helpers.cli import app
    app(["run", *sys.argv[2:]])
"""


@pytest.mark.slow
def test_an_interrupt_ends_every_notebook_with_one_line(folder):
    script = folder / "interrupted.py"
    script.write_text(_INTERRUPTED)
    arguments = [str(script), str(folder / "notebooks"), *map(str, files(folder, "hang", "hang"))]
    arguments += ["--workers", "2", "--folder", str(folder / "runs")]
    process = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    begun = [process.stdout.readline() for _ in range(2)]
    assert all("started" in line for line in begun)
    time.sleep(3)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines() == ["stopped; finished records are kept, the same command resumes"]
