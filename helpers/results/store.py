"""The results store: append-only parquet parts under a key that says what determines them.

    store/<key>/settings.json      everything the numbers depend on
    store/<key>/<kind>-<number>-<digest>.parquet   a chunk of records, written once, never changed

Parts are kept as all our files are (``helpers.kept``): a reader sees all of one or nothing, and its name
ends in the digest of its bytes. Parts of one chunk share a number: where one of them is damaged, the
chunk is undone. Records that are done are never computed again; several processes may add to one key.
"""

from __future__ import annotations

import hashlib
import json
import uuid
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from helpers import UserError
from helpers.kept import DamagedError, kept_whole, read_kept
from helpers.paths import written_whole

KEY_LENGTH = 16


class StoreError(UserError):
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

    def open(self, settings: Mapping[str, Any]) -> Results:
        """The results of one setting, created where they do not exist yet."""
        folder = self.root / settings_key(settings)
        path = folder / "settings.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                with written_whole(path) as scratch:
                    scratch.write_text(_pretty(settings), "utf-8")
        except OSError as error:
            raise StoreError(
                f"{folder} cannot be made ({error}); choose another results folder, that can be written"
            ) from error
        return Results(folder)


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
            StoreError: a table has no ``case_id``.
            UserError: the disk is full, or only read.
        """
        if not all("case_id" in table for table in tables.values()):
            raise StoreError("a results table needs a column case_id")
        number = uuid.uuid4().hex[:12]
        for kind, table in tables.items():
            with kept_whole(self.folder / f"{kind}-{number}.parquet") as scratch:
                scratch.write_bytes(table.to_parquet(None, index=False))

    def read(self, kind: str = "scores") -> pd.DataFrame:
        """All parts of a kind in one table, sorted by record; each record once.

        A chunk with a damaged part is removed with a warning; its records count as not done. Where two
        processes computed the same record, the first part by name stands.

        Raises:
            StoreError: a part cannot be opened, though it may be intact.
        """
        kept: list[pd.DataFrame] = []
        seen: set[int] = set()
        for path in sorted(self.folder.glob(f"{kind}-*-*.parquet")):
            table = self._part(path)
            fresh = table[~table["case_id"].isin(seen)]
            seen |= set(fresh["case_id"].tolist())
            kept.append(fresh)
        if not kept:
            return _NONE.copy()
        together = pd.concat(kept, ignore_index=True)
        return together.sort_values("case_id", kind="stable", ignore_index=True)

    def _part(self, path: Path) -> pd.DataFrame:
        """A part whose whole chunk is as it was written, else no rows."""
        chunk = sorted(self.folder.glob(f"*-{path.stem.split('-')[1]}-*.parquet"))
        try:
            for each in chunk:
                read_kept(each, Path.exists)
            return read_kept(path, pd.read_parquet)
        except DamagedError as error:
            with suppress(OSError):  # the store is only read
                for each in chunk:
                    each.unlink(missing_ok=True)
            warnings.warn(f"{error}; the records of its chunk will be computed again", stacklevel=3)
            return _NONE
        except FileNotFoundError:  # another process found the damage first
            return _NONE
        except OSError as error:
            raise StoreError(f"could not read {path} ({error}); repair that and resume") from error


_NONE = pd.DataFrame({"case_id": pd.Series(dtype="int64")})


def _pretty(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True, ensure_ascii=False, indent=1)
