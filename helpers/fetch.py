"""Find a public file: in the user's data folder, else in the cache, else by download, checked."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import pooch
import yaml

from helpers.kept import file_digest
from helpers.paths import PACKAGED, cache_folder, local_data_folder, written_whole

DATA_VARIABLE = "HELPERS_DATA"
DOWNLOAD_TIMEOUT = 60  # seconds without an answer from the server


class FetchError(RuntimeError):
    """A file is missing, cannot be downloaded, or is not the published one."""


class NotHereError(FetchError):
    """Raised where a file would have to be downloaded and may not be."""


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One published file.

    Attributes:
        name: short name for messages, such as ``"peak-cf"``.
        relative_path: place below ``$HELPERS_DATA`` and below the cache, with forward slashes.
        url: address of the exact version.
        sha256: hexadecimal SHA-256 of the content.
        git_blob: git blob id, for files whose SHA-256 is not published
            (SHA-1 of ``"blob <size>\\0"`` followed by the content).
        size: bytes, where they are known; what a download will take.
        licence: what the source states, shown to whoever must fetch the file by hand.

    Raises:
        ValueError: the path could leave the folder, or there is no checksum.
    """

    name: str
    relative_path: str
    url: str
    sha256: str | None = None
    git_blob: str | None = None
    size: int | None = None
    licence: str

    def __post_init__(self) -> None:
        path = PurePosixPath(self.relative_path)
        unsafe = path.is_absolute() or ".." in path.parts or not path.parts
        if unsafe or any(mark in self.relative_path for mark in ("\\", ":", "\0")):
            raise ValueError(
                f"{self.name}: relative path {self.relative_path!r} must stay below the data folder"
            )
        if self.sha256 is None and self.git_blob is None:
            raise ValueError(f"{self.name}: give a sha256 or a git_blob to check the file against")

    @property
    def checksum(self) -> str:
        """The checksum as text, for messages and result keys."""
        return f"sha256:{self.sha256}" if self.sha256 else f"git-blob:{self.git_blob}"

    def matches(self, path: Path) -> bool:
        """Whether the file at ``path`` has the published content."""
        if self.sha256 is not None:
            return file_digest(path) == self.sha256.lower()
        content = path.read_bytes()
        header = f"blob {len(content)}\0".encode()
        return hashlib.sha1(header + content).hexdigest() == str(self.git_blob).lower()


def official_file(name: str) -> Resource:
    """A file of ``packaged/official.yaml`` by its name there."""
    return Resource(name=name, **_official_files()[name])


@cache
def _official_files() -> Mapping[str, Mapping[str, Any]]:
    files: Mapping[str, Mapping[str, Any]] = yaml.safe_load(
        (PACKAGED / "official.yaml").read_text("utf-8")
    )
    return files


def data_folder() -> Path | None:
    """The folder ``$HELPERS_DATA`` names, or None when the variable is not set.

    Raises:
        FetchError: the variable names something that is not a folder.
    """
    folder = local_data_folder()
    if folder is not None and not folder.is_dir():
        raise FetchError(f"{DATA_VARIABLE}={folder} is not a folder: correct it or unset it")
    return folder


def locate(resource: Resource, *, download: bool = True) -> Path:
    """Path of the verified local copy of a resource.

    Looks below ``$HELPERS_DATA``, then in the cache, then downloads into the cache.

    Args:
        download: whether the network may be used.

    Raises:
        NotHereError: there is no copy, and none may be downloaded.
        FetchError: the copy below ``$HELPERS_DATA`` is stale or damaged, or there is no copy
            and it cannot be downloaded; the message says which file to put where.
    """
    folder = data_folder()
    if folder is not None and (local := folder / resource.relative_path).is_file():
        if resource.matches(local):
            return local
        raise FetchError(
            f"{resource.name}: {local} is not the published file (expected {resource.checksum}); "
            f"replace it by {resource.url} or remove it"
        )
    cached = cache_folder("data") / resource.relative_path
    if cached.is_file() and resource.matches(cached):
        return cached
    if not download:
        raise NotHereError(f"{resource.name}: no local copy; {_by_hand(resource)}")
    return _download(resource, cached)


def _download(resource: Resource, destination: Path) -> Path:
    """Download into the cache; nothing unverified stays there."""
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(destination) as scratch:
            pooch.retrieve(
                resource.url,
                known_hash=f"sha256:{resource.sha256}" if resource.sha256 else None,
                fname=scratch.name,
                path=scratch.parent,
                downloader=pooch.HTTPDownloader(timeout=DOWNLOAD_TIMEOUT),
            )
            if not resource.matches(scratch):
                raise ValueError(f"{resource.url} no longer holds the published file")
    except (OSError, ValueError) as error:  # no network, HTTP error, or another content
        raise FetchError(f"{resource.name}: {error}; {_by_hand(resource)}") from error
    return destination


def _by_hand(resource: Resource) -> str:
    """What to put where when the download does not work."""
    folder = data_folder()
    place = (folder or Path(f"${DATA_VARIABLE}")) / resource.relative_path
    unset = "" if folder else f" (set the environment variable {DATA_VARIABLE} to a folder)"
    return (
        f"save {resource.url} ({resource.checksum}; licence: {resource.licence}) as {place}{unset}"
    )
