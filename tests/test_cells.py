"""What a run executes of a notebook: no prose under other numbers, no published results unasked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from helpers.execute import tags, write_for_run
from helpers.params import defaults_of
from helpers.paths import NOTEBOOKS

ALL = sorted(NOTEBOOKS.glob("*.ipynb"))
TAGS = {path: set().union(*map(tags, json.loads(path.read_text("utf-8"))["cells"])) for path in ALL}
DRAWN = [path for path in ALL if "published" in TAGS[path]]


def cell(kind: str, source: str, *tags: str) -> dict[str, Any]:
    made = {"cell_type": kind, "id": source[:5], "metadata": {"tags": list(tags)}, "source": source}
    return {**made, "outputs": [], "execution_count": None} if kind == "code" else made


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    cells = [
        cell("markdown", "# Title\n\n<!-- made by python -m tools.headlines: 01 -->\np is 3\n<!-- end -->"),
        cell("code", 'model: str = "m"\npublished: list[str] = ["p"]\nresults: str = "runs"', "parameters"),
        cell("code", "load()", "shared"),
        cell("markdown", "about p", "published"),
        cell("code", "draw(published)", "published"),
        cell("markdown", "p is 3", "published", "results"),
        cell("markdown", "m is 4", "results"),
        cell("code", "work()"),
    ]  # fmt: skip
    path = tmp_path / "01_try.ipynb"
    path.write_text(
        json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    )
    return path


def sources(notebook: Path, part: str = "", **params: Any) -> list[str]:
    defaults = defaults_of(notebook)
    written = notebook.with_name("run.ipynb")
    write_for_run(notebook, {**defaults, **params}, written, cell_tag=part)
    return [each.source for each in nbformat.read(written, as_version=4).cells]


def test_the_notebooks_own_parameters_leave_it_as_it_is(notebook):
    assert len(sources(notebook)) == 8
    assert len(sources(notebook, results="runs/elsewhere")) == 8  # a place changes no number


def test_prose_does_not_stand_under_other_numbers(notebook):
    left = sources(notebook, model="other")
    assert left[0].strip() == "# Title"
    assert not {"p is 3", "m is 4"} & set(left)
    assert "draw(published)" in left


def test_published_results_are_drawn_where_they_are_asked_for(notebook):
    left = sources(notebook, published=[])
    assert "draw(published)" not in left
    assert "about p" not in left
    assert "work()" in left


def test_what_shards_share_is_executed_alone(notebook):
    assert [text.partition("\n")[0] for text in sources(notebook, "shared")] == [
        'model: str = "m"',
        "load()",
    ]


@pytest.mark.parametrize("part", ["", "shared"])
@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.stem)
def test_nothing_that_is_left_needs_what_is_left_out(path, part, tmp_path):
    if part and part not in TAGS[path]:
        pytest.skip("no sweep runs it")
    params = defaults_of(path)
    written = tmp_path / path.name
    write_for_run(path, {**params, "published": []}, written, cell_tag=part)
    options = ["check", "--isolated", "--select", "F821", str(written)]
    command = [sys.executable, "-m", "ruff", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
