"""Bad records are named before the first edit, with the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.models import LanguageModel
from helpers.peak.records import MINI, load_peak
from helpers.peak.run import PeakRun
from helpers.records import RecordError
from helpers.results.store import ResultsStore


class NoEdits:
    """An editor that must not be asked."""

    def settings(self) -> dict[str, str]:
        return {"editor": "none"}

    def edit(self, requests: object) -> None:
        pytest.fail("a record was edited")


def written(folder: Path, change: object) -> Path:
    """The packaged set's first records, the third of them changed."""
    items = json.loads(MINI["peak-mini-cf"].read_text("utf-8"))[:4]
    change(items[2])  # type: ignore[operator]
    path = folder / "mine.json"
    path.write_text(json.dumps(items), "utf-8")
    return path


def _scored(language_model: LanguageModel, path: Path) -> None:
    """Read a file and edit its records."""
    run = PeakRun(language_model, load_peak(path), ResultsStore(path.parent / "store"))
    run.after(NoEdits())  # type: ignore[arg-type]


UNUSABLE = {
    "an overlong prompt": lambda r: r["para_add_prompts"].append("word " * 3000 + "of"),
    "a trailing blank": lambda r: r["para_add_prompts"].append("Germany borders "),
    "a blank answer": lambda r: r["postive_list"].append(" "),
}


@pytest.mark.parametrize("fault", UNUSABLE)
def test_a_record_that_cannot_be_asked_is_named_before_the_first_edit(tiny, tmp_path, tally, fault):
    path = written(tmp_path, UNUSABLE[fault])
    number = json.loads(path.read_text("utf-8"))[2]["case_id"]
    match = rf"mine\.json.*case_id {number}"
    with pytest.raises(RecordError, match=match):
        _scored(tiny("llama"), path)
    tally("bad records: named before the first edit", True)


REFUSED = {
    "half a character": lambda r: r["postive_list"].append("\ud800"),
    "a case_id beyond 64 bits": lambda r: r.update(case_id=2**70),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_a_record_that_is_none_is_refused_where_it_is_read(tmp_path, tally, fault):
    with pytest.raises(RecordError, match=r"mine\.json, record 2.*(half a character|64 bits)"):
        load_peak(written(tmp_path, REFUSED[fault]))
    tally("bad records: refused where they are read", True)


def test_deep_json_is_one_line(tmp_path, tally):
    path = tmp_path / "deep.json"
    path.write_text("[" * 200_000)
    with pytest.raises(RecordError, match="nested too deeply"):
        load_peak(path)
    tally("bad records: refused where they are read", True)


def test_the_appended_answer_among_the_random_false_ones_is_told(tmp_path):
    def change(record: dict) -> None:
        record["negtive_random_list"][0] = record["requested_rewrite"]["target_new"]["str"]

    kinds = [warning.kind for warning in load_peak(written(tmp_path, change)).warnings]
    assert "appended answer among random false" in kinds
