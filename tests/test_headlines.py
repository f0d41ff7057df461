"""What the README and the notebooks say first is what the published tables show."""

from __future__ import annotations

import pytest

from helpers.paths import FIGURES
from helpers.results.statistics import Contrast, Estimate
from helpers.results.text import Evidence
from tools.headlines.__main__ import README, all_headlines, notebook, readme
from tools.headlines.headline import UnsupportedError, holds

NUMBERS = ("01", "02", "03", "04", "05", "06", "07")
REMEDY = "run python -m tools.headlines"


@pytest.fixture(scope="module")
def headlines():
    return {headline.number: headline for headline in all_headlines()}


def test_the_readme_has_the_numbers_of_the_published_tables(headlines):
    assert readme(headlines.values()) == README.read_text("utf-8"), REMEDY


@pytest.mark.parametrize("number", NUMBERS)
def test_a_notebook_begins_with_its_result(headlines, number):
    path, text = notebook(headlines[number])
    assert text == path.read_text("utf-8"), REMEDY
    assert len(headlines[number].numbers) in (3, 4)
    assert (FIGURES / f"{headlines[number].figure}.png").exists()


def test_a_sentence_that_the_tables_do_not_support_is_refused():
    def tested(low: float, high: float) -> Evidence:
        p_value = 0.3 if low < 0 < high else 0.01
        contrast = Contrast(Estimate((low + high) / 2, low, high, 9), p_value)
        return Evidence("f", contrast, higher="a", lower="b")

    assert holds([tested(0.1, 0.2)], "a - b")
    for evidence in ([tested(-0.1, 0.2)], [tested(-0.2, -0.1)], []):
        with pytest.raises(UnsupportedError, match=r"a - b: (inconclusive|reversed|not tested)"):
            holds(evidence, "a - b")
