"""The results store: append-only parquet parts under a key that says what determines them.

    store/<key>/settings.json      everything the numbers depend on
    store/<key>/<kind>-<number>-<digest>.parquet   a chunk of records, written once, never changed

A part is written to a scratch name and renamed, so a reader sees all of it or nothing; its name ends
in a digest of its bytes. Parts of one chunk share a number, and the one that marks it as done names
the others: where one of them is damaged, the chunk is undone. Records that are done are never computed
again; several processes may add to one key.
"""

from __future__ import annotations

import errno
import hashlib
import json
import uuid
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd

from helpers.paths import PlaceError, below, written_whole
from helpers.results.carried import carry_folder, carry_over

KEY_LENGTH = 16
_BESIDE = "stored_with"  # names of the parts that a marking part was stored with
# What reading a damaged parquet file raises.
_DAMAGE = (OSError, ValueError, KeyError, TypeError, NotImplementedError)


class StoreError(PlaceError):
    """Raised when a store cannot be read or written, or its settings do not match their key."""


def settings_key(settings: Mapping[str, Any]) -> str:
    """Sixteen hex digits of the settings' canonical JSON.

    Raises:
        StoreError: a value is not JSON-serialisable.
    """
    try:
        text = json.dumps(settings, sort_keys=True, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise StoreError(f"settings must be plain JSON values: {error}") from error
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]


@dataclass(frozen=True)
class ResultsStore:
    """A folder of results, one subfolder per key."""

    root: Path

    def open(
        self, settings: Mapping[str, Any], *, earlier: Mapping[str, Any] | None = None
    ) -> Results:
        """The results of one setting, created where they do not exist yet.

        Those that an earlier version of the suite made under the same settings, or under what it
        called them, are carried over.
        """
        folder = self.root / settings_key(settings)
        if self.find(settings) is None and earlier is not None and (found := self.find(earlier)):
            carry_folder(found.folder, folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"{folder} cannot be made ({error}); choose another results folder, that can be written"
            ) from error
        path = folder / "settings.json"
        if not path.exists():
            _write_atomically(path, lambda scratch: scratch.write_text(_pretty(settings), "utf-8"))
        return Results(folder)

    def find(self, settings: Mapping[str, Any]) -> Results | None:
        """The results of one setting where there are any; None is made."""
        folder = self.root / settings_key(settings)
        if not folder.exists():
            carry_over(folder, settings_key)
        return Results(folder) if folder.exists() else None


@dataclass(frozen=True)
class Results:
    """All parts of one key. Every table has a column ``case_id`` that names the record."""

    folder: Path

    @property
    def settings(self) -> dict[str, Any]:
        """What the numbers depend on.

        Raises:
            StoreError: their file is damaged or missing.
        """
        path = self.folder / "settings.json"
        try:
            loaded: dict[str, Any] = json.loads(path.read_text("utf-8"))
            if settings_key(loaded) != self.folder.name:
                raise ValueError(f"they are not those of the key {self.folder.name}")
        except (OSError, ValueError) as error:
            raise StoreError(
                f"could not read the settings {path} ({error}); delete that file, the scores are not"
                " in it: the next run with these settings writes it anew"
            ) from error
        return loaded

    @property
    def kinds(self) -> list[str]:
        """The kinds that have parts."""
        return sorted({path.name.split("-")[0] for path in self.folder.glob("*-*.parquet")})

    def done(self, kind: str = "scores") -> set[int]:
        """Records that have a part of this kind."""
        table = self.read(kind)
        return set(table["case_id"].unique().tolist()) if len(table) else set()

    def append(self, table: pd.DataFrame, kind: str = "scores") -> None:
        """Write one part that stands for itself.

        Raises:
            StoreError: see ``add``.
        """
        self.add({kind: table})

    def add(self, tables: Mapping[str, pd.DataFrame]) -> None:
        """Write the parts of one chunk, by kind; the last one marks its records as done.

        Raises:
            StoreError: a table has no ``case_id``, or the disk is full (no part is left behind half).
        """
        if not all("case_id" in table for table in tables.values()):
            raise StoreError("a results table needs a column case_id")
        number = uuid.uuid4().hex[:12]
        *others, mark = tables
        beside = [self._write(tables[kind], f"{kind}-{number}", []) for kind in others]
        self._write(tables[mark], f"{mark}-{number}", beside)

    def _write(self, table: pd.DataFrame, name: str, beside: list[str]) -> str:
        """Write a part; returns its file's name."""
        table = table.copy(deep=False)
        table.attrs = {_BESIDE: beside}
        content = table.to_parquet(None, index=False)
        path = self.folder / f"{name}-{_digest(content)}.parquet"
        _write_atomically(path, lambda scratch: scratch.write_bytes(content))
        return path.name

    def read(self, kind: str = "scores") -> pd.DataFrame:
        """All parts of a kind in one table, sorted by record; each record once.

        A part that is damaged, or was stored with one that is, is set aside with a warning; its
        records count as not done. Where two processes computed the same record, the first part by
        name stands.

        Raises:
            StoreError: a part cannot be opened, though it may be intact.
        """
        tables = [self._part(path) for path in sorted(self.folder.glob(f"{kind}-*.parquet"))]
        kept: list[pd.DataFrame] = []
        seen: set[int] = set()
        for table in tables:
            fresh = table[~table["case_id"].isin(seen)]
            seen |= set(fresh["case_id"].tolist())
            kept.append(fresh)
        if not kept:
            return pd.DataFrame({"case_id": pd.Series(dtype="int64")})
        together = pd.concat(kept, ignore_index=True)
        return together.sort_values("case_id", kind="stable", ignore_index=True)

    def _part(self, path: Path) -> pd.DataFrame:
        try:
            table = pd.read_parquet(BytesIO(_intact(path)), page_checksum_verification=True)
            if "case_id" not in table:
                raise ValueError("it has no column case_id")
            for name in table.attrs.pop(_BESIDE, []):
                _intact(below(self.folder, name))
            return table
        except _DAMAGE as error:
            # Damage has no error number; a part that cannot be opened just now is no damaged one.
            if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):
                raise StoreError(
                    f"could not read {path} ({error}); mend that and resume"
                ) from error
            aside = "set aside"
            try:
                path.replace(path.with_suffix(".damaged"))
            except OSError:  # another process was first, or the store is only read
                aside = "passed over"
            warnings.warn(
                f"{path} cannot be used ({error}); {aside}, {_consequence(path)}",
                stacklevel=3,
            )
            return pd.DataFrame({"case_id": pd.Series(dtype="int64")})


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:KEY_LENGTH]


def _named_digest(path: Path) -> str:
    """The digest in a part's name; none in parts that earlier versions wrote."""
    return "".join(path.stem.split("-")[2:])


def _intact(path: Path) -> bytes:
    """A part's bytes.

    Raises:
        ValueError: they are not those that its name tells of.
    """
    content = path.read_bytes()
    if _named_digest(path) not in ("", _digest(content)):
        raise ValueError(f"the bytes of {path.name} are not those that were written")
    return content


def _consequence(path: Path) -> str:
    """What becomes of a damaged part's records: earlier versions did not link parts to the scores."""
    if _named_digest(path) or path.name.startswith("scores-"):
        return "its records will be computed again"
    return f"an earlier version stored it: delete {path.parent} to have it computed again"


def _write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    try:
        with written_whole(path) as scratch:
            write(scratch)
    except OSError as error:
        raise StoreError(
            f"could not write {path} ({error}); free some space or choose another results folder:"
            " what was written before is kept and the run resumes"
        ) from error


def _pretty(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True, ensure_ascii=False, indent=1)
