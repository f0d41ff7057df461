"""Every number in a notebook's sentences about its results stands in its outputs, as it is or rounded.

A weak check, since it does not know which output a sentence is about: it finds sentences that an
execution with other numbers has left behind. The boxes under the titles are held to the published
tables by ``tests/test_headlines.py``.
"""

from __future__ import annotations

import re

import nbformat
import numpy as np
import pytest

from helpers.cells import RESULTS
from helpers.paths import NOTEBOOKS

_LEFT_OUT = re.compile(r"`[^`]*`|\]\([^)]*\)|\(\d{4}\)|p < 0\.05")
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")


def numbers(text: str) -> list[str]:
    return [found.replace(",", "") for found in _NUMBER.findall(_LEFT_OUT.sub("", text))]


def shown(notebook: nbformat.NotebookNode) -> np.ndarray:
    """All numbers in outputs, parameters and the box, also as percentages and as what is left of 100 %."""
    texts = [notebook.cells[0].source]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            texts.append(cell.source)
            texts += [
                o.get("text") or o.get("data", {}).get("text/plain", "") for o in cell.outputs
            ]
    found = re.findall(r"\d[\d,]*\.?\d*", "\n".join(texts))
    values = np.array([float(each.replace(",", "")) for each in found])
    return np.concatenate([values, 100 * values, 100 - values, 100 * (1 - values)])


def stands(number: str, values: np.ndarray) -> bool:
    digits = len(number.partition(".")[2])
    return bool((np.abs(values - float(number)) <= 0.5001 * 10.0**-digits).any())


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_numbers_in_sentences_about_results_stand_in_the_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    values = shown(notebook)
    sentences = [
        cell.source
        for cell in notebook.cells
        if cell.cell_type == "markdown" and RESULTS in cell.metadata.get("tags", [])
    ]
    assert sentences
    left_behind = [
        (number, text[:60])
        for text in sentences
        for number in numbers(text)
        if not stands(number, values)
    ]
    assert left_behind == []


def test_a_number_is_found_rounded_in_percent_or_as_the_rest():
    values = np.concatenate([[0.876, 12], [87.6, 1200], [99.124, 88], [12.4, -1100]])
    assert all(stands(number, values) for number in ("0.88", "87.6", "88", "12"))
    assert not stands("0.86", values)
    assert numbers("In `k = 3` of 1,962 records (2024) it is 0.5.") == ["1962", "0.5"]
