"""What is said of the package can be counted, and additions stay small."""

from __future__ import annotations

import pytest

from benchmarks import house
from helpers.paths import NOTEBOOKS


def test_lines_add_up():
    rooms = house.lines_by_room()
    assert sum(room["files"] for room in rooms.values()) == len(house.python_files())
    for room in rooms.values():
        assert 0 < room["docstrings"] < room["lines"]


def test_density_is_that_of_a_plain_house():
    characters, longest = house.density()
    assert 30 < characters < 43
    assert 10 < longest < 40


@pytest.mark.parametrize(
    ("what", "most"),
    [("a coefficient of APP", 3), ("an editor", 1), ("a published figure", 1)],
)
def test_an_addition_touches_few_files(what, most):
    assert 1 <= len(house.files_naming(house.ADDITIONS[what])) <= most


def test_publish_climbs_seldom():
    assert len(house.climbs_of_publish()) <= 4


def test_a_climb_would_be_counted(monkeypatch):
    upside_down = tuple(reversed(house.LEVELS))
    monkeypatch.setattr(house, "LEVELS", upside_down)
    assert house.climbs_of_publish()


def test_the_modules_of_a_notebook_are_those_it_loads():
    (notebook,) = NOTEBOOKS.glob("01_*.ipynb")
    loaded = house.modules_of_notebook(notebook)
    assert {"helpers.peak.additivity", "helpers.editing.kn"} <= set(loaded)
    assert "helpers.sweeps.command" not in loaded
