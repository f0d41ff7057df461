"""One sweep at a time in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from helpers.sweeps.matrix import SweepError


def unwritable(folder: Path, error: OSError) -> SweepError:
    """What is said where a sweep's folder cannot be written."""
    return SweepError(
        f"cannot write to {folder} ({error}); free some space or give another --folder"
    )


def in_use(folder: Path) -> bool:
    """Whether a sweep is running in the folder."""
    if not (folder / ".lock").exists():
        return False
    try:
        with FileLock(folder / ".lock", blocking=False):
            return False
    except Timeout:
        return True


@contextmanager
def sole_use(folder: Path) -> Iterator[None]:
    """Keep other sweeps out of a folder until the block ends, or the process, however it ends.

    Only the command that hands out the runs takes the lock: workers and cluster tasks do not ask.

    Raises:
        SweepError: another sweep is running in the folder, or it cannot be written.
    """
    lock = FileLock(folder / ".lock", blocking=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise SweepError(
            f"another sweep is running in {folder}; wait for its end, or give this one another --folder"
        ) from error
    except OSError as error:
        raise unwritable(folder, error) from error
    try:
        yield
    finally:
        lock.release()
