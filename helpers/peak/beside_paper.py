"""Our means and the paper's, row by row, each labelled with its table, model and data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from helpers.peak.metrics_table import summarise
from helpers.peak.tables import MAIN_METRICS
from helpers.results.text import published_table

MAIN_TABLES = ("peak_table_3", "peak_table_4", "peak_table_9")
PAPER_NAMES = {"FT-L": "FT", "FT-L+APP": "FT+APP"}  # whose FT has that objective


@dataclass(frozen=True)
class PaperSetting:
    """One model on one data set in one of the paper's tables."""

    table: str
    model: str
    dataset: str

    @property
    def label(self) -> str:
        """``PEAK, Table 3: gpt2-xl, peak-cf``."""
        return f"PEAK, Table {self.table.rsplit('_', 1)[1]}: {self.model}, {self.dataset}"

    def rows(self) -> pd.DataFrame:
        """The setting's published rows."""
        rows = published_table(self.table)
        return rows[(rows["model"] == self.model) & (rows["dataset"] == self.dataset)]


def paper_setting(model: str, dataset: str) -> list[PaperSetting]:
    """What the paper has beside a run: the same model, or all its models, on the same data set.

    Packaged and other sets stand beside the official one of their kind: PEAK-T where the name ends
    in ``-t``, else PEAK-CF.
    """
    kind = "peak-t" if dataset.endswith("-t") else "peak-cf"
    tables = {name: published_table(name) for name in MAIN_TABLES}
    every = [
        PaperSetting(name, each, kind)
        for name, rows in tables.items()
        for each in rows.loc[rows["dataset"] == kind, "model"].drop_duplicates()
    ]
    return [setting for setting in every if setting.model == model] or every


def beside_paper(
    by_record: Mapping[str, pd.DataFrame],
    settings: Sequence[PaperSetting],
    *,
    metrics: Sequence[str] = MAIN_METRICS,
) -> pd.DataFrame:
    """Our means, and under each method the paper's, as text; ``*`` marks a slip in the paper.

    The paper's LS is what its code computes: it stands under ``LS_authors``, which is always there
    beside our own LS. That one is titled ``LS_held``: each prompt's own answer, where it held before.
    """
    metrics = [m for m in metrics if m != "LS_authors"]
    if "LS" in metrics:
        metrics.insert(metrics.index("LS") + 1, "LS_authors")
    rows = []
    for method, table in by_record.items():
        means = 100 * summarise(table[list(metrics)])["mean"]
        rows.append((method, "ours", *(f"{means[metric]:.1f}" for metric in metrics)))
        for setting in settings:
            published = setting.rows()
            fairer, plus, _ = method.partition("+ (")  # a weighting of a baseline
            named = fairer + "+" if plus else PAPER_NAMES.get(method, method)
            own = published[published["method"] == named]
            cells = own.replace({"metric": {"LS": "LS_authors"}}).set_index("metric")
            if len(cells):
                rows.append((method, setting.label, *(_cell(cells, name) for name in metrics)))
    columns = ["method", "source", *("LS_held" if m == "LS" else m for m in metrics)]
    return pd.DataFrame(rows, columns=columns).set_index(["method", "source"])


def paper_notes(settings: Sequence[PaperSetting]) -> list[str]:
    """What is wrong with the numbers marked ``*``, one line per method."""
    lines = []
    for setting in settings:
        rows = setting.rows()
        slips = rows[rows["note"].str.contains("slip")]
        for (method, note), group in slips.groupby(["method", "note"]):
            lines.append(f"* {setting.label}, {method}, {', '.join(group['metric'])}: {note}")
    return lines


def _cell(cells: pd.DataFrame, metric: str) -> str:
    if metric not in cells.index:
        return "–"
    row = cells.loc[metric]
    return f"{row['value']:.1f}" + ("*" if "slip" in row["note"] else "")
