"""A GPU measured by one command, in steps that each end well inside ten minutes.

    python -m benchmarks.gpu --minutes 9           # as often as it takes: done steps are skipped
    python -m benchmarks.gpu --summary             # the table for docs/performance.md
    python -m benchmarks.gpu --device cpu --tiny   # the same steps with tiny shapes

Every measurement is a JSON line of its own, written at once. A step runs in a process of its own, so
that its memory is freed with it; one that fails or takes too long leaves a line with the error, and the
next one runs. A file that is brought back to another machine of the kind resumes where it stopped.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Annotated, Any

import torch
import transformers
import typer

from benchmarks.gpu_steps import STEPS, Setting, Step
from helpers.cli import run_command
from helpers.paths import REPOSITORY, RUNS

Line = dict[str, Any]
SLOWER = 10  # how many times as long a step may take on a CPU


def main(  # noqa: PLR0913 - the options of a command
    file: Annotated[Path, typer.Option(help="JSON lines, added to")] = RUNS / "gpu.jsonl",
    steps: Annotated[str, typer.Option(help="names, with commas; default: all")] = "",
    minutes: Annotated[float, typer.Option(help="start no step that might not end by then")] = 0,
    device: str = "cuda",
    dtype: str = "bfloat16",
    records: int = 16,
    plain: Annotated[int, typer.Option(help="records of the plain path")] = 2,
    tiny: Annotated[bool, typer.Option(help="the shapes' depth, nothing of their size")] = False,
    summary: Annotated[bool, typer.Option(help="print the table and measure nothing")] = False,
    here: Annotated[bool, typer.Option(hidden=True, help="measure in this process")] = False,
) -> None:
    """Measure step by step, and print what was found as a table."""
    setting = Setting(device, dtype, records, plain, tiny)
    wanted = steps.split(",") if steps else [step.name for step in STEPS]
    if unknown := set(wanted) - {step.name for step in STEPS}:
        raise typer.BadParameter(f"no step {unknown}; known: {[step.name for step in STEPS]}")
    chosen = [step for step in STEPS if step.name in wanted]
    file.parent.mkdir(parents=True, exist_ok=True)
    if here:
        measure(chosen[0], setting, file)
        return
    ends = time.monotonic() + 60 * minutes - 15 if minutes else float("inf")
    for step in chosen if not summary else ():
        print(f"{step.name}: {_made(step, setting, file, ends)}", flush=True)
    print(table(read(file)))


def _made(step: Step, setting: Setting, file: Path, ends: float) -> str:
    """Run a step that is not done in a process of its own; what came of it."""
    head = _head(step, setting)
    kept = {key: head[key] for key in ("step", "setting", "machine")}
    if any(line.get("done") and kept.items() <= line.items() for line in read(file)):
        return "done before"
    limit = step.seconds * (SLOWER if setting.device == "cpu" else 1)
    if time.monotonic() + limit > ends:
        return f"may take {limit} s: left for the next call"
    command = [sys.executable, "-m", "benchmarks.gpu", "--here", "--steps", step.name]
    command += ["--file", str(file), "--device", setting.device, "--dtype", setting.dtype]
    command += ["--records", str(setting.records), "--plain", str(setting.plain)]
    command += ["--tiny"] if setting.tiny else []
    how: dict[str, Any] = {"cwd": REPOSITORY, "stderr": subprocess.PIPE, "text": True}
    try:
        run = subprocess.run(command, timeout=limit, check=False, **how)
        problem = run.stderr[-2000:] or f"exit code {run.returncode}" if run.returncode else ""
    except subprocess.TimeoutExpired:
        problem = f"took longer than its {limit} s"
    if problem:
        write(file, head | {"error": problem})
    return f"failed: {problem[-300:]}" if problem else "done"


def measure(step: Step, setting: Setting, file: Path) -> None:
    """Run one step here; its measurements are written as they are made, then that it is done."""
    began, head = time.monotonic(), _head(step, setting)
    for measurement in step.run(setting):
        write(file, head | measurement)
        print(f"  {measurement}", flush=True)
    write(file, head | {"done": True, "seconds": time.monotonic() - began})


def _head(step: Step, setting: Setting) -> Line:
    """What every line begins with: the step, what it ran with and on."""
    on_gpu = setting.device.startswith("cuda") and torch.cuda.is_available()
    return {
        "step": step.name,
        "setting": list(astuple(setting)),
        "machine": torch.cuda.get_device_name() if on_gpu else platform.processor() or "CPU",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def write(file: Path, line: Line) -> None:
    """Add one line."""
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line, ensure_ascii=False) + "\n")


def read(file: Path) -> list[Line]:
    """The lines so far, without one that was cut off in the middle."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def table(lines: Sequence[Line]) -> str:
    """The measurements as Markdown, the newest of each, and the steps that did not end."""
    newest = {(line["step"], line["name"]): line for line in lines if "name" in line}
    if not newest:
        return "nothing was measured yet"
    last = list(newest.values())[-1]
    device, dtype, *_, tiny = last["setting"]
    shape = "tiny shapes" if tiny else "the shape of LLaMA-2 7B, random weights"
    head = f"{last['machine']} ({device}), {dtype}, {shape}, torch {last['torch']}, transformers"
    rows = [f"{head} {last['transformers']}.", "", "| | |", "|---|---|"]
    rows += [f"| {line['name']} | {_in_words(line)} |" for line in newest.values()]
    ended = {line["step"]: line.get("error", "") for line in lines if "name" not in line}
    rows += [f"| {step} | failed: {e.splitlines()[-1]} |" for step, e in ended.items() if e]
    return "\n".join(rows)


def _in_words(line: Line) -> str:
    """A line's own numbers, with three digits."""
    known = ("step", "setting", "machine", "torch", "transformers", "name")
    own = ((key, value) for key, value in line.items() if key not in known)
    return ", ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in own)


if __name__ == "__main__":
    run_command(main)
