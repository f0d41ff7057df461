"""Published result tables, from which tables and figures are redrawn without a model.

figures/data/<paper>/<run>/about.json       what the run's rows are, and the digest of each table
figures/data/<paper>/<run>/<table>.parquet  rows, not read where their bytes have changed
"""

from __future__ import annotations

import json
from collections import UserDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import UserError
from helpers.paths import PUBLISHED_DATA, digest_of, file_name, write_whole, written_whole
from helpers.records import did_you_mean

if TYPE_CHECKING:  # imported where a table is read
    import pandas as pd

DATA = PUBLISHED_DATA
_NEXT = ".new"  # a table's file until ``about.json`` lists it


class ArchiveError(UserError):
    """A run that is missing, is damaged, or cannot take the rows; the message names the remedy."""


class MissingTableError(ArchiveError, KeyError):
    """A table that a run does not have; the message names those that there are."""

    __str__ = Exception.__str__  # a KeyError's would be quoted


# The label of runs whose objectives were shown half of what else would be scored, so that only half is.
HALF_SHOWN = "shown"
NAMED_BY = "named by"  # the one kind with no colon after it


@dataclass(frozen=True)
class TableKey:
    """What the name of a stored table holds: ``KIND: METHOD, MODE: EDITS``; only the method is in each.

    ================================== =========================
    exact: rome, deep                  kind, method, mode
    ability: rome, in sequence: 10     kind, method, mode, edits
    similarities: fisher               kind, locator
    named by rome+app                  kind, method
    rome+app                           method
    rome+app after 10                  method, edits
    chains                             neither: in the method's place
    ================================== =========================
    """

    kind: str  # of its rows
    method: str  # or what else its rows were made with, such as a locator
    mode: str = ""  # how the edits were made
    edits: int = 0  # made in sequence before its rows were; 0: the name states none

    def __str__(self) -> str:
        name = self.method
        if self.mode:
            name += f", {self.mode}"
        if self.edits:
            name += f": {self.edits}" if self.mode else f" after {self.edits}"
        if self.kind:
            separator = " " if self.kind == NAMED_BY else ": "
            name = f"{self.kind}{separator}{name}"
        return name

    @classmethod
    def parse(cls, name: str) -> TableKey:
        """The key whose text is this name."""
        if name.startswith(f"{NAMED_BY} "):
            kind, after_kind = NAMED_BY, name.removeprefix(f"{NAMED_BY} ")
        elif ": " in name:
            kind, _, after_kind = name.partition(": ")
        else:
            kind, after_kind = "", name
        method, _, mode = after_kind.partition(", ")
        if mode:
            mode, _, edits = mode.partition(": ")
        else:
            method, _, edits = method.partition(" after ")
        return cls(kind, method, mode, int(edits or 0))

    @property
    def is_method(self) -> bool:
        """Whether the name is a method's, or a variant's, and nothing else: ``rome+app``."""
        return str(self) == self.method


@dataclass(frozen=True)
class About:
    """How a run was made."""

    source: Mapping[str, Any]  # what all its rows have in common: model, data, scoring
    settings: Mapping[str, Any] = field(default_factory=dict)  # of each part, by its name
    caption: Mapping[str, Any] = field(default_factory=dict)  # what else captions report


@dataclass(frozen=True, eq=False)
class Run:
    """A run's tables by name, each read when it is first asked for, and how they were made."""

    name: str
    about: About
    tables: Mapping[str, pd.DataFrame]

    @property
    def keys(self) -> list[TableKey]:
        """What the names of its tables hold, in the order of publication."""
        return [TableKey.parse(name) for name in self.tables]

    @property
    def kinds(self) -> list[str]:
        """The kinds of its tables, each once; of a table without a kind its name."""
        return list(dict.fromkeys(key.kind or str(key) for key in self.keys))

    def only(self, names: Collection[str]) -> Run:
        """The run with the tables of these names alone."""
        settings = {name: value for name, value in self.about.settings.items() if name in names}
        tables = {name: self.tables[name] for name in self.tables if name in names}
        return replace(self, about=replace(self.about, settings=settings), tables=tables)

    def joined(self, kind: str) -> pd.DataFrame:
        """All tables of a kind as one, in the order of publication; or the table of that name."""
        import pandas as pd

        names = [str(key) for key in self.keys if (key.kind or str(key)) == kind]
        if not names:
            remedy = f"publish it from a params file with model: {self.about.source.get('model')}"
            raise ArchiveError(f"run {self.name!r} has no table {kind!r}: {remedy}")
        return pd.concat([self.tables[name] for name in names], ignore_index=True)


class StoredTables(UserDict[str, Any]):
    """A folder's tables by name: what its ``about.json`` lists, read once each."""

    def __init__(self, folder: Path, listed: Mapping[str, Any]) -> None:
        super().__init__(listed)
        self.folder = folder

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self.data:
            hint = did_you_mean(name, self.data)
            raise MissingTableError(
                f"{self.folder} has no table {name!r}{hint}; there are {', '.join(self.data)}"
            )
        entry = self.data[name]
        return _intact(self.folder / Path(entry["file"]).name, entry["digest"])


