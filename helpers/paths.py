"""Where things are: the repository's folders and the user's cache."""

from __future__ import annotations

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGED = Path(__file__).resolve().parent / "packaged"
PARAMS = REPOSITORY / "params"
NOTEBOOKS = REPOSITORY / "notebooks"
FIGURES = REPOSITORY / "figures"
RUNS = REPOSITORY / "runs"


def cache_folder(*parts: str) -> Path:
    """Folder under the user's cache (``HELPERS_CACHE``, else ``~/.cache/helpers``), created."""
    root = os.environ.get("HELPERS_CACHE") or Path.home() / ".cache" / "helpers"
    folder = Path(root, *parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def local_data_folder() -> Path | None:
    """Folder named by ``HELPERS_DATA``, where local copies of official data are looked for."""
    folder = os.environ.get("HELPERS_DATA")
    return Path(folder) if folder else None
