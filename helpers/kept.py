"""Files that are kept to be read again: their names end in the digest of their bytes.

``layer5.safetensors`` is kept as ``layer5-<16 digits of its SHA-256>.safetensors``, and a folder under a
name of this form.
What is damaged is reported, removed, and made again. A file under its plain name is read as it is.
"""

from __future__ import annotations

import glob
import hashlib
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

from safetensors import SafetensorError

from helpers import UserError
from helpers.paths import DIGITS, digest_of, in_one_line, remove, written_whole

T = TypeVar("T")
# What readers of JSON and safetensors raise for bytes that they did not write.
_DAMAGE = (SafetensorError, ValueError, KeyError, TypeError)
_DIGEST = re.compile(rf"-([0-9a-f]{{{DIGITS}}})$")


class DamagedError(UserError):
    """A file whose bytes are not those that were written; names the file."""


@contextmanager
def kept_whole(path: Path) -> Iterator[Path]:
    """A scratch path for a file or folder, which becomes what is kept as ``path``."""

    def name_with_digest(scratch: Path) -> Path:
        return path.with_name(f"{path.stem}-{_digest_of_file(scratch)}{path.suffix}")

    try:
        earlier_versions = _versions(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path, destination=name_with_digest) as scratch:
            yield scratch
        newest = kept_at(path)
        for version in earlier_versions:
            if version != newest:
                remove(version)
    except OSError as error:
        if error.errno is None:  # the network's, not the disk's
            raise
        raise UserError(in_one_line(error, path)) from error


def kept_at(path: Path) -> Path:
    """The newest version that is kept of ``path``, else the path itself, whether it is there or not."""
    return max(_versions(path), key=lambda version: version.stat().st_mtime_ns, default=path)


def read_kept(path: Path, read: Callable[[Path], T]) -> T:
    """What ``read`` makes of a file or folder that is as it was written, else a ``DamagedError``."""
    kept_path = kept_at(path)
    if digest_in_name := _DIGEST.search(kept_path.stem):
        file_times = tuple(file.stat().st_mtime_ns for file in _files(kept_path))
        if _digest_of_file(kept_path, file_times) != digest_in_name[1]:
            raise DamagedError(f"{kept_path} is damaged: its bytes are not those that were written")
    try:
        return read(kept_path)
    except _DAMAGE as error:
        raise DamagedError(f"{kept_path} is damaged: {type(error).__name__}: {error}") from error


def load_if_intact(path: Path, read: Callable[[Path], T]) -> T | None:
    """What ``read`` makes of a file or folder; None where there is none, or a damaged one of ours.

    The damaged one is removed. One under its plain name, which we did not write, is a ``DamagedError``.
    """
    kept_path = kept_at(path)
    try:
        return read_kept(kept_path, read) if kept_path.exists() else None
    except FileNotFoundError:  # another process has just replaced it
        return None
    except DamagedError as error:
        if not _DIGEST.search(kept_path.stem):
            raise
        with suppress(OSError):  # a read-only disk
            remove(kept_path)
        warnings.warn(f"{error}; it is made again", stacklevel=3)
        return None


def load_or_make(path: Path, read: Callable[[Path], T], make: Callable[[Path], object]) -> T:
    """What ``read`` makes of a file or folder; where it is missing or damaged, ``make`` writes it first."""
    value = load_if_intact(path, read)
    if value is None:
        with kept_whole(path) as scratch:
            make(scratch)
        value = read_kept(path, read)
    return value


def file_digest(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def _digest_of_file(path: Path, file_times: tuple[int, ...] = ()) -> str:
    """Digits of a file's or folder's SHA-256, computed once in a process while ``file_times`` are equal."""
    if not path.is_dir():
        return file_digest(path)[:DIGITS]
    list_of_files = "".join(f"{file_digest(file)}  {file.name}\n" for file in _files(path))
    return digest_of(list_of_files.encode())


def _versions(path: Path) -> list[Path]:
    """What is kept of ``path``: more than one version while another process replaces it."""
    stem = glob.escape(path.stem)
    suffix = glob.escape(path.suffix)
    return list(path.parent.glob(f"{stem}-{'[0-9a-f]' * DIGITS}{suffix}"))


def _files(path: Path) -> list[Path]:
    """The file, or the folder's files but for hidden ones, which file browsers leave."""
    return sorted(path.glob("[!.]*")) if path.is_dir() else [path]