@dataclass(frozen=True)
class Archive:
    """A paper's published runs, a folder each; those under a ``label`` are in no joint figure."""

    root: Path
    label: str = ""  # ends the names of its runs, after an @

    def names(self) -> list[str]:
        """Stored runs, such as ``smollm2-135m_peak-cf``."""
        return sorted(path.parent.name for path in self.root.glob("*/about.json"))

    def get(self, run: str) -> Run:
        """One run, or an ``ArchiveError`` that names the stored ones; damage shows when a table is read."""
        folder = self.folder(run)
        path = folder / "about.json"
        if not path.exists():
            stored = ", ".join(self.names()) or "none"
            hint = did_you_mean(run, self.names())
            raise ArchiveError(
                f"no run {run!r}{hint} in {self.root}; there are: {stored};"
                " make it with python -m helpers publish PARAMS"
            )
        try:
            content = json.loads(path.read_text("utf-8"))
            listed = content.pop("tables")
            about = About(**content)
        except (ValueError, AttributeError, LookupError, TypeError) as error:
            raise ArchiveError(f"{path} cannot be read ({error}); {_RESTORE}") from error
        return Run(folder.name, about, StoredTables(folder, listed))

    def known(self, run: str) -> Run | None:
        """One run, or None where there is none."""
        return self.get(run) if (self.folder(run) / "about.json").exists() else None

    def runs(self) -> list[Run]:
        """All runs, by name."""
        return [self.get(name) for name in self.names()]

    def check(self, run: str, about: About) -> None:
        """Refuse rows of another source than those that are there, before time is spent on them."""
        stored_run = self.known(run)
        if not stored_run:
            return
        stored = stored_run.about.source
        new = as_read(about.source)
        differing = [key for key in new if key not in stored or stored[key] != new[key]]
        if differing:
            pairs = [f"{k} {stored.get(k, 'unknown')!r}, now {new[k]!r}" for k in differing]
            raise ArchiveError(
                f"{self.folder(run)} was made from another source ({'; '.join(pairs)}): use the stored"
                " settings, or publish under --name NAME"
            )

    def put(self, run: str, tables: Mapping[str, pd.DataFrame], about: About) -> Path:
        """Add tables to a run, which is made where there is none. Tables without rows are omitted.

        Nothing is written where the run is of another source, or a table would lose rows: an
        ``ArchiveError``. A new table is next to the one that it replaces until
        ``about.json`` lists it: whenever the process ends, the run is as it was or as it becomes.
        """
        self.check(run, about)
        folder = self.folder(run)
        new = About(**as_read(asdict(about)))
        stored_run = self.known(run) or Run(run, new, {})
        filled = {name: table for name, table in tables.items() if len(table)}
        for name in filled.keys() & stored_run.tables.keys():
            rows_before = len(stored_run.tables[name])
            rows = len(filled[name])
            if rows < rows_before:
                raise ArchiveError(
                    f"{folder} holds {rows_before} rows of {name}, this run has {rows}: run with as many"
                    " records, or publish under --name NAME"
                )
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "about.json"
        listed = json.loads(path.read_text("utf-8"))["tables"] if path.exists() else {}
        new_files = []
        for name, table in filled.items():
            content = table.to_parquet(None, index=False, compression="zstd")
            file = f"{file_name(name).lower()}.parquet"
            listed[name] = {"file": file, "rows": len(table), "digest": digest_of(content)}
            new_file = folder / f"{file}{_NEXT}"
            with written_whole(new_file) as scratch:
                scratch.write_bytes(content)
            new_files.append(new_file)
        stored = stored_run.about
        settings = {**stored.settings, **new.settings}
        joined = About(stored.source, settings, {**stored.caption, **new.caption})
        text = json.dumps({**asdict(joined), "tables": listed}, indent=1, ensure_ascii=False)
        write_whole(path, f"{text}\n")
        for new_file in new_files:
            new_file.replace(new_file.with_suffix(""))
        return folder

    def folder(self, run: str) -> Path:
        """Where a run is, or would be."""
        return self.root / file_name(f"{run}@{self.label}" if self.label else run)


@cache
def archive(paper: str) -> Archive:
    """The committed archive of a paper, such as ``archive("klob")``."""
    return Archive(DATA / paper)


# Every packaged model has its words; the light modules that write captions load no weights.
PACKAGED_WORDS = {
    "smollm2-135m": "SmolLM2-135M-Instruct, dequantised from 4 bits (Q4_1)",
    "gemma3-270m": "Gemma 3 270M, dequantised from 4 bits (q4_k_m)",
    "qwen2.5-coder-1.5b": "Qwen2.5-Coder-1.5B-Instruct, tuned for code, dequantised from 4 bits (q4_k_m)",
}


def runs_by_model(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Runs by the model that they are of, packaged models first; runs of no model are omitted."""
    by_model: dict[str, list[Run]] = {model_name: [] for model_name in PACKAGED_WORDS}
    for run in runs:
        model_name = run.about.source.get("model")
        if model_name:
            by_model.setdefault(str(model_name), []).append(run)
    return {model_name: of_model for model_name, of_model in by_model.items() if of_model}


def model_words(name: str) -> str:
    """A model as captions name it: a packaged one with its weights, a folder by its last name."""
    if name in PACKAGED_WORDS:
        return f"{name} ({PACKAGED_WORDS[name]})"
    folder = Path(name).expanduser()
    return folder.name if folder.is_absolute() or folder.is_dir() else name


_RESTORE = "restore it (git checkout), or delete its folder and publish again"


def as_read(values: Mapping[str, Any]) -> Any:
    """Values as JSON gives them back: tuples are lists."""
    return json.loads(json.dumps(values))


@cache
def _intact(path: Path, digest: str) -> pd.DataFrame:
    """A table whose bytes are those that were published."""
    import pandas as pd

    new = Path(f"{path}{_NEXT}")
    if new.exists() and digest_of(new.read_bytes()) == digest:
        new.replace(path)  # its writer was killed between its last two steps
    if path.exists() and digest_of(content := path.read_bytes()) == digest:
        return pd.read_parquet(BytesIO(content))
    state = "is not the table that was published" if path.exists() else "is missing"
    raise ArchiveError(f"{path} {state}; {_RESTORE}")
