"""A table as a file or as text for another program: CSV, LaTeX, Markdown, HTML or a spreadsheet."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from helpers import UserError
from helpers.paths import write_whole, written_whole
from helpers.records import did_you_mean
from helpers.results.notes import AnyTable, as_shown

FORMATS = {"csv": ".csv", "latex": ".tex", "md": ".md", "html": ".html", "xlsx": ".xlsx"}
_TEXT_FORMATS = [name for name in FORMATS if name != "xlsx"]


def format_of(path: Path) -> str:
    """The format that a file's ending asks for; a ``UserError`` for any other."""
    formats = {ending: name for name, ending in FORMATS.items()}
    ending = path.suffix.lower()
    if ending not in formats:
        hint = did_you_mean(ending, formats)
        raise UserError(f"{path}: no table ends in {ending!r}{hint}: use {', '.join(formats)}")
    if formats[ending] == "xlsx" and find_spec("openpyxl") is None:
        raise UserError(f"{path}: spreadsheets need openpyxl (pip install openpyxl); or use .csv")
    return formats[ending]


def write_table(table: AnyTable, path: Path) -> None:
    """Write a table to a file, in the format of its ending."""
    format_name = format_of(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if format_name == "xlsx":
        with written_whole(path) as scratch:
            _with_flat_titles(as_shown(table).table).to_excel(
                scratch, index=False, engine="openpyxl"
            )
    else:
        write_whole(path, table_text(table, format_name))


def table_text(table: AnyTable, format_name: str = "md", *, title: str = "") -> str:
    """A table as text; title and note are above and below it, but for CSV, which has rows alone."""
    if format_name not in _TEXT_FORMATS:
        hint = did_you_mean(format_name, _TEXT_FORMATS)
        raise UserError(f"no format {format_name!r}{hint}: use {', '.join(_TEXT_FORMATS)}")
    shown = as_shown(table)
    flat_table = _with_flat_titles(shown.table)
    if format_name == "csv":
        return flat_table.to_csv(index=False, float_format="%.6g")
    cell_texts = flat_table.astype(object).map(_cell_text)
    if format_name == "latex":
        notes = [f"% {line}" for text in (title, shown.note) for line in text.splitlines()]
        return "\n".join([*notes, _latex(cell_texts)])
    if format_name == "html":
        table_html = cell_texts.to_html(index=False, border=0)
        text_parts = [
            f"<p>{title}</p>" if title else "",
            table_html,
            f"<p>{shown.note}</p>" if shown.note else "",
        ]
    else:
        text_parts = [
            f"{title}\n" if title else "",
            _markdown(cell_texts),
            f"\n{shown.note}" if shown.note else "",
        ]
    return "\n".join(filter(None, text_parts)) + "\n"


def _with_flat_titles(table: pd.DataFrame) -> pd.DataFrame:
    """A table with its row titles, unless they only number the rows, as columns; one line of titles."""
    is_numbered = isinstance(table.index, pd.RangeIndex) and not table.index.name
    flat_table = table.copy() if is_numbered else table.reset_index()
    title_levels = [name if isinstance(name, tuple) else (name,) for name in flat_table.columns]
    flat_table.columns = pd.Index(
        [" ".join(str(part) for part in title if part != "") for title in title_levels]
    )
    return flat_table


def _cell_text(value: object) -> str:
    if isinstance(value, float):
        return "–" if pd.isna(value) else f"{value:.4g}"
    return "–" if value is None or value is pd.NA else str(value)


def _markdown(texts: pd.DataFrame) -> str:
    def row(cells: list[str]) -> str:
        escaped = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
        return f"| {' | '.join(escaped)} |"

    lines = [row(list(texts.columns)), row(["---"] * texts.shape[1])]
    return "\n".join([*lines, *(row(cells) for cells in texts.to_numpy().tolist())])


_LATEX_SIGNS = {"\\": r"\textbackslash{}", **{sign: f"\\{sign}" for sign in "&%$#_{}"}}
_LATEX_SIGNS |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\n": " "}
_LATEX_SIGNS |= {"±": r"$\pm$", "†": r"\dag{}", "‡": r"\ddag{}", "–": "--", "−": "$-$"}
_LATEX_SIGNS |= {"α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "<": r"$<$", ">": r"$>$"}


def _latex(texts: pd.DataFrame) -> str:
    def row(cells: list[str]) -> str:
        escaped = ("".join(_LATEX_SIGNS.get(sign, sign) for sign in cell) for cell in cells)
        return f"{' & '.join(escaped)} \\\\"

    row_lines = [row(cells) for cells in texts.to_numpy().tolist()]
    columns = "l" * texts.shape[1]
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", row(list(texts.columns)), r"\midrule"]
    return "\n".join([*lines, *row_lines, r"\bottomrule", r"\end{tabular}", ""])
