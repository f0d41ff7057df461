"""What a notebook shows: what runs where, a table for readers, or a figure by its name."""

from __future__ import annotations

import os
import platform
import re
from base64 import b64encode
from html import escape
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from IPython.display import display
from matplotlib.figure import Figure

from helpers import __version__
from helpers.paths import PACKAGED, file_name
from helpers.results.figure import drawing, published_figures
from helpers.results.notes import AnyTable, as_shown
from helpers.results.style import in_style, save_figure

if TYPE_CHECKING:
    from helpers.models import LanguageModel

_SCREEN = 100  # pixels of a figure on the page to an inch; it is drawn with twice as many
# The first column stays in sight while the others scroll; numbers and intervals stay on one line.
# Colours are the page's own.
_LOOK = f"<style>{(PACKAGED / 'table.css').read_text()}</style>"
STATISTICS = "../docs/statistics.md"  # seen from a notebook
_LONG = 24  # letters from which a cell holds words, not a value
TIED = re.compile(r" (?=±|\d+ %)|(?<=±) |(?<=,) (?=[-+−]?[\d.]+\])")  # spaces that break no line


def begin(lm: LanguageModel, *, seed: int) -> str:
    """Seed every generator and describe the session in one line, the first of every notebook."""
    from transformers import set_seed  # takes seconds

    set_seed(seed)
    session_parts = [f"helpers {__version__}", f"Python {platform.python_version()}"]
    session_parts += [f"{package} {version(package)}" for package in ("torch", "transformers")]
    session_parts += [f"{lm.name} ({lm.fingerprint}), {lm.dtype_name} on {lm.device}"]
    return " | ".join([*session_parts, f"seed {seed}"])


def show(what: str | AnyTable, *values: Any, **options: Any) -> None:
    """Show a table, or draw a figure, save it and show it; ``helpers run`` keeps tables as CSV files.

    ``values`` are what the figure is drawn from, else the stored tables of its name. ``options`` are
    those of the figure's function; or ``table_output``'s, and ``name`` of the CSV file.
    """
    if not isinstance(what, str):
        _keep_as_csv(as_shown(what).table, options.pop("name", "") or options.get("title", ""))
        display(table_output(what, **options), raw=True)
        return
    stored_figures = published_figures(chapter=what[:2]) if not (values or options) else {}
    shown_drawing = stored_figures.get(what) or drawing(what)
    figure_name = shown_drawing.file(*values, **options)
    fig = shown_drawing.draw(*values, **options)
    save_figure(fig, figure_name)
    output, png_size = figure_output(fig, f"figure {figure_name}")
    alt = f"{shown_drawing.title} {' '.join(fig.get_suptitle().split())}."
    display(output, raw=True, metadata={"image/png": {**png_size, "alt": alt}})
    display(
        {"text/markdown": f"*{shown_drawing.title}*", "text/plain": shown_drawing.title}, raw=True
    )


def table_output(
    table: AnyTable, *, title: str = "", decimals: int = 2, index: bool = True
) -> dict[str, str]:
    """A table, with the line below it, as HTML and as plain text, which a check compares."""
    shown = as_shown(table)
    number_format = f"{{:.{decimals}f}}".format
    plain_text = shown.table.to_string(index=index, float_format=number_format, na_rep="–")
    html_table = table_html(shown.table, decimals=decimals, index=index)
    return {
        "text/plain": "\n".join(filter(None, (title, plain_text, shown.note))),
        "text/html": _LOOK + _paragraph(title) + html_table + _footnote(shown.note),
    }


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>" if text else ""


def _footnote(note: str) -> str:
    """The line below a table, and where its intervals and tests are explained (from ``notebooks/``)."""
    return f'<p>{escape(note)} · <a href="{STATISTICS}">statistics</a></p>' if note else ""


def table_html(table: pd.DataFrame, *, decimals: int = 2, index: bool = True) -> str:
    """A table that scrolls in its own box, with one row of titles and every cell in its own place."""
    number_format = f"{{:.{decimals}f}}".format
    flat_table = table
    if index:  # a level without a name has a title of blanks, another one for each
        numbered_names = enumerate(table.index.names, start=1)
        level_titles = [str(level_name or " " * number) for number, level_name in numbered_names]
        flat_table = table.reset_index(names=level_titles)
    head_cells = ""
    cells_by_column = []
    for column, column_values in flat_table.astype(object).where(flat_table.notna(), "–").items():
        cells = [
            number_format(value) if isinstance(value, float | np.floating) else str(value)
            for value in column_values
        ]
        has_long_cell = any(len(cell) > _LONG and "[" not in cell for cell in cells)
        class_attribute = ' class="words"' if has_long_cell else ""
        title_parts = column if isinstance(column, tuple) else (column,)
        column_title = escape(" ".join(filter(None, map(str, title_parts))).strip())
        breakable_title = column_title.replace("_", "_<wbr>")  # may break there
        head_cells += f"<th{class_attribute}>{breakable_title}</th>"
        cell_texts = (TIED.sub("\u00a0", escape(cell)).replace("\n", "<br>") for cell in cells)
        cells_by_column.append([f"<td{class_attribute}>{text}</td>" for text in cell_texts])
    body_rows = "".join(f"<tr>{''.join(row)}</tr>" for row in zip(*cells_by_column, strict=True))
    table_element = f"<table><thead><tr>{head_cells}</tr></thead><tbody>{body_rows}</tbody></table>"
    return f'<div class="ke-table">{table_element}</div>'


def figure_output(fig: Figure, caption: str) -> tuple[dict[str, str], dict[str, int]]:
    """A figure as a PNG of twice the pixels it takes on the page, and that size."""
    buffer = BytesIO()
    with in_style():
        fig.savefig(buffer, dpi=2 * _SCREEN, metadata={"Software": None})
    pixel_width, pixel_height = (round(_SCREEN * inches) for inches in fig.get_size_inches())
    encoded_png = b64encode(buffer.getvalue()).decode()
    output = {"image/png": encoded_png, "text/plain": caption}
    return output, {"width": pixel_width, "height": pixel_height}


def _keep_as_csv(table: pd.DataFrame, name: str) -> None:
    # In a run: numbered in the notebook's order, named by its title or columns.
    if tables_folder := os.environ.get("HELPERS_TABLES"):
        folder = Path(tables_folder)
        folder.mkdir(parents=True, exist_ok=True)
        table_number = len(list(folder.glob("*.csv"))) + 1
        file_words = name.partition("\n")[0] or " ".join(map(str, table.columns))
        csv_file = folder / f"{table_number:02d}-{file_name(file_words)[:60]}.csv"
        numbered_names = enumerate(table.index.names, start=1)
        index_labels = [str(level_name or f"row {number}") for number, level_name in numbered_names]
        is_numbered = isinstance(table.index, pd.RangeIndex)
        table.to_csv(csv_file, index=not is_numbered, index_label=index_labels, float_format="%.6g")
