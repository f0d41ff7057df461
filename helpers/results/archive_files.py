"""A published run's folder. A table whose bytes have changed is not read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import UserError
from helpers.kept import digest_of
from helpers.paths import REPOSITORY, file_name, written_whole

if TYPE_CHECKING:  # pandas is imported where a table is read: names are listed at once without it
    import pandas as pd

_SAID = {"source", "settings", "caption", "tables"}


class ArchiveError(UserError):
    """A run that is not there, is damaged, or cannot take the rows; the message names the remedy."""


class StoredTables(Mapping[str, "pd.DataFrame"]):
    """A folder's tables as its ``about.json`` lists them, read once each."""

    def __init__(self, folder: Path, listed: Mapping[str, Mapping[str, Any]]) -> None:
        self.listed = listed
        self._folder = folder
        self._read: dict[str, pd.DataFrame] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self.listed)

    def __len__(self) -> int:
        return len(self.listed)

    def __contains__(self, name: object) -> bool:  # Mapping's own would read the table
        return name in self.listed

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._read:
            entry = self.listed[name]
            self._read[name] = _intact(self._folder / entry["file"], entry["digest"])
        return self._read[name]


def _intact(path: Path, digest: str) -> pd.DataFrame:
    """A table whose bytes are those that were published."""
    import pandas as pd

    new = _new(path)
    if new.exists() and digest_of(new.read_bytes()) == digest:
        new.replace(path)  # whoever published it ended between its last two steps
    if not path.exists():
        raise ArchiveError(f"{path} is missing; {restore(path)}")
    content = path.read_bytes()
    if digest_of(content) != digest:
        raise ArchiveError(f"{path} is not the table that was published; {restore(path)}")
    return pd.read_parquet(BytesIO(content))


def write_tables(
    folder: Path,
    tables: Mapping[str, pd.DataFrame],
    about: Mapping[str, Any],
    listed: Mapping[str, Mapping[str, Any]],
) -> None:
    """Write tables, then ``about.json``, which lists them; what is listed already stays.

    A table stands beside the one whose place it takes until the list names it: whenever the process
    ends, the run is as it was or as it becomes.

    Raises:
        ArchiveError: two tables would be one file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    entries = dict(listed)
    for name, table in tables.items():
        content = table.to_parquet(None, index=False, compression="zstd")
        file = f"{file_name(name).lower()}.parquet"
        entries[name] = {"file": file, "rows": len(table), "digest": digest_of(content)}
        owners = [other for other, entry in entries.items() if entry["file"] == file]
        if len(owners) > 1:
            raise ArchiveError(
                f"tables {' and '.join(owners)} would be one file: rename one of them"
            )
        with written_whole(_new(folder / file)) as scratch:
            scratch.write_bytes(content)
    said = {**about, "tables": entries}
    text = json.dumps({**said, "digest": _digest_of(said)}, indent=1, ensure_ascii=False)
    with written_whole(folder / "about.json") as scratch:
        scratch.write_text(text + "\n", "utf-8")
    files = {folder / entry["file"] for entry in entries.values()}
    for name in tables:
        path = folder / entries[name]["file"]
        _new(path).replace(path)
    for path in {*folder.glob("*.parquet"), *folder.glob("*.parquet.new")} - files:
        path.unlink()


def read_about(path: Path) -> dict[str, Any]:
    """What ``write_tables`` wrote to ``about.json``.

    Raises:
        ArchiveError: it is not what was published.
    """
    try:
        said = json.loads(path.read_text("utf-8"))
        if said.pop("digest") != _digest_of(said) or set(said) != _SAID:
            raise ValueError("not what was published")
        for entry in said["tables"].values():
            if file_name(entry["file"]) != entry["file"]:
                raise ValueError(f"{entry['file']!r} is no file of its folder")
    except (ValueError, AttributeError, LookupError, TypeError) as error:
        raise ArchiveError(f"{path} cannot be read ({error}); {restore(path)}") from error
    return dict(said)


def _digest_of(said: Mapping[str, Any]) -> str:
    return digest_of(json.dumps(said).encode())


def _new(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")


def restore(path: Path) -> str:
    """How to get a published file back, as the end of a message."""
    shown = path.relative_to(REPOSITORY) if path.is_relative_to(REPOSITORY) else path
    return (
        f"restore it (git checkout -- {shown}) or publish the run again after deleting its folder"
    )
