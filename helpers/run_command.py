"""What ``python -m helpers run`` does: several notebooks, some at a time, told line by line."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.execute import PlannedRun, RunError, checked_plan, execute
from helpers.paths import RUNS
from helpers.processes import each_alone, shared_cores
from helpers.sweeps.bound import end_with_starter

_USUAL = re.compile(r"^# Usual time: (.+)$", re.M)


@dataclass(frozen=True)
class _Task:
    """A checked run and the folder that its manifest row goes to; small enough for a process."""

    planned: PlannedRun
    folder: Path

    @property
    def name(self) -> str:
        return self.planned.notebook.stem


def run_files(
    params_files: Sequence[Path],
    *,
    folder: Path | None = None,
    workers: int = 1,
    tell: Callable[[str], None],
) -> bool:
    """Execute the notebooks of params files; one that fails does not stop the others.

    All files are checked before the first notebook starts. Each notebook runs in a process of its own.

    Args:
        params_files: begun in this order.
        folder: where executed notebooks go; default: ``runs``.
        workers: notebooks at a time; each gets its share of the cores.
        tell: gets what is to be said beside the processes' own lines.

    Returns:
        whether all of them ended well.

    Raises:
        ParamsError: a params file does not fit its notebook, or holds wrong values; nothing is run.
        ValueError: fewer than one worker.
    """
    folder = folder or RUNS
    environments = shared_cores(workers)
    tasks = [_Task(checked_plan(file, folder=folder), folder) for file in params_files]
    failed = []
    for task, code in each_alone(_run, tasks, environments):
        if code < 0:
            tell(
                f"error: {task.name}: its process was killed (signal {-code}), maybe out of memory"
            )
        if code:
            failed.append(task.name)
    if len(tasks) > 1:
        tell(f"{len(tasks) - len(failed)} of {len(tasks)} notebooks ended well")
    if failed:
        tell(f"failed: {', '.join(failed)}")
    return not failed


def usual_time(params_file: Path) -> str:
    """What the file's comment ``# Usual time: …`` says; empty where it says nothing."""
    found = _USUAL.search(params_file.read_text(encoding="utf-8"))
    return found[1] if found else ""


def _run(task: _Task) -> None:
    """What a process does: it says how the run goes, and ends with code 1 where it fails."""
    end_with_starter()
    usual = usual_time(task.planned.params_file)
    _say(f"{task.name}: started" + (f", usually {usual}" if usual else ""))
    try:
        row = execute(
            task.planned, folder=task.folder, tell=lambda line: _say(f"{task.name}: {line}")
        )
    except RunError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        raise SystemExit(1) from error
    if drawn := sorted(file.stem for file in task.planned.figures.glob("*.png")):
        _say(f"{task.name}: {len(drawn)} figures in {task.planned.figures}: {', '.join(drawn)}")
    if count := len(list(task.planned.tables.glob("*.csv"))):
        _say(f"{task.name}: {count} tables as CSV files in {task.planned.tables}")
    _say(f"{task.name}: {row.status} in {row.seconds:.0f} s -> {row.output}")


def _say(line: str) -> None:
    print(line, flush=True)
