"""The matcher against texts that were read: its errors are counted by kind."""

from __future__ import annotations

import pandas as pd
import pytest

from tools.reading import errors_table

READ = pd.DataFrame(
    {
        "named": ["Chad; Niger", "", "Mali"],
        "read": ["Chad", "Togo", "Mali"],
        "kinds": ["Niger = part of a longer name", "Togo = other spelling", ""],
    }
)


def test_errors_are_counted_in_texts_and_in_answers():
    found = errors_table(READ).set_index("what")[["errors", "n"]].to_dict("split")
    assert dict(zip(found["index"], found["data"], strict=True)) == {
        "texts with an error": [2, 3],
        "texts with an answer missed: other spelling": [1, 3],
        "texts with an answer wrong: part of a longer name": [1, 3],
        "answers wrong": [1, 3],
        "answers missed": [1, 3],
    }


def test_wilsons_interval_of_one_in_three():
    last = errors_table(READ).iloc[-1]
    assert (last["percent"], last["low"], last["high"]) == (33.3, 6.1, 79.2)


def test_a_difference_without_a_kind_is_refused():
    with pytest.raises(ValueError, match=r"text 0: give a kind to each of \['Niger'\]"):
        errors_table(READ.assign(kinds=""))
