"""The results page says what is stored, and what is not."""

from __future__ import annotations

import importlib.util

import pytest

from helpers.paths import REPOSITORY


@pytest.fixture(scope="module")
def tables():
    spec = importlib.util.spec_from_file_location("tables", REPOSITORY / "book" / "tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_part_without_scores_says_so(tables, tmp_path):
    page = tables.results_page(tmp_path)
    assert page.count("\n## ") == 4
    assert page.count("*No scores are stored yet.*") == 4


def test_stored_scores_become_tables(tables):
    page = tables.results_page()
    assert page.count('<div class="table-scroll">') > page.count("*No scores are stored yet.*")
    assert "smollm2-135m on klob-mini" in page
    assert "### ROME on peak-cf, smollm2-135m" in page
    assert "AlphaEdit on" in page
    assert "+ALL" not in page  # the fairer baseline stands with its editor
