"""Files that are kept to be read again, each with its SHA-256 in a file beside it.

A flipped bit in a number changes results without a word, so nothing is read whose bytes are not those
that were written. What is damaged is said, set aside, and made again where its maker is at hand.
What comes with the package has its digests in one list, ``packaged/digests.txt``; it is never made again.
"""

from __future__ import annotations

import errno
import hashlib
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

from safetensors import SafetensorError

from helpers.paths import PACKAGED, PlaceError, in_one_line, written_whole

T = TypeVar("T")
# What readers of JSON, safetensors and npz raise for bytes that they did not write.
_DAMAGE = (SafetensorError, ValueError, KeyError, TypeError, EOFError, OSError, zipfile.BadZipFile)


class DamagedError(ValueError):
    """Raised for a file whose bytes are not those that were written; names the file."""


@contextmanager
def kept_whole(path: Path) -> Iterator[Path]:
    """``written_whole``, and the digest beside the file.

    The old digest goes first and the new one comes last: whenever the process ends, a digest that is
    there belongs to the file.

    Raises:
        PlaceError: the disk is full or only read, in one line.
    """
    try:
        with written_whole(path) as scratch:
            yield scratch
            digest = file_digest(scratch)
            _beside(path).unlink(missing_ok=True)
        _write_digest(path, digest)
    except OSError as error:
        error.filename = path  # not the scratch file, which nobody knows
        raise PlaceError(in_one_line(error)) from error
    except SafetensorError as error:
        if "os error" not in str(error):
            raise
        raise PlaceError(
            f"{path} cannot be written ({error}); free some space or choose another folder"
        ) from error


def read_kept(path: Path, read: Callable[[Path], T]) -> T:
    """What ``read`` makes of a file that is as it was written.

    A file without a digest, which an earlier version wrote, gets one when it could be read. A packaged
    one must be that of the list.

    Raises:
        DamagedError: the bytes have changed, or cannot be read at all.
        FileNotFoundError: there is no such file.
        OSError: the file cannot be opened just now.
    """
    expected = _expected(path)
    _check(path, expected)
    try:
        value = read(path)
    except DamagedError:
        raise
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # not there, or not readable just now
        raise DamagedError(
            f"{path} is damaged: {type(error).__name__}: {error}{_remedy(path)}"
        ) from error
    if expected is None and not _is_packaged(path):
        with suppress(OSError):  # on a disk that is only read
            _write_digest(path, known_digest(path))
    return value


def as_committed(path: Path) -> Path:
    """A packaged file that is as it was committed; a file from elsewhere as it is.

    Raises:
        DamagedError: a packaged file's bytes have changed.
    """
    if _is_packaged(path):
        _check(path, _expected(path))
    return path


def sound(path: Path, read: Callable[[Path], T]) -> T | None:
    """``read_kept``; None where there is no file, or a damaged one, which is set aside with a warning.

    Raises:
        DamagedError: a packaged file is damaged; it cannot be replaced by one made here.
    """
    if not path.exists():
        return None
    try:
        return read_kept(path, read)
    except DamagedError as error:
        if _is_packaged(path):
            raise
        aside = path.with_name(f"{path.name}.damaged")
        with suppress(OSError):  # another process was first, or the disk is only read
            path.replace(aside)
            _beside(path).unlink(missing_ok=True)
        warnings.warn(f"{error}; set aside as {aside.name} and made again", stacklevel=3)
        return None


def kept(path: Path, read: Callable[[Path], T], make: Callable[[Path], object]) -> T:
    """What ``read`` makes of a file; where it is missing or damaged, ``make`` writes it first.

    Args:
        read: from the file to its value, never None.
        make: writes the whole file to the path that it is given.
    """
    value = sound(path, read)
    if value is None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PlaceError(in_one_line(error)) from error
        with kept_whole(path) as scratch:
            make(scratch)
        value = read_kept(path, read)
    return value


def forget_kept(path: Path) -> None:
    """Remove a file and its digest."""
    path.unlink(missing_ok=True)
    _beside(path).unlink(missing_ok=True)


def file_digest(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def known_digest(path: Path) -> str:
    """``file_digest``, computed once in a process while the file keeps its size and time."""
    state = path.stat()
    return _digest_of(path, state.st_size, state.st_mtime_ns, state.st_ino)


@cache
def _digest_of(path: Path, *state: int) -> str:
    return file_digest(path)


def _check(path: Path, expected: str | None) -> None:
    if expected is not None and known_digest(path) != expected:
        raise DamagedError(
            f"{path} is damaged: its bytes are not those that were written{_remedy(path)}"
        )


def _expected(path: Path) -> str | None:
    """The digest that a file must have, where one is known."""
    if _is_packaged(path):
        return packaged_digests().get(path.relative_to(PACKAGED).as_posix())
    beside = _beside(path)
    return beside.read_text("utf-8").strip() if beside.exists() else None


@cache
def packaged_digests() -> dict[str, str]:
    """SHA-256 of the packaged data and weights, by their place in ``packaged`` (``tools.digests``)."""
    lines = (PACKAGED / "digests.txt").read_text("utf-8").splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def _is_packaged(path: Path) -> bool:
    return path.is_relative_to(PACKAGED)


def _remedy(path: Path) -> str:
    if not _is_packaged(path):
        return ""
    return f"; restore it with git checkout -- {path}, or, if you made it anew, run python -m tools.digests"


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _write_digest(path: Path, digest: str) -> None:
    with written_whole(_beside(path)) as scratch:
        scratch.write_text(digest + "\n", "utf-8")
