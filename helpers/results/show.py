"""What a notebook shows: a table for readers, or a figure by its name."""

from __future__ import annotations

from base64 import b64encode
from html import escape
from io import BytesIO
from typing import Any

import pandas as pd
from IPython.display import display
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from helpers.paths import file_name, tables_folder
from helpers.results.figure import drawing, published
from helpers.results.style import save_figure

_SCREEN = 100  # pixels of a figure on the page to an inch; it is drawn with twice as many
# The first column stays in sight while the others scroll. Colours are the page's own.
_LOOK = (
    "<style>.ke-table{overflow-x:auto;max-width:100%}"
    ".ke-table td{text-align:right;white-space:nowrap}"
    ".ke-table tr>:first-child{text-align:left;position:sticky;left:0;"
    "background:var(--jp-layout-color0,var(--color-background-primary,#fff))}</style>"
)


def show(what: str | pd.DataFrame, *values: Any, **options: Any) -> None:
    """Show a table, or draw a figure, save it and show it; ``helpers run`` keeps tables as CSV files.

    >>> show(table, title="Editing, percent")
    >>> show("05_share", run)

    Args:
        what: a table, or the name a figure is registered under (see ``helpers.results.figure``).
        values: what the figure is drawn from; nothing: the stored tables of that name.
        options: of a table: see ``table_output``, and ``name``, of its CSV file, by default its title; of
            a figure: what its function takes besides.

    Raises:
        FigureError: no such figure.
    """
    if isinstance(what, pd.DataFrame):
        _keep_as_csv(what, options.pop("name", "") or options.get("title", ""))
        display(table_output(what, **options), raw=True)
        return
    drawn, name, title = _drawn(what, *values, **options)
    try:
        save_figure(drawn, name)
        output, size = figure_output(drawn, f"figure {name}")
        display(output, raw=True, metadata={"image/png": size})
        display({"text/markdown": f"*{title}*", "text/plain": title}, raw=True)
    finally:
        plt.close(drawn)


def table_output(
    table: pd.DataFrame, *, title: str = "", decimals: int = 2, index: bool = True
) -> dict[str, str]:
    """A table as HTML for readers and as plain text, which a check of the notebook compares.

    Args:
        table: AFF and ANF columns come first, in both forms.
        title: a line over it: what it is of, and how many.
        decimals: of numbers that are not whole.
        index: whether the index is shown; it is the column that stays in sight.
    """
    ordered = _additivity_first(table)
    number = f"{{:.{decimals}f}}".format
    text = ordered.to_string(index=index, float_format=number, na_rep="–")
    html = ordered.to_html(index=index, border=0, float_format=number, na_rep="–")
    above = f"<p>{escape(title)}</p>" if title else ""
    return {
        "text/plain": f"{title}\n{text}" if title else text,
        "text/html": f'{_LOOK}{above}<div class="ke-table">{html}</div>',
    }


def figure_output(drawn: Figure, caption: str) -> tuple[dict[str, str], dict[str, int]]:
    """A figure as a PNG of twice the pixels it takes on the page, and that size."""
    buffer = BytesIO()
    drawn.savefig(buffer, dpi=2 * _SCREEN, metadata={"Software": None})
    width, height = (round(_SCREEN * inches) for inches in drawn.get_size_inches())
    image = b64encode(buffer.getvalue()).decode()
    return {"image/png": image, "text/plain": caption}, {"width": width, "height": height}


def _keep_as_csv(table: pd.DataFrame, name: str) -> None:
    """In a run: the table as a file, numbered in the order of the notebook, named by its first line."""
    if folder := tables_folder():
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.glob("*.csv"))) + 1
        first = file_name(name.partition("\n")[0])[:60] if name else "table"
        numbered = isinstance(table.index, pd.RangeIndex)
        table.to_csv(folder / f"{number:02d}-{first}.csv", index=not numbered)


def _drawn(name: str, *values: Any, **options: Any) -> tuple[Figure, str, str]:
    """A figure, the name of its files and its title."""
    if not values and not options and name in (entries := published(chapter=name[:2])):
        return entries[name].draw(), name, entries[name].title
    kind = drawing(name)
    return kind.draw(*values, **options), kind.file(*values, **options), kind.title


def _additivity_first(table: pd.DataFrame) -> pd.DataFrame:
    """The factors of additivity are what is asked; the rest follows in its own order."""
    columns = list(table.columns)
    first = [name for name in columns if str(name).startswith(("AFF", "ANF"))]
    return table[first + [name for name in columns if name not in first]] if first else table
