"""Every number in a notebook's sentences about its results is in the outputs of its own section.

A weak check, since it does not know which output a sentence is about: it finds sentences that an
execution with other numbers has left behind, and numbers that no output shows. A section without code
(the conclusions) is held to the whole notebook. The boxes under the titles are held to the published
tables by ``tests/test_headlines.py``.
"""

from __future__ import annotations

import re

import nbformat
import numpy as np
import pytest

from helpers.execute import RESULTS
from helpers.paths import NOTEBOOKS

_LEFT_OUT = re.compile(r"`[^`]*`|\]\([^)]*\)|\(\d{4}\)|p < 0\.05")
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")


def numbers(text: str) -> list[str]:
    return [found.replace(",", "") for found in _NUMBER.findall(_LEFT_OUT.sub("", text))]


def sections(notebook: nbformat.NotebookNode) -> list[list[nbformat.NotebookNode]]:
    """The cells from one second-level heading to the next."""
    parts: list[list[nbformat.NotebookNode]] = [[]]
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and re.search("^## ", cell.source, re.MULTILINE):
            parts.append([])
        parts[-1].append(cell)
    return parts


def shown(cells: list[nbformat.NotebookNode]) -> np.ndarray:
    """All numbers in the code and its outputs, also as percentages."""
    texts = []
    for cell in cells:
        if cell.cell_type == "code":
            texts.append(cell.source)
            texts += [
                o.get("text") or o.get("data", {}).get("text/plain", "") for o in cell.outputs
            ]
    found = re.findall(r"\d[\d,]*\.?\d*", "\n".join(texts))
    values = np.array([float(each.replace(",", "")) for each in found])
    return np.concatenate([values, 100 * values])


def stands(number: str, values: np.ndarray) -> bool:
    digits = len(number.partition(".")[2])
    return bool((np.abs(values - float(number)) <= 0.5001 * 10.0**-digits).any())


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_numbers_in_sentences_about_results_are_in_the_outputs_of_their_section(path):
    notebook = nbformat.read(path, as_version=4)
    assert any(RESULTS in cell.metadata.get("tags", []) for cell in notebook.cells)
    left_behind = []
    for cells in sections(notebook):
        has_code = any(cell.cell_type == "code" for cell in cells)
        values = shown(cells if has_code else notebook.cells)
        left_behind += [
            (number, cell.source[:60])
            for cell in cells
            if cell.cell_type == "markdown" and RESULTS in cell.metadata.get("tags", [])
            for number in numbers(cell.source)
            if not stands(number, values)
        ]
    assert left_behind == []


def test_a_number_is_found_rounded_or_in_percent():
    values = np.array([0.876, 12, 87.6, 1200])
    assert all(stands(number, values) for number in ("0.88", "87.6", "88", "12"))
    assert not any(stands(number, values) for number in ("0.86", "12.4"))
    assert numbers("In `k = 3` of 1,962 records (2024) it is 0.5.") == ["1962", "0.5"]
