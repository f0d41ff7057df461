"""Stored tables of PEAK's construction, and the figures redrawn from them without a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from helpers.paths import FIGURES
from helpers.reporting.construction_figures import (
    construction_funnel,
    known_by_relation,
    list_sizes,
)

FOLDER = FIGURES / "data" / "construction"
_TITLES = {
    "02_funnel": "Facts lost at each step of PEAK's construction",
    "02_known": "What the model knows, per relation",
    "02_list_sizes": "Answers per record",
}


def store_construction(
    funnels: Mapping[str, Sequence[tuple[str, int]]],
    filtered: Mapping[str, pd.DataFrame],
    *,
    caption: str,
    folder: Path = FOLDER,
) -> None:
    """Write funnels and filter tables (no text of records beyond subject and relation).

    Args:
        funnels: for each set (step, facts left).
        filtered: for each set the table of ``apply_filter``.
        caption: source, model and rule.
        folder: where to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = [(name, *row) for name, steps in funnels.items() for row in steps]
    funnel = pd.DataFrame(rows, columns=["set", "step", "left"]).assign(caption=caption)
    funnel.to_parquet(folder / "funnel.parquet", index=False)
    tables = [table.assign(set=name) for name, table in filtered.items()]
    pd.concat(tables, ignore_index=True).to_parquet(folder / "filter.parquet", index=False)


def construction_figures(
    folder: Path = FOLDER,
) -> Iterator[tuple[str, str, Callable[[], Figure]]]:
    """Name, title and drawing of every figure, if the tables are stored."""
    if not (folder / "funnel.parquet").is_file():
        return
    funnel = pd.read_parquet(folder / "funnel.parquet")
    table = pd.read_parquet(folder / "filter.parquet")
    caption = str(funnel["caption"].iloc[0])
    funnels = {
        str(name): list(zip(part["step"], part["left"], strict=True))
        for name, part in funnel.groupby("set", sort=False)
    }
    kept = table[table["step"] == ""]
    sizes = {str(name): part for name, part in kept.groupby("set", sort=False)}
    drawings: dict[str, Callable[[], Figure]] = {
        "02_funnel": lambda: construction_funnel(funnels, caption=caption),
        "02_known": lambda: known_by_relation(table, caption=caption),
        "02_list_sizes": lambda: list_sizes(sizes, caption=caption),
    }
    for name, draw in drawings.items():
        yield name, _TITLES[name], draw
