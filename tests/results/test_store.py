"""The store: nothing finished is lost, nothing is counted or made twice, damage is contained."""

from __future__ import annotations

import warnings
from itertools import accumulate

import pandas as pd
import pytest

from helpers.results import store
from helpers.results.store import Cases, ResultsStore, settings_key


@pytest.fixture
def results(tmp_path):
    return ResultsStore(tmp_path).open({"model": "tiny"})


def table(*case_ids: int, value: float = 1.0) -> pd.DataFrame:
    return pd.DataFrame({"case_id": case_ids, "value": value})


def test_key_depends_on_every_setting_but_not_on_order():
    assert settings_key({"a": 1, "b": [2]}) == settings_key({"b": [2], "a": 1})
    assert settings_key({"a": 1, "b": [2]}) != settings_key({"a": 1, "b": [3]})
    with pytest.raises(ValueError, match="JSON"):
        settings_key({"a": float("nan")})


def test_two_writers_of_one_record_count_once(results):
    results.add({"scores": table(1, 1, 2)})
    results.add({"scores": table(1, 1, 3)})
    assert results.read()["case_id"].tolist() == [1, 1, 2, 3]


def test_what_completes_a_chunk_is_written_last_whatever_the_order_of_its_kinds(
    results, monkeypatch
):
    written: list[str] = []
    whole = store.kept_whole

    def recorded(path):
        written.append(path.name.partition("-")[0])
        return whole(path)

    monkeypatch.setattr(store, "kept_whole", recorded)
    results.add({"scores": table(1), "edits": table(1)})
    results.add({"sentences": table(1), "null": table(1)}, completes="sentences")
    assert written == ["edits", "scores", "null", "sentences"]


KINDS = ("edits", "texts", "scores")


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_kind_is_damaged_its_records_are_made_again(results, kind):
    calls: list[list[int]] = []

    def compute(case_ids: list[int]) -> dict[str, pd.DataFrame]:
        calls.append(case_ids)
        return {name: table(*case_ids) for name in ("scores", "edits", "texts")}

    Cases({n: n for n in range(4)}, 2).completed(results, compute)
    part = sorted(results.folder.glob(f"{kind}-*.parquet"))[0]
    damaged = pd.read_parquet(part)["case_id"].tolist()
    part.write_bytes(part.read_bytes()[:-40])
    calls.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Cases({n: n for n in range(4)}, 2).completed(results, compute)
        found = {each: results.read(each) for each in KINDS}
    assert caught
    assert all("computed again" in str(warning.message) for warning in caught)
    assert [each for chunk in calls for each in chunk] == damaged
    for each in KINDS:
        pd.testing.assert_frame_equal(found[each], table(0, 1, 2, 3))
    Cases({n: n for n in range(4)}, 2).completed(results, compute)
    assert [each for chunk in calls for each in chunk] == damaged


NAMES = {1: "one", 2: "two", 5: "five"}


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


def test_an_interrupted_run_resumes(results):
    cases = Cases(NAMES, 1)
    with pytest.raises(KeyboardInterrupt):
        cases.completed(results, Maker(stop="five"))
    assert cases.missing(results) == [5]
    again = Maker()
    assert len(cases.completed(results, again)) == 3
    assert again.asked == [["five"]]
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


def test_progress_goes_to_whoever_is_given(results, monkeypatch, capsys):
    monkeypatch.setattr("helpers.processes._EVERY", 0.0)
    monkeypatch.delenv("HELPERS_TELL", raising=False)
    lines: list[str] = []
    Cases(NAMES, 1, tell=lines.append).completed(results, Maker())
    assert [line.partition(",")[0] for line in lines] == ["1 of 3 records", "2 of 3 records"]
    assert capsys.readouterr().err == ""
