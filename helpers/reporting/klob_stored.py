"""KLoB's published result tables, from which its figures are redrawn without a model.

``figures/data/klob/<model>_<source>/`` holds one parquet file per table and ``about.json``, which says
how they were made:

- *sentences*: spread and mean magnitude of each sentence's scores;
- *similarities*: Sim_cand and both Sim_all of each example at each share;
- *null*: permutation nulls; *layers*: pooled score per example and layer; *cost*: seconds a sentence;
- *edits*: log-probabilities after editing each fact at each layer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from helpers.paths import FIGURES, written_whole
from helpers.reporting.stored import write_about

FOLDER = FIGURES / "data" / "klob"
TABLES = ("sentences", "similarities", "null", "layers", "cost", "edits")


@dataclass(frozen=True)
class KlobRun:
    """Result tables of one model on one source, and how they were made."""

    about: dict[str, Any]
    tables: dict[str, pd.DataFrame]

    def __str__(self) -> str:
        by_counts: dict[str, list[str]] = {}
        for name, settings in self.about["locators"].items():
            counts = ", ".join(f"{n or 'all'} {part}" for part, n in settings["counts"].items())
            by_counts.setdefault(counts, []).append(name)
        most, *rest = sorted(by_counts, key=lambda counts: -len(by_counts[counts]))
        fewer = "".join(f"; {', '.join(by_counts[counts])}: {counts}" for counts in rest)
        return (
            f"ours: {self.about['model']} ({self.about['dtype']} on {self.about['device']}),"
            f" {self.about['source']}, {most}{fewer}"
        )


def stored_klob_runs(folder: Path = FOLDER) -> list[str]:
    """Names of the runs at hand."""
    return sorted(path.parent.name for path in folder.glob("*/about.json"))


def store_klob_run(
    name: str,
    tables: Mapping[str, pd.DataFrame],
    about: Mapping[str, Any] | None = None,
    folder: Path = FOLDER,
) -> Path:
    """Write tables that have rows, and ``about`` where it is given; others stay as they are."""
    root = folder / name
    root.mkdir(parents=True, exist_ok=True)
    for table, rows in tables.items():
        if len(rows):
            with written_whole(root / f"{table}.parquet") as scratch:
                rows.to_parquet(scratch, index=False, compression="zstd")
    if about is not None:
        write_about(root, about)
    return root


def add_klob_run(
    name: str,
    tables: Mapping[str, pd.DataFrame],
    about: Mapping[str, Any],
    folder: Path = FOLDER,
) -> Path:
    """Add locators to a stored run, in place of what it had of them; others stay as they are.

    Args:
        name: of the run; it is made where there is none.
        tables: with a column ``locator``.
        about: how they were made; ``locators`` by name.
        folder: where runs are stored.

    Raises:
        ValueError: the stored run was made with another model, source or setting.
    """
    if not (folder / name / "about.json").exists():
        return store_klob_run(name, tables, about, folder)
    stored = load_klob_run(name, folder)
    differing = sorted(
        key for key in about if key != "locators" and about[key] != stored.about.get(key)
    )
    if differing:
        raise ValueError(
            f"{folder / name} was made with another {', '.join(differing)};"
            " publish to another folder with --out"
        )
    kept = {
        table: rows[~rows["locator"].isin(about["locators"])]
        for table, rows in stored.tables.items()
        if table in tables
    }
    joined = {
        table: pd.concat([kept[table], rows], ignore_index=True) if table in kept else rows
        for table, rows in tables.items()
    }
    locators = {**stored.about["locators"], **about["locators"]}
    return store_klob_run(name, joined, {**about, "locators": locators}, folder)


def load_klob_run(name: str, folder: Path = FOLDER) -> KlobRun:
    """Read one stored run.

    Raises:
        KeyError: no such run; the message names those at hand and the command that makes one.
    """
    path = folder / name / "about.json"
    if not path.exists():
        raise KeyError(
            f"no stored run {name!r}; there are: {', '.join(stored_klob_runs(folder))}; make one with"
            " python -m helpers.publishing.klob --model MODEL --source SOURCE"
        )
    paths = {table: path.parent / f"{table}.parquet" for table in TABLES}
    tables = {table: pd.read_parquet(file) for table, file in paths.items() if file.exists()}
    return KlobRun(json.loads(path.read_text("utf-8")), tables)
