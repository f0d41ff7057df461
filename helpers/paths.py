"""The repository's folders and the user's cache, and how a file is written whole."""

from __future__ import annotations

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


def in_repository(path: Path) -> Path:
    """The path, if the repository's folders are here; a ``UserError`` if helpers was installed alone."""
    if not (PARAMS / "models").is_dir():
        raise UserError(
            f"no {path}: helpers was installed without its repository (params, notebooks, figures);"
            " install it from a checkout: pip install --editable ."
        )
    return path


def in_one_line(error: OSError, path: Path | None = None) -> str:
    """What went wrong with a file, and what helps; without ``path`` it is the error's own file."""
    return (
        f"{path or error.filename or 'a file'}: {error.strerror or error}; check the path, free space,"
        " or choose another folder (HELPERS_CACHE, `results`, --folder); what is finished is kept"
    )


def file_name(text: str) -> str:
    """A text, such as a model's hub name or folder, as one harmless part of a path."""
    return re.sub(r"[^\w.+@-]+", "-", text).strip("-.") or "unnamed"


def digest_of(content: bytes) -> str:
    """The first hexadecimal digits of the SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def run_name(model_name: str, data: str) -> str:
    """Name of a model's run on a data set, and of its tables' folder: ``smollm2-135m_peak-cf``."""
    return file_name(f"{model_name}_{data}")


@contextmanager
def written_whole(
    path: Path, *, destination: Callable[[Path], Path] | None = None
) -> Iterator[Path]:
    """A scratch path that takes ``path``'s place when the block ends well, and vanishes otherwise.

    Readers see the whole file (or folder) or none; processes that write the same at once do not meet.
    ``destination`` is asked, once all is written, which path it takes instead of ``path``.
    """
    # Not the process number: those of two machines may be equal.
    scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    scratch.touch()
    usual_mode = scratch.stat().st_mode
    scratch.unlink()  # it may become a folder
    try:
        yield scratch
        for file in scratch.iterdir() if scratch.is_dir() else (scratch,):
            file.chmod(usual_mode)
            with file.open("rb") as written:
                os.fsync(written.fileno())
        final_path = destination(scratch) if destination else path
        try:
            scratch.replace(final_path)
        except OSError:  # another process was first: its folder is as good
            if not final_path.is_dir():
                raise
    finally:
        remove(scratch)


def write_whole(path: Path, text: str) -> None:
    """Write a text file of which readers see all or nothing."""
    with written_whole(path) as scratch:
        scratch.write_text(text, "utf-8")


def remove(path: Path) -> None:
    """Remove a file, or a folder with all it holds, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def figures_folder() -> Path:
    """The folder of a notebook's figures: ``HELPERS_FIGURES``, else one that git ignores."""
    return Path(os.environ.get("HELPERS_FIGURES") or in_repository(RUNS) / "figures")


def cache_folder(*parts: str) -> Path:
    """Folder under the user's cache (``HELPERS_CACHE``, else ``~/.cache/helpers``), created."""
    root = os.environ.get("HELPERS_CACHE") or Path("~/.cache/helpers").expanduser()
    folder = Path(root, *parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
