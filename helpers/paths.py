"""The repository's folders and the user's cache, and how a file is written whole.

An installed package works in the current folder, and brings what it reads of the repository (``shipped``).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from helpers import UserError

_PACKAGE = Path(__file__).resolve().parent
PACKAGED = _PACKAGE / "packaged"
SHIPPED = _PACKAGE / "shipped"  # params, notebooks and figures, put there by setup.py
IS_CHECKOUT = not SHIPPED.is_dir()
REPOSITORY = _PACKAGE.parent if IS_CHECKOUT else Path.cwd()


def in_repository(path: Path | str) -> Path:
    """A path below the repository, or the one that an installed package brings, where only that is there."""
    own_path = REPOSITORY / path
    shipped_path = SHIPPED / path
    return shipped_path if shipped_path.exists() and not own_path.exists() else own_path


# Found by what they hold: a user's folder of that name may hold something else.
PARAMS = in_repository("params/models").parent
NOTEBOOKS = in_repository("notebooks/01_preliminaries.ipynb").parent
FIGURES = REPOSITORY / "figures"
PUBLISHED_DATA = in_repository("figures/data")
RUNS = REPOSITORY / "runs"
DIGITS = 16  # of the digests in names and lists of files


def copy_notebooks(folder: Path) -> Path:
    """Copy the notebooks, and the params and pictures that they need, into a folder that has none yet."""
    names = ("notebooks", "params", "figures")
    for name in names:
        if (folder / name).exists():
            raise UserError(f"{folder / name} is there already: give another folder, or remove it")
    leave_out = shutil.ignore_patterns("data", "*.svg", "__pycache__", ".ipynb_checkpoints")
    for source, name in zip((NOTEBOOKS, PARAMS, in_repository("figures")), names, strict=True):
        shutil.copytree(source, folder / name, ignore=leave_out)
    return folder / "notebooks"


def in_one_line(error: OSError, path: Path | None = None) -> str:
    """What went wrong with a file, and what helps; without ``path`` it is the error's own file."""
    return (
        f"{path or error.filename or 'a file'}: {error.strerror or error}; check the path, free space,"
        " or choose another folder (HELPERS_CACHE, `results`, --folder); what is finished is kept"
    )


def check_place(path: Path) -> None:
    """Make the folder that a path lies in; a ``UserError`` where nothing can be written there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UserError(
            f"{path} cannot be written ({error.strerror}): choose another path"
        ) from error


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
    return Path(os.environ.get("HELPERS_FIGURES") or RUNS / "figures")


def cache_folder(*parts: str) -> Path:
    """Folder under the user's cache (``HELPERS_CACHE``, else ``~/.cache/helpers``), created."""
    root = os.environ.get("HELPERS_CACHE") or Path("~/.cache/helpers").expanduser()
    folder = Path(root, *parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
