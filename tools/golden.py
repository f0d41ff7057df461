"""The golden record: what a rewrite of the package must leave as it is, one digest a line.

``python -m tools.golden > before.txt`` before a change of structure, the same after it, then ``diff``.
Recorded are the rounded cells of every stored table, the data of every registered figure that stored
tables give, the results page's tables, the headlines, and the texts of the notebooks' outputs.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from importlib import import_module

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from helpers.paths import FIGURES, NOTEBOOKS, REPOSITORY
from helpers.results.figure import published

DIGITS = 5  # significant digits that are compared: rounding in another order is no difference


def digest(*parts: object) -> str:
    """Twelve hex digits of what the parts print."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:12]


def rounded(values: object) -> list[str]:
    """Numbers with ``DIGITS`` significant digits, no negative zero; anything else as text."""
    array = np.asarray(values)
    if array.dtype.kind != "f":
        return [str(value) for value in array.ravel()]
    return [f"{value + 0.0:.{DIGITS}g}" for value in array.ravel()]


def stored_tables() -> Iterator[tuple[str, str]]:
    """Every table of the archive, its columns in the order of their names."""
    for path in sorted((FIGURES / "data").rglob("*.parquet")):
        table = pd.read_parquet(path)
        cells = [(name, *rounded(table[name].to_numpy())) for name in sorted(map(str, table))]
        yield f"table {path.relative_to(FIGURES / 'data')}", digest(*cells)


def drawn(figure: Figure) -> str:
    """The data and texts of a figure's axes."""
    found: list[object] = []
    for axes in figure.axes:
        found += [rounded(line.get_xydata()) for line in axes.lines]
        found += [rounded(patch.get_path().vertices) for patch in axes.patches]
        found += [rounded(np.asarray(group.get_offsets())) for group in axes.collections]
        found += [
            rounded(path.vertices) for group in axes.collections for path in group.get_paths()
        ]
        texts = [*axes.texts, axes.title, axes.xaxis.label, axes.yaxis.label]
        found += [text.get_text() for text in texts]
    return digest(*found, *(text.get_text() for text in figure.texts))


def figures() -> Iterator[tuple[str, str]]:
    """Every registered figure of stored tables."""
    for name, entry in published().items():
        figure = entry.draw()
        yield f"figure {name}", drawn(figure)
        plt.close(figure)


def pages() -> Iterator[tuple[str, str]]:
    """The results page, a line for each of its sections, and the headlines."""
    sys.path.insert(0, str(REPOSITORY / "book"))
    results_page = import_module("tables").results_page
    from tools.headlines.__main__ import all_headlines

    for section in results_page().split("\n### "):
        yield f"page {section.splitlines()[0]}", digest(section)
    for headline in all_headlines():
        yield f"headline {headline.number}", digest(headline.line())


def outputs() -> Iterator[tuple[str, str]]:
    """Texts of the notebooks' outputs, a line for each."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        for number, cell in enumerate(json.loads(path.read_text("utf-8"))["cells"]):
            for place, output in enumerate(cell.get("outputs", ())):
                text = output.get("text") or output.get("data", {}).get("text/plain", "")
                yield f"output {path.stem} cell {number} output {place}", digest("".join(text))


if __name__ == "__main__":
    for part in (stored_tables, figures, pages, outputs):
        for name, value in part():
            print(value, name, flush=True)
