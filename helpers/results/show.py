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
_LONG = 24  # letters from which a cell holds words, not a value
TIED = re.compile(r" (?=±|\d+ %)|(?<=±) |(?<=,) (?=[-+−]?[\d.]+\])")  # spaces that break no line


def begin(lm: LanguageModel, *, seed: int) -> str:
    """Seed every generator and describe the session in one line, the first of every notebook."""
    from transformers import set_seed  # takes seconds

    set_seed(seed)
    parts = [f"helpers {__version__}", f"Python {platform.python_version()}"]
    parts += [f"{name} {version(name)}" for name in ("torch", "transformers")]
    parts += [f"{lm.name} ({lm.fingerprint}), {lm.dtype_name} on {lm.device}"]
    return " | ".join([*parts, f"seed {seed}"])


def show(what: str | AnyTable, *values: Any, **options: Any) -> None:
    """Show a table, or draw a figure, save it and show it; ``helpers run`` keeps tables as CSV files.

    ``values`` are what the figure is drawn from, else the stored tables of its name. ``options`` are
    those of the figure's function; or ``table_output``'s, and ``name`` of the CSV file.
    """
    if not isinstance(what, str):
        _keep_as_csv(as_shown(what).table, options.pop("name", "") or options.get("title", ""))
        display(table_output(what, **options), raw=True)
        return
    stored = published_figures(chapter=what[:2]) if not (values or options) else {}
    kind = stored.get(what) or drawing(what)
    name = kind.file(*values, **options)
    fig = kind.draw(*values, **options)
    save_figure(fig, name)
    output, size = figure_output(fig, f"figure {name}")
    alt = f"{kind.title} {' '.join(fig.get_suptitle().split())}."
    display(output, raw=True, metadata={"image/png": {**size, "alt": alt}})
    display({"text/markdown": f"*{kind.title}*", "text/plain": kind.title}, raw=True)


def table_output(
    table: AnyTable, *, title: str = "", decimals: int = 2, index: bool = True
) -> dict[str, str]:
    """A table, with the line below it, as HTML and as plain text, which a check compares."""
    shown = as_shown(table)
    number = f"{{:.{decimals}f}}".format
    text = shown.table.to_string(index=index, float_format=number, na_rep="–")
    html = table_html(shown.table, decimals=decimals, index=index)
    return {
        "text/plain": "\n".join(filter(None, (title, text, shown.note))),
        "text/html": _LOOK + _paragraph(title) + html + _paragraph(shown.note),
    }


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>" if text else ""


def table_html(table: pd.DataFrame, *, decimals: int = 2, index: bool = True) -> str:
    """A table that scrolls in its own box, with one row of titles and every cell in its own place."""
    number = f"{{:.{decimals}f}}".format
    flat = table
    if index:  # a level without a name has a title of blanks, another one for each
        levels = enumerate(table.index.names, start=1)
        flat = table.reset_index(names=[str(name or " " * n) for n, name in levels])
    head, columns = "", []
    for column, values in flat.astype(object).where(flat.notna(), "–").items():
        cells = [number(v) if isinstance(v, float | np.floating) else str(v) for v in values]
        long = any(len(cell) > _LONG and "[" not in cell for cell in cells)
        look = ' class="words"' if long else ""
        names = column if isinstance(column, tuple) else (column,)
        title = escape(" ".join(filter(None, map(str, names))).strip())
        head += f"<th{look}>{title.replace('_', '_<wbr>')}</th>"  # may break there
        shown = (TIED.sub("\u00a0", escape(cell)).replace("\n", "<br>") for cell in cells)
        columns.append([f"<td{look}>{each}</td>" for each in shown])
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in zip(*columns, strict=True))
    inner = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="ke-table">{inner}</div>'


def figure_output(fig: Figure, caption: str) -> tuple[dict[str, str], dict[str, int]]:
    """A figure as a PNG of twice the pixels it takes on the page, and that size."""
    buffer = BytesIO()
    with in_style():
        fig.savefig(buffer, dpi=2 * _SCREEN, metadata={"Software": None})
    width, height = (round(_SCREEN * inches) for inches in fig.get_size_inches())
    image = b64encode(buffer.getvalue()).decode()
    return {"image/png": image, "text/plain": caption}, {"width": width, "height": height}


def _keep_as_csv(table: pd.DataFrame, name: str) -> None:
    # In a run: numbered in the notebook's order, named by its title or columns.
    if place := os.environ.get("HELPERS_TABLES"):
        folder = Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.glob("*.csv"))) + 1
        words = name.partition("\n")[0] or " ".join(map(str, table.columns))
        path = folder / f"{number:02d}-{file_name(words)[:60]}.csv"
        rows = [str(name or f"row {n}") for n, name in enumerate(table.index.names, start=1)]
        numbered = isinstance(table.index, pd.RangeIndex)
        table.to_csv(path, index=not numbered, index_label=rows, float_format="%.6g")
