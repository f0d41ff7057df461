"""Published result tables, from which tables and figures are redrawn without a model.

    figures/data/<paper>/<run>/about.json       what the run's rows are, and the digest of each table
    figures/data/<paper>/<run>/<table>.parquet  rows

One rule says which rows may stand together: whatever new rows say about their source (model, data,
scoring), the run they join must say, too. Under that rule a run takes further tables, or further rows of
a table; everything else is refused before anything is written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers.paths import FIGURES, file_name
from helpers.results.archive_files import ArchiveError as ArchiveError
from helpers.results.archive_files import StoredTables, read_about, write_tables

if TYPE_CHECKING:  # pandas is imported where a table is read: names are listed at once without it
    import pandas as pd

DATA = FIGURES / "data"


@dataclass(frozen=True)
class About:
    """What a run says about itself.

    Attributes:
        source: what all its rows have in common, such as model, data and scoring.
        settings: how each part was made, by the part's name: a table, a method, a locator.
    """

    source: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    caption: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Run:
    """A run's tables by name, each read when it is first asked for, and what they are of."""

    name: str
    about: About
    tables: Mapping[str, pd.DataFrame]

    @property
    def label(self) -> str:
        """What it was published under besides its model and data; such runs are in no joint figure."""
        return self.name.partition("@")[2]


@dataclass(frozen=True)
class Archive:
    """The published runs of one paper: a folder with one subfolder per run.

    ``how`` ends the message about a run that is not there: the command that makes one. With a ``label``
    every run is the one of that label, ``smollm2-135m_peak-cf@mine``.
    """

    root: Path
    how: str = "python -m helpers publish PARAMS"
    label: str = ""

    def names(self) -> list[str]:
        """Runs at hand, such as ``smollm2-135m_peak-cf``."""
        return sorted(path.parent.name for path in self.root.glob("*/about.json"))

    def get(self, run: str) -> Run:
        """One run.

        Raises:
            ArchiveError: no such run; the message names those at hand. A table whose bytes are not
                those that were published is refused when it is read.
        """
        folder = self.folder(run)
        path = folder / "about.json"
        if not path.exists():
            there = ", ".join(self.names()) or "none"
            raise ArchiveError(
                f"no run {run!r} in {self.root}; there are: {there}; make it with {self.how}"
            )
        said = read_about(path)
        tables = StoredTables(folder, said.pop("tables"))
        return Run(folder.name, About(**said), tables)

    def known(self, run: str) -> Run | None:
        """One run, or None where there is none."""
        return self.get(run) if (self.folder(run) / "about.json").exists() else None

    def check(self, run: str, about: About) -> None:
        """Refuse what ``put`` would refuse for its source, before time is spent on it.

        Raises:
            ArchiveError: the run was made from another source.
        """
        if known := self.known(run):
            _check_alike(self.folder(run), known.about.source, _as_read(about).source)

    def runs(self) -> list[Run]:
        """All runs, by name."""
        return [self.get(name) for name in self.names()]

    def put(
        self,
        run: str,
        tables: Mapping[str, pd.DataFrame],
        about: About,
        *,
        by: Sequence[str] = (),
        whole: bool = False,
    ) -> Path:
        """Add tables to a run, which is made where there is none. Tables without rows are left out.

        Args:
            tables: by name. A table takes the place of one that has its name.
            by: columns. In a table that has them, only rows that are equal there give way to new
                ones; the others stay.
            whole: these tables are all of the run; what it held before goes.

        Returns:
            The run's folder.

        Raises:
            ArchiveError: the run was made from another source, or a table would lose rows that were
                made with the same settings. Nothing is written then.
        """
        folder = self.folder(run)
        new = _as_read(about)
        known = (None if whole else self.known(run)) or Run(run, new, {})
        _check_alike(folder, known.about.source, new.source)
        filled = {name: table for name, table in tables.items() if len(table)}
        if by:
            _check_settings(folder, known, filled, new)
            filled = {name: _joined(known, name, rows, by) for name, rows in filled.items()}
        else:
            _check_nothing_lost(folder, known, filled, new)
        joined = About(
            source=known.about.source,
            settings={**known.about.settings, **new.settings},
            caption={**known.about.caption, **new.caption},
        )
        listed = known.tables.listed if isinstance(known.tables, StoredTables) else {}
        write_tables(folder, filled, asdict(joined), listed)
        return folder

    def folder(self, run: str) -> Path:
        """Where a run is, or would be."""
        return self.root / file_name(f"{run}@{self.label}" if self.label else run)


@cache
def archive(paper: str) -> Archive:
    """The committed archive of a paper, such as ``archive("klob")``."""
    return Archive(DATA / paper)


def _as_read(about: About) -> About:
    """As JSON gives it back, where tuples are lists."""
    return About(**json.loads(json.dumps(asdict(about))))


def _check_alike(what: Path, known: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    differing = [key for key in new if key not in known or known[key] != new[key]]
    if differing:
        words = "; ".join(
            f"{key} {known.get(key, 'unknown')!r}, now {new[key]!r}" for key in differing
        )
        raise ArchiveError(
            f"{what} was made otherwise ({words}), so its rows and these cannot stand together: run"
            " with the stored settings, or publish under --name NAME"
        )


def _check_settings(folder: Path, known: Run, tables: Mapping[str, object], new: About) -> None:
    """Rows of one table are made with the settings that its name has, if it has some."""
    for name in tables:
        if name in known.tables:
            settings = new.settings.get(name, {})
            _check_alike(folder / name, known.about.settings.get(name, {}), settings)


def _check_nothing_lost(
    folder: Path, known: Run, tables: Mapping[str, pd.DataFrame], new: About
) -> None:
    for name, table in tables.items():
        if name not in known.tables or known.about.settings.get(name) != new.settings.get(name):
            continue
        there = len(known.tables[name])
        if len(table) < there:
            raise ArchiveError(
                f"{folder} holds {there} rows of {name}, this run has {len(table)}: run with as many"
                " records, or publish under --name NAME"
            )


def _joined(known: Run, name: str, rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """The rows of a stored table that differ in ``by`` from all new ones, then the new ones."""
    import pandas as pd

    if name not in known.tables or not set(by) <= set(rows):
        return rows
    stored = known.tables[name]
    replaced = pd.MultiIndex.from_frame(rows[list(by)])
    kept = stored[~pd.MultiIndex.from_frame(stored[list(by)]).isin(replaced)]
    return pd.concat([kept, rows], ignore_index=True)
