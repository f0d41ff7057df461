"""Files that others publish: in the user's data folder, else in the cache, else by download, checked."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pooch
import yaml

from helpers import UserError
from helpers.kept import file_digest
from helpers.network import network_words
from helpers.paths import PACKAGED, cache_folder, written_whole

DATA_VARIABLE = "HELPERS_DATA"
# What a params file calls a data set of several files, or by another name than its file's.
_FILES_OF_DATA = {
    "klob": ("klob-c", "klob-r", "klob-u"),
    "2025-06": ("knowgic-2025-06", "knowgic-aliases"),
    "latest": ("knowgic-latest", "knowgic-aliases"),
}


class NotHereError(UserError):
    """A file would have to be downloaded and may not be."""


@dataclass(frozen=True, kw_only=True)
class Resource:
    """A file that others publish, with all that is needed to get it and to know it again."""

    name: str
    relative_path: str  # below ``$HELPERS_DATA`` and below the cache, with forward slashes
    url: str  # of the exact version
    licence: str  # what the source states
    sha256: str | None = None
    git_blob: str | None = None  # where no SHA-256 is published: of b"blob <size>\0" and content
    size: int | None = None  # bytes
    records: int | None = None  # of a PEAK file

    @property
    def checksum(self) -> str:
        """The checksum as text, for messages and result keys."""
        return f"sha256:{self.sha256}" if self.sha256 else f"git-blob:{self.git_blob}"

    def matches(self, path: Path) -> bool:
        """Whether the file at ``path`` has the published content."""
        if self.sha256 is not None:
            return file_digest(path) == self.sha256
        content = path.read_bytes()
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() == self.git_blob


@cache
def official_files() -> Mapping[str, Resource]:
    """The files of ``packaged/official.yaml``, by their names there."""
    files: Mapping[str, Any] = yaml.safe_load((PACKAGED / "official.yaml").read_text("utf-8"))
    return {name: Resource(name=name, **fields) for name, fields in files.items()}


def files_of(data: str) -> list[Resource]:
    """Official files of a data set as a params file names it, with or without a slice; none of others."""
    name = data.partition("[")[0]
    files = official_files()
    return [files[file] for file in _FILES_OF_DATA.get(name, (name,)) if file in files]


def require_local(data: str) -> None:
    """Raise a ``NotHereError`` where official files of a data set would have to be downloaded."""
    for file in files_of(data):
        locate(file, download=False)


def data_folder() -> Path | None:
    """The folder that ``$HELPERS_DATA`` names, or None where the variable is not set."""
    folder = os.environ.get(DATA_VARIABLE)
    if not folder:
        return None
    if not Path(folder).is_dir():
        raise UserError(f"{DATA_VARIABLE}={folder} is not a folder: correct it or unset it")
    return Path(folder)


def locate(file: Resource, *, download: bool = True) -> Path:
    """Path of the verified copy below ``$HELPERS_DATA``, in the cache, or downloaded into the cache.

    Raises a ``NotHereError`` where there is no copy, and none may be downloaded.
    """
    folder = data_folder()
    local = folder / file.relative_path if folder else None
    if local and local.is_file():
        if file.matches(local):
            return local
        raise UserError(
            f"{file.name}: {local} is not the published file (expected {file.checksum}); "
            f"replace it by {file.url} or remove it"
        )
    cached = cache_folder("data") / file.relative_path
    if cached.is_file() and file.matches(cached):
        return cached
    by_hand = (
        f"save {file.url} ({file.checksum}; licence: {file.licence}) as"
        f" ${DATA_VARIABLE}/{file.relative_path}"
    )
    if not download:
        raise NotHereError(f"{file.name}: no local copy; {by_hand}")
    cached.parent.mkdir(parents=True, exist_ok=True)
    try:
        with written_whole(cached) as scratch:
            downloader = pooch.HTTPDownloader(timeout=60)  # seconds without an answer
            downloader(file.url, str(scratch), None)
            if not file.matches(scratch):
                raise ValueError(f"{file.url} no longer holds the published file")
    except (OSError, ValueError) as error:  # no network, HTTP error, or another content
        raise UserError(f"{file.name}: {network_words(error)}; {by_hand}") from error
    return cached
