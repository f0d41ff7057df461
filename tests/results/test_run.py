"""A resumable run makes what is missing, once, chunk by chunk, and keeps each chunk."""

from __future__ import annotations

from itertools import accumulate

import pandas as pd
import pytest

from helpers.results.run import Cases
from helpers.results.store import ResultsStore

NAMES = {1: "one", 2: "two", 5: "five"}


@pytest.fixture
def results(tmp_path):
    return ResultsStore(tmp_path).open({"model": "tiny"})


class Maker:
    """Counts letters; stops where it is told to."""

    def __init__(self, stop=""):
        self.stop, self.asked = stop, []

    def __call__(self, cases):
        self.asked.append(list(cases))
        if self.stop in cases:
            raise KeyboardInterrupt
        numbers = [number for number, name in NAMES.items() if name in cases]
        scores = pd.DataFrame({"case_id": numbers, "letters": [len(c) for c in cases]})
        return {"scores": scores, "edits": scores.assign(letters=0)}


def test_what_is_missing_is_made_in_chunks_and_once(results):
    cases, maker = Cases(NAMES), Maker()
    table = cases.completed(results, maker)
    assert maker.asked == [["one"], ["two", "five"]]
    assert table["letters"].tolist() == [3, 3, 4]
    assert cases.read(results, "edits")["letters"].tolist() == [0, 0, 0]
    pd.testing.assert_frame_equal(cases.completed(results, None), table)  # nothing is made again


def test_an_interrupted_run_goes_on_where_it_was(results):
    cases = Cases(NAMES, 1)
    with pytest.raises(KeyboardInterrupt):
        cases.completed(results, Maker(stop="five"))
    assert cases.missing(results) == [5]
    again = Maker()
    assert len(cases.completed(results, again)) == 3
    assert again.asked == [["five"]]


def test_only_the_cases_asked_for_are_read(results):
    Cases(NAMES).completed(results, Maker())
    few = Cases({2: "two"})
    assert few.completed(results, None)["case_id"].tolist() == [2]
    assert few.read(results, "edits")["case_id"].tolist() == [2]


@pytest.mark.parametrize(
    ("chunk", "sizes"), [(1, [1, 1, 1]), (2, [1, 2]), (32, [1, 2]), (None, [3])]
)
def test_chunks_grow_from_one_case_and_are_reported(results, monkeypatch, capsys, chunk, sizes):
    """A chunk of 32 is silent for an hour on a model of a billion parameters; a sequence is whole."""
    monkeypatch.setattr("helpers.processes._EVERY", 0.0)
    monkeypatch.setenv("HELPERS_TELL", "1")
    maker = Maker()
    Cases(NAMES, chunk).completed(results, maker)
    assert [len(asked) for asked in maker.asked] == sizes
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in told] == [
        f"progress: {done} of 3 records" for done in accumulate(sizes[:-1])
    ]


def test_another_kind_may_mark_a_case_as_done(results):
    def make(cases):
        table = pd.DataFrame({"case_id": [1], "x": [1.0]})
        return {"sentences": table, "null": table}

    one = Cases({1: "one"})
    assert one.completed(results, make, mark="sentences")["x"].tolist() == [1.0]
    assert one.missing(results, mark="sentences") == []
