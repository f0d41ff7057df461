"""A GPU measured by one command, in steps that each end well inside ten minutes.

    python -m benchmarks.gpu --minutes 9           # as often as it takes: done steps are skipped
    python -m benchmarks.gpu --summary             # the table for docs/performance.md
    python -m benchmarks.gpu --device cpu --tiny   # the same steps with tiny shapes

Every measurement is a JSON line of its own, written at once. A step runs in a process of its own, so
that its memory goes with it; one that fails or takes too long leaves a line that says so, and the next
one runs. A file that is brought back to another machine goes on where it stopped: measurements in it
of such a machine are not made again, and a step that failed is tried anew.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import transformers
import typer

from benchmarks.gpu_steps import STEPS, Setting, Step
from helpers.paths import REPOSITORY, RUNS

Line = dict[str, Any]
DONE = "done"
GRACE = 15.0  # seconds kept for the summary


def main(
    file: Annotated[Path, typer.Option(help="JSON lines, added to")] = RUNS / "gpu.jsonl",
    steps: Annotated[str, typer.Option(help="names, with commas; default: all")] = "",
    minutes: Annotated[float, typer.Option(help="start no step that might not end by then")] = 0,
    device: str = "cuda",
    dtype: str = "bfloat16",
    records: int = 16,
    plain: Annotated[int, typer.Option(help="records of the plain path")] = 2,
    tiny: Annotated[bool, typer.Option(help="the shapes' depth, nothing of their size")] = False,
    summary: Annotated[bool, typer.Option(help="print the table and measure nothing")] = False,
    one: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Measure step by step, and print what was found as a table."""
    setting = Setting(device, dtype, records, plain, tiny)
    chosen = _chosen(steps)
    file.parent.mkdir(parents=True, exist_ok=True)
    if one:
        measure(_chosen(one)[0], setting, file)
        return
    if not summary:
        ends = time.monotonic() + 60 * minutes - GRACE if minutes else float("inf")
        _all(chosen, setting, file, ends)
    print(table(read(file)))


def _chosen(names: str) -> list[Step]:
    known = {step.name: step for step in STEPS}
    wanted = [name.strip() for name in names.split(",") if names]
    if unknown := [name for name in wanted if name not in known]:
        raise typer.BadParameter(f"no step {unknown}; known: {', '.join(known)}")
    return [known[name] for name in wanted] or list(STEPS)


def _all(chosen: Sequence[Step], setting: Setting, file: Path, ends: float) -> None:
    """Run the steps that are not done, each in a process of its own with its time limit."""
    for step in chosen:
        if is_done(step, setting, read(file)):
            print(f"{step.name}: done before", flush=True)
        elif time.monotonic() + limit(step, setting) > ends:
            print(f"{step.name}: may take {limit(step, setting)} s: left for the next call")
        else:
            print(f"{step.name}: at most {limit(step, setting)} s", flush=True)
            if problem := _in_its_own_process(step, setting, file):
                write(file, _line(step, setting) | {"error": problem})
                print(f"{step.name} failed: {problem[-300:]}", flush=True)


def limit(step: Step, setting: Setting) -> int:
    """Seconds that a step may take: its own on a GPU, ten times as many on a CPU."""
    return step.seconds * (10 if setting.device == "cpu" else 1)


def _in_its_own_process(step: Step, setting: Setting, file: Path) -> str:
    """What went wrong, if anything."""
    command = [sys.executable, "-m", "benchmarks.gpu", "--one", step.name, "--file", str(file)]
    command += ["--device", setting.device, "--dtype", setting.dtype]
    command += ["--records", str(setting.records), "--plain", str(setting.plain)]
    command += ["--tiny"] if setting.tiny else []
    try:
        run = subprocess.run(
            command,
            cwd=REPOSITORY,
            stderr=subprocess.PIPE,
            text=True,
            timeout=limit(step, setting),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"took longer than its {limit(step, setting)} s"
    return run.stderr[-2000:] or f"ended with code {run.returncode}" if run.returncode else ""


def measure(step: Step, setting: Setting, file: Path) -> None:
    """Run one step here; its measurements are written as they come, then that it is done."""
    began = time.monotonic()
    for measurement in step.run(setting):
        write(file, _line(step, setting) | measurement)
        print(f"  {measurement}", flush=True)
    write(file, _line(step, setting) | {DONE: True, "seconds": time.monotonic() - began})


def _line(step: Step, setting: Setting) -> Line:
    """What every line says: the step, what it ran with and on."""
    return {
        "step": step.name,
        "setting": _what(setting),
        "machine": _machine(setting),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "at": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


def _machine(setting: Setting) -> str:
    on_gpu = setting.device.startswith("cuda") and torch.cuda.is_available()
    return torch.cuda.get_device_name() if on_gpu else platform.processor() or "CPU"


def _what(setting: Setting) -> list[Any]:
    return [setting.device, setting.dtype, setting.records, setting.plain, setting.tiny]


def is_done(step: Step, setting: Setting, lines: Iterable[Line]) -> bool:
    """Whether the step was finished with this setting, on a machine of this kind."""
    wanted = {"step": step.name, "setting": _what(setting), "machine": _machine(setting)}
    return any(line.get(DONE) and wanted.items() <= line.items() for line in lines)


def write(file: Path, line: Line) -> None:
    """Add one line; it is on the disk when this returns."""
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line, ensure_ascii=False) + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def read(file: Path) -> list[Line]:
    """The lines so far; one that was cut off in the middle is left out."""
    found = []
    for text in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            found.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return found


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
    done = {line["step"] for line in lines if line.get(DONE)}
    failed = {line["step"]: line["error"] for line in lines if "error" in line}
    rows += [
        f"| {step} | failed: {error.strip().splitlines()[-1]} |"
        for step, error in failed.items()
        if step not in done
    ]
    return "\n".join(rows)


def _in_words(line: Line) -> str:
    """A line's own numbers, with three digits."""
    known = {"step", "setting", "machine", "torch", "transformers", "at", "name"}
    own = {key: value for key, value in line.items() if key not in known}
    words = {k: f"{v:.3g}" if isinstance(v, float) else v for k, v in own.items()}
    return ", ".join(f"{key} {value}" for key, value in words.items())


if __name__ == "__main__":
    typer.run(main)
