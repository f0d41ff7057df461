"""The probability of naming an entity by any of its names."""

import numpy as np
import pytest

from helpers.scoring.answers import Question, score_answers
from helpers.scoring.naming import exclusive, log_naming


def test_a_name_that_another_begins_is_covered_by_it(tiny):
    language_model = tiny("llama")
    names = ("New York City", "New York", "Gotham", "New York", "New")
    assert exclusive(language_model, names) == [2, 4]
    assert exclusive(language_model, names[:4]) == [1, 2]


def test_naming_adds_up_what_excludes_each_other(tiny):
    language_model = tiny("llama")
    names = ("Oslo", "Kristiania", "Oslo town")
    sums = score_answers(language_model, [Question("It lies in", names)])["sum"].to_numpy()
    kept = exclusive(language_model, names)
    assert kept == [0, 1]
    assert log_naming(sums[kept]) == pytest.approx(np.log(np.exp(sums[:2]).sum()))
    assert log_naming([-0.1, -0.2]) == 0.0  # more than certain: rounding
    assert np.isnan(log_naming([np.nan, -1.0]))
