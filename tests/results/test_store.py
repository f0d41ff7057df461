"""The store: nothing finished is lost, nothing is counted twice, damage is contained."""

from __future__ import annotations

import warnings
from pathlib import Path

import pandas as pd
import pytest

from helpers import UserError
from helpers.results.run import Cases
from helpers.results.store import ResultsStore, StoreError, settings_key


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
        Cases({n: n for n in range(8)}, 2).completed(results, compute)
    assert results.done() == {0, 1, 2, 3, 4}
    Cases({n: n for n in [0, 1, 2, 3, 4, 6, 7]}, 2).completed(results, compute)
    assert calls == [[0], [1, 2], [3, 4], [5, 6], [6], [7]]
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
    assert not part.exists()


def test_failed_write_leaves_nothing(tmp_path, monkeypatch):
    results = ResultsStore(tmp_path).open({})
    results.append(table(1))

    def full(self, content):
        with self.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(UserError, match="free some space"):
            results.append(table(2))
    assert results.done() == {1}
    assert sorted(p.suffix for p in results.folder.iterdir()) == [".json", ".parquet"]


def test_a_table_without_records_is_refused(tmp_path):
    with pytest.raises(StoreError, match="case_id"):
        ResultsStore(tmp_path).open({}).append(pd.DataFrame({"x": [1]}))


KINDS = ("edits", "texts", "scores")


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_kind_is_damaged_its_records_are_made_again(tmp_path, kind):
    results = ResultsStore(tmp_path).open({})
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


def test_scores_that_were_stored_alone_need_no_other_part(tmp_path):
    """Adopted scores have no edits; those of other records do."""
    results = ResultsStore(tmp_path).open({})
    results.append(table(1))
    results.add({"edits": table(2), "scores": table(2)})
    (edits,) = results.folder.glob("edits-*.parquet")
    edits.write_bytes(b"")
    with pytest.warns(UserWarning, match="edits-"):
        assert results.done() == {1}


@pytest.mark.parametrize("content", ["", '{"model": "m', '{"model": "n"}', "[1]", "\udcff"])
def test_damaged_settings_name_the_file_and_the_remedy(tmp_path, content):
    results = ResultsStore(tmp_path).open({"model": "m"})
    path = results.folder / "settings.json"
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(StoreError, match=r"settings\.json.*delete that file"):
        _ = results.settings
    path.unlink()
    assert ResultsStore(tmp_path).open({"model": "m"}).settings == {"model": "m"}
