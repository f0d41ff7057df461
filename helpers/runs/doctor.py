"""What this machine has, for bug reports and before long runs."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib.metadata import version

import torch

from helpers import __version__
from helpers.models.packaged_weights import PACKAGED_WEIGHTS
from helpers.paths import cache_folder, local_data_folder
from helpers.runs.fetching import OFFICIAL

_PACKAGES = ("torch", "transformers", "papermill", "pandas", "matplotlib")


def report() -> Iterator[str]:
    """Lines about versions, device, memory, caches and data."""
    yield f"helpers {__version__}, Python {platform.python_version()} on {platform.platform()}"
    yield "packages: " + ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(index)
            name = torch.cuda.get_device_name(index)
            yield f"GPU {index}: {name}, {free / 2**30:.0f} of {total / 2**30:.0f} GiB free"
    else:
        yield f"no GPU; {os.cpu_count()} CPU cores, torch uses {torch.get_num_threads()} threads"
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    yield f"memory: {pages / 2**30:.0f} GiB"
    models = cache_folder("models")
    for name, weights in PACKAGED_WEIGHTS.items():
        there = (models / f"{name}-{weights.sha256[:12]}").exists()
        yield f"model {name}: {'cached' if there else 'not fetched yet'} ({models})"
    folder = local_data_folder()
    yield f"HELPERS_DATA: {folder or 'not set'}"
    for name, resource in OFFICIAL.items():
        places = [folder] if folder else []
        there = any((place / resource.relative_path).exists() for place in places)
        yield f"data {name}: {'local copy' if there else 'will be downloaded'}"
