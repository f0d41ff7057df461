"""Where things are: the repository's folders and the user's cache, and how a file is written whole."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from helpers import UserError

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGED = Path(__file__).resolve().parent / "packaged"
PARAMS = REPOSITORY / "params"
NOTEBOOKS = REPOSITORY / "notebooks"
FIGURES = REPOSITORY / "figures"
RUNS = REPOSITORY / "runs"
DIGITS = 16  # of the digests in names and lists of files

_FULL = "free some space, or choose a folder on a larger disk"
_FILE = "a file is in the place of a folder: move it away"
_REMEDIES = {
    **{errno.ENOSPC: _FULL, errno.EDQUOT: _FULL, errno.ENOENT: "check the path"},
    **{errno.ENOTDIR: _FILE, errno.EEXIST: _FILE},
}


def require_checkout() -> None:
    """Refuse to work where the package was installed as a wheel, without the folders next to it."""
    if not PARAMS.is_dir():
        raise UserError(
            f"{PARAMS} is not there: this copy of helpers was installed without its parameters,"
            " notebooks and stored tables; get the repository and there run"
            " `pip install --editable .`"
        )


def in_one_line(error: OSError, place: Path | None = None) -> str:
    """What went wrong with a file, and what helps."""
    remedy = _REMEDIES.get(error.errno or 0, "choose a folder that can be read and written")
    return (
        f"{place or error.filename or 'a file'}: {error.strerror or error}; {remedy} (HELPERS_CACHE"
        " names the cache, `results` and --folder those of runs): what is finished is kept"
    )


def file_name(text: str) -> str:
    """A text, such as a model's hub name or folder, as one harmless part of a path."""
    return re.sub(r"[^\w.+@-]+", "-", text).strip("-.") or "unnamed"


def digest_of(content: bytes) -> str:
    """The first hexadecimal digits of the SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def run_name(model: str, data: str) -> str:
    """Folder of a model's tables on a data set, such as ``smollm2-135m_peak-cf``."""
    return file_name(f"{model}_{data}")


@contextmanager
def written_whole(path: Path, *, named: Callable[[Path], Path] | None = None) -> Iterator[Path]:
    """A scratch path that takes ``path``'s place when the block ends well, and vanishes otherwise.

    Readers see the whole file (or folder) or none; processes that write the same at once do not meet.
    Its files get the mode that new files have here, whatever the libraries that write them choose.

    Args:
        path: the file, or what its scratch path is named after.
        named: from what was written to the place that it takes, where that is another.
    """
    # Not the process number: those of two machines may be equal.
    scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    scratch.touch()
    mode = scratch.stat().st_mode
    scratch.unlink()  # it may become a folder
    try:
        yield scratch
        for file in scratch.iterdir() if scratch.is_dir() else (scratch,):
            file.chmod(mode)
            with file.open("rb") as written:
                os.fsync(written.fileno())
        place = named(scratch) if named else path
        try:
            scratch.replace(place)
        except OSError:  # another process was first: its folder is as good
            if not place.is_dir():
                raise
    finally:
        remove(scratch)


def write_whole(path: Path, text: str) -> None:
    """Write a text file as ``written_whole`` does."""
    with written_whole(path) as scratch:
        scratch.write_text(text, encoding="utf-8")


def remove(path: Path) -> None:
    """Remove a file, or a folder with all it holds, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def figures_folder() -> Path:
    """Where a notebook's figures are saved: ``HELPERS_FIGURES``, else a folder that git ignores.

    Only ``publish`` and ``figure`` write to the committed figures.
    """
    return Path(os.environ.get("HELPERS_FIGURES") or RUNS / "figures")


def cache_folder(*parts: str) -> Path:
    """Folder under the user's cache (``HELPERS_CACHE``, else ``~/.cache/helpers``), created."""
    root, folder = os.environ.get("HELPERS_CACHE"), Path("~/.cache/helpers")
    try:
        folder = Path(root or folder.expanduser(), *parts)
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # the latter where there is no home folder
        raise UserError(
            f"the cache {folder} cannot be made ({error}); set HELPERS_CACHE to a folder that can be"
            " written"
        ) from error
    return folder
