"""The store: nothing finished is lost, nothing is counted twice, damage is contained."""

from __future__ import annotations

import pandas as pd
import pytest

from helpers.runs.store import ResultsStore, StoreError, complete, settings_key


def table(*case_ids: int, value: float = 1.0) -> pd.DataFrame:
    return pd.DataFrame({"case_id": case_ids, "value": value})


def test_key_depends_on_every_setting_but_not_on_order():
    assert settings_key({"a": 1, "b": [2]}) == settings_key({"b": [2], "a": 1})
    assert settings_key({"a": 1, "b": [2]}) != settings_key({"a": 1, "b": [3]})
    with pytest.raises(StoreError, match="JSON"):
        settings_key({"a": object()})
    with pytest.raises(StoreError, match="JSON"):
        settings_key({"a": float("nan")})


def test_append_and_read(tmp_path):
    results = ResultsStore(tmp_path).open({"model": "m"})
    assert results.done() == set()
    results.append(table(3, 3, 1))
    results.append(table(2))
    assert results.done() == {1, 2, 3}
    assert results.read()["case_id"].tolist() == [1, 2, 3, 3]
    assert results.settings == {"model": "m"}


def test_interrupted_run_resumes_where_it_stopped(tmp_path):
    results = ResultsStore(tmp_path).open({})
    calls: list[list[int]] = []

    def compute(case_ids: list[int]) -> dict[str, pd.DataFrame]:
        calls.append(case_ids)
        if 5 in case_ids:
            raise KeyboardInterrupt
        return {"scores": table(*case_ids), "edits": table(*case_ids)}

    with pytest.raises(KeyboardInterrupt):
        complete(results, range(8), compute, chunk=2)
    assert results.done() == {0, 1, 2, 3}
    complete(results, [0, 1, 2, 3, 4, 6, 7], compute, chunk=2)
    assert calls == [[0, 1], [2, 3], [4, 5], [4, 6], [7]]
    assert results.done("edits") == results.done() == {0, 1, 2, 3, 4, 6, 7}


def test_two_writers_of_one_record_count_once(tmp_path):
    results = ResultsStore(tmp_path).open({})
    results.append(table(1, 1, 2))
    results.append(table(1, 1, 3))
    assert results.read()["case_id"].tolist() == [1, 1, 2, 3]


def test_damaged_part_is_set_aside_and_its_records_are_missing(tmp_path):
    results = ResultsStore(tmp_path).open({})
    results.append(table(1))
    (part,) = results.folder.glob("scores-*.parquet")
    part.write_bytes(part.read_bytes()[:40])
    with pytest.warns(UserWarning, match="damaged"):
        assert results.done() == set()
    assert list(results.folder.glob("*.damaged"))


def test_failed_write_leaves_nothing(tmp_path, monkeypatch):
    results = ResultsStore(tmp_path).open({})
    results.append(table(1))

    def full(self, path, **options):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", full)
    with pytest.raises(StoreError, match="free some space"):
        results.append(table(2))
    assert results.done() == {1}
    assert sorted(p.suffix for p in results.folder.iterdir()) == [".json", ".parquet"]


def test_a_table_without_records_is_refused(tmp_path):
    with pytest.raises(StoreError, match="case_id"):
        ResultsStore(tmp_path).open({}).append(pd.DataFrame({"x": [1]}))
