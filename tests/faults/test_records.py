"""Bad records are named before the first edit, with the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers import UserError
from helpers.klob.run import run_locators as run_klob
from helpers.peak.records import MINI, load_peak
from helpers.peak.run import PeakRun
from helpers.results.store import ResultsStore


def written(folder: Path, items: list[dict], change: object, name: str = "mine.json") -> Path:
    """A file of these items, the second of them changed."""
    change(items[1])  # type: ignore[operator]
    path = folder / name
    path.write_text(json.dumps(items), "utf-8")
    return path


RECORDS = {
    "an overlong prompt": lambda r: r["para_add_prompts"].append("word " * 3000 + "of"),
    "a trailing blank": lambda r: r["para_add_prompts"].append("Germany borders "),
    "a blank answer": lambda r: r["postive_list"].append(" "),
}


@pytest.mark.parametrize("fault", RECORDS)
def test_a_record_that_cannot_be_asked_is_named_before_the_first_edit(tiny, tmp_path, fault):
    items = json.loads(MINI["peak-mini-cf"].read_text("utf-8"))[:4]
    path = written(tmp_path, items, RECORDS[fault])
    with pytest.raises(UserError, match=rf"mine\.json.*case_id {items[1]['case_id']}"):
        PeakRun(tiny("llama"), load_peak(path), ResultsStore(tmp_path / "store")).scored()
    assert not list(tmp_path.glob("store/*/*.parquet"))


FACTS = {
    "an overlong sentence": lambda f: f["prompts"].__setitem__(2, "word " * 3000 + "Mali _"),
    "a trailing blank": lambda f: f["prompts"].__setitem__(0, "a Mali _ "),
}


@pytest.mark.parametrize("fault", FACTS)
def test_a_fact_of_klob_that_cannot_be_asked_is_named_before_the_first_score(tiny, tmp_path, fault):
    facts = [
        {"prompts": [f"{w} {land} _" for w in "abc"], "knowledge": [land, "x_(P1)", answer]}
        for land, answer in (("Chad", "French"), ("Mali", "Bambara"), ("Togo", "Ewe"))
    ]
    FACTS[fault](facts[1])
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(f"{json.dumps(fact)}\n" for fact in facts))
    plan = ["activation"], str(path), {"consistency": None}
    with pytest.raises(UserError, match=r"mine\.jsonl, line 2: .*nothing was edited yet"):
        run_klob(tiny("llama"), *plan, store=ResultsStore(tmp_path / "store"))
    assert not list(tmp_path.glob("store/*"))
