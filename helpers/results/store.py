"""The results store: append-only parquet parts under a key that names what determines them.

store/<key>/settings.json      everything the numbers depend on
store/<key>/<kind>-<number>-<digest>.parquet   a chunk of records, written once, never changed
"""

from __future__ import annotations

import json
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import pandas as pd

from helpers.kept import DamagedError, kept_whole, read_kept
from helpers.paths import digest_of, write_whole
from helpers.processes import Progress, tell_run

Case = TypeVar("Case")
_NONE = pd.DataFrame({"case_id": pd.Series(dtype="int64")})


def settings_key(settings: Mapping[str, Any]) -> str:
    """Sixteen hex digits of the settings' canonical JSON."""
    text = json.dumps(settings, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return digest_of(text.encode())


def content_number(content: object) -> int:
    """63 bits of a digest of JSON values: a case's number by its content."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return int(digest_of(text.encode()), 16) >> 1


@dataclass(frozen=True)
class ResultsStore:
    """A folder of results, one subfolder per key."""

    root: Path

    def open(self, settings: Mapping[str, Any]) -> Results:
        """The results of one setting, created where they do not exist yet."""
        folder = self.root / settings_key(settings)
        folder.mkdir(parents=True, exist_ok=True)
        if not (path := folder / "settings.json").exists():
            write_whole(path, json.dumps(settings, sort_keys=True, ensure_ascii=False, indent=1))
        return Results(folder)


@dataclass(frozen=True)
class Results:
    """All parts of one key. Every table has a column ``case_id`` that names the record."""

    folder: Path

    def done(self, kind: str = "scores") -> set[int]:
        """Records that have a part of this kind."""
        return set(self.read(kind)["case_id"].tolist())

    def add(self, tables: Mapping[str, pd.DataFrame], *, completes: str = "scores") -> None:
        """Write the parts of one chunk, by kind.

        A record is done once it is in the part of the kind ``completes``, which is written last.
        """
        number = uuid.uuid4().hex[:12]
        other_kinds = [kind for kind in tables if kind != completes]
        for kind in (*other_kinds, completes):
            with kept_whole(self.folder / f"{kind}-{number}.parquet") as scratch:
                scratch.write_bytes(tables[kind].to_parquet(None, index=False))

    def read(self, kind: str = "scores") -> pd.DataFrame:
        """All parts of a kind in one table, sorted by record.

        A chunk with a damaged part is removed with a warning; its records count as not done. Where two
        processes computed the same record, the first part by name is taken.
        """
        tables: list[pd.DataFrame] = []
        read_cases: set[int] = set()
        for path in sorted(self.folder.glob(f"{kind}-*-*.parquet")):
            table = self._part(path)
            new_rows = table[~table["case_id"].isin(read_cases)]
            read_cases |= set(new_rows["case_id"].tolist())
            tables.append(new_rows)
        if not tables:
            return _NONE.copy()
        joined = pd.concat(tables, ignore_index=True)
        return joined.sort_values("case_id", kind="stable", ignore_index=True)

    def _part(self, path: Path) -> pd.DataFrame:
        """A part whose whole chunk is as it was written, else no rows."""
        _, number, _ = path.stem.split("-")
        paths_of_chunk = sorted(self.folder.glob(f"*-{number}-*.parquet"))
        try:
            for path_of_chunk in paths_of_chunk:
                read_kept(path_of_chunk, Path.exists)
            return read_kept(path, pd.read_parquet)
        except DamagedError as error:
            with suppress(OSError):  # a read-only disk
                for path_of_chunk in paths_of_chunk:
                    path_of_chunk.unlink(missing_ok=True)
            warnings.warn(f"{error}; the records of its chunk will be computed again", stacklevel=3)
            return _NONE
        except FileNotFoundError:  # another process found the damage first
            return _NONE


@dataclass(frozen=True)
class Cases(Generic[Case]):
    """A resumable run over cases, by the number in the column ``case_id`` of their results.

    Chunks of 1, 4, 16, … up to ``chunk`` cases are made together; None: all at once. ``content`` gives,
    as JSON values, all that a case's rows depend on in addition to the settings: rows are then stored under a
    number made of it, so that correcting one case of a file costs that case alone. ``tell`` gets lines of
    progress.
    """

    by_id: Mapping[int, Case]
    chunk: int | None = 32
    content: Callable[[Case], object] | None = None
    tell: Callable[[str], None] = tell_run

    def completed(
        self,
        results: Results,
        make: Callable[[Sequence[Case]], Mapping[str, pd.DataFrame]],
    ) -> pd.DataFrame:
        """The scores of all cases; ``make`` gives missing ones by kind, "scores" mark a case as done."""
        missing = self.missing(results)
        progress, done = Progress(len(missing), tell=self.tell), 0
        size, most = (1, self.chunk) if self.chunk else (len(missing), len(missing))
        while done < len(missing):
            made = make([self.by_id[each] for each in missing[done : done + size]])
            tables = {
                kind: table.assign(case_id=table["case_id"].map(self._numbers).astype("int64"))
                for kind, table in made.items()
            }
            results.add(tables)
            progress.at(done := done + size)
            size = min(4 * size, most)
        return self.read(results)

    def missing(self, results: Results) -> list[int]:
        """Cases that are not done."""
        done = results.done()
        return [case_id for case_id, number in self._numbers.items() if number not in done]

    def read(self, results: Results, kind: str = "scores") -> pd.DataFrame:
        """What is stored of these cases, whether all are done or not."""
        case_ids = {number: case_id for case_id, number in self._numbers.items()}
        table = results.read(kind)
        rows = table[table["case_id"].isin(list(case_ids))]
        numbered = rows.assign(case_id=rows["case_id"].map(case_ids).astype("int64"))
        return numbered.sort_values("case_id", kind="stable", ignore_index=True)

    @cached_property
    def _numbers(self) -> dict[int, int]:
        """What each case's rows are stored under: the number of its content, or its own."""
        if self.content is None:
            return {case_id: case_id for case_id in self.by_id}
        return {
            case_id: content_number((case_id, self.content(case)))
            for case_id, case in self.by_id.items()
        }


def flag_unusable(edits: pd.DataFrame, scores: pd.DataFrame, column: str) -> pd.DataFrame:
    """Give edits (case_id, failure) a failure, unless they have one, where a score is not a number."""
    unusable = edits["case_id"].isin(scores.loc[scores[column].isna(), "case_id"])
    words = "scores under the edited model are not finite; use a wider dtype"
    failure = edits["failure"].mask(unusable & (edits["failure"] == ""), words)
    return edits.assign(failure=failure)
