"""Headless execution: a params file becomes an executed notebook, a log and a manifest row."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import papermill
import yaml

from helpers import __version__
from helpers.paths import REPOSITORY, RUNS
from helpers.runs.params import notebook_of, read_params

MANIFEST = "manifest.jsonl"
_QUIET = {"TQDM_DISABLE": "1", "TOKENIZERS_PARALLELISM": "false"}


class RunError(RuntimeError):
    """Raised when a notebook fails; names the executed notebook, which is its own log."""


@dataclass(frozen=True)
class ManifestRow:
    """One line of ``runs/manifest.jsonl``."""

    notebook: str
    params_file: str
    output: str
    started: str
    seconds: float
    status: str
    error: str
    helpers_version: str


def run(params_file: Path, *, folder: Path = RUNS) -> ManifestRow:
    """Execute the notebook a params file is for.

    The executed notebook and the effective parameters go to ``folder/<notebook>/<params>-<hash>/``;
    one row is added to ``folder/manifest.jsonl`` whatever happens.

    Raises:
        ParamsError: the params file does not fit the notebook; nothing is run.
        RunError: a cell failed; the executed notebook up to there is kept.
    """
    notebook = notebook_of(params_file)
    params = read_params(params_file, notebook)
    output_folder = folder / notebook.stem / f"{params_file.stem}-{_hash(params)}"
    output_folder.mkdir(parents=True, exist_ok=True)
    effective = yaml.safe_dump(params, sort_keys=False, allow_unicode=True)
    (output_folder / "params.yaml").write_text(effective, encoding="utf-8")
    output = output_folder / "notebook.ipynb"
    started, clock = datetime.now(UTC), time.perf_counter()
    error = ""
    try:
        with _environment():
            papermill.execute_notebook(
                str(notebook),
                str(output),
                parameters=params,
                kernel_name="python3",
                cwd=str(REPOSITORY),
                progress_bar=False,
            )
    except Exception as failure:
        error = f"{type(failure).__name__}: {str(failure).strip()[-2000:]}"
    row = ManifestRow(
        notebook=notebook.stem,
        params_file=str(params_file),
        output=str(output),
        started=started.isoformat(timespec="seconds"),
        seconds=round(time.perf_counter() - clock, 1),
        status="failed" if error else "done",
        error=error,
        helpers_version=__version__,
    )
    _append(folder / MANIFEST, asdict(row))
    if error:
        raise RunError(f"{notebook.stem} failed; the notebook up to there is {output}\n{error}")
    return row


def _hash(params: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(params, sort_keys=True).encode()).hexdigest()[:8]


def _append(manifest: Path, row: dict[str, Any]) -> None:
    """One write of one line: lines of two processes do not mix."""
    with manifest.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")


@contextmanager
def _environment() -> Iterator[None]:
    """Variables the kernel inherits, set for one execution only."""
    before = {name: os.environ.get(name) for name in _QUIET}
    os.environ.update(_QUIET)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
