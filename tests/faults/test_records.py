"""Bad records are named before the first edit, with the file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from helpers import UserError
from helpers.klob.run import Plan, about
from helpers.klob.run import run as run_klob
from helpers.klob.tables import made_of
from helpers.models import LanguageModel
from helpers.paths import PACKAGED
from helpers.peak.records import MINI, load_peak
from helpers.peak.run import PeakRun
from helpers.peak.tables import Caption
from helpers.peak.usable import load_usable
from helpers.results.archive import Archive, Run
from helpers.results.store import ResultsStore
from helpers.thinkedit import publish as thinkedit_publishing
from helpers.thinkedit import stored_scores
from helpers.thinkedit.knowgic import read_edits
from helpers.thinkedit.run import ThinkEditRun
from helpers.thinkedit.usable import load_usable as load_edits_of


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
def test_a_record_that_cannot_be_asked_is_named_before_the_first_edit(tiny, tmp_path, fault):
    path = written(tmp_path, UNUSABLE[fault])
    number = json.loads(path.read_text("utf-8"))[2]["case_id"]
    match = rf"mine\.json.*case_id {number}"
    with pytest.raises(UserError, match=match):
        _scored(tiny("llama"), path)


THINKEDIT = {
    **{"model": "tiny", "dtype": "float32", "device": "cpu", "corpus": "self", "preset": "tuned"},
    **{"methods": [], "modes": ["independent"], "estimators": ["exact"], "first": None, "seed": 0},
    **{"samples": 1, "temperature": 0.7, "max_new_tokens": 2, "first_line": True, "rivals": True},
}


def _edits(folder: Path, change: object) -> Path:
    """The packaged edits, the second of them changed."""
    items = json.loads((PACKAGED / "thinkedit" / "mini.json").read_text("utf-8"))
    change(items[1])  # type: ignore[operator]
    path = folder / "edits.json"
    path.write_text(json.dumps(items), "utf-8")
    return path


EDITS = {
    "an overlong prompt": lambda e: e["chains"][0]["prompts"].__setitem__(0, "word " * 3000 + "{}"),
    "an overlong question": lambda e: e["chains"][0]["questions"].__setitem__(0, "why " * 3000),
    "a trailing blank": lambda e: e["requested_rewrite"][0].update(prompt="{} is a friend of "),
}


@pytest.mark.parametrize("fault", EDITS)
def test_an_edit_that_cannot_be_asked_is_named_before_the_first_edit(tiny, tmp_path, fault):
    path = _edits(tmp_path, EDITS[fault])
    number = read_edits(path)[1].case_id
    message = rf"edits\.json, case_id {number}: .*nothing was edited yet; .*skip_bad_records"
    with pytest.raises(UserError, match=message):
        load_edits_of(tiny("llama"), str(path))
    run = ThinkEditRun(
        tiny("llama"), read_edits(path), read_edits(path), {}, ResultsStore(tmp_path)
    )
    if fault != "an overlong question":  # which exact scoring does not ask
        with pytest.raises(UserError, match=rf"case_id {number}: .*nothing was edited yet"):
            run.after(NoEdits(), "independent")  # type: ignore[arg-type]


@pytest.mark.parametrize("fault", EDITS)
def test_a_bad_edit_costs_one_edit_where_it_may_be_skipped(tiny, tmp_path, monkeypatch, fault):
    """It is nobody's rival either, and every caption counts it."""
    monkeypatch.setattr(thinkedit_publishing, "load", lambda *_, **__: tiny("llama"))
    path = str(_edits(tmp_path, EDITS[fault]))
    whole = read_edits(PACKAGED / "thinkedit" / "mini.json")
    others = [edit.case_id for edit in (whole[0], *whole[2:])]
    params = {**THINKEDIT, "benchmark": path}
    archive = Archive(tmp_path / "published")
    with pytest.raises(UserError, match=r"edits\.json"):
        thinkedit_publishing.publish(params, archive)
    thinkedit_publishing.publish({**params, "skip_bad_records": True}, archive)
    (run,) = archive.runs()
    scores = stored_scores.scores_of([run], "exact")
    assert sorted(set(scores["case_id"])) == others
    assert f"{len(others)} edits (1 skipped), preset tuned" in stored_scores.caption(scores)


def _klob(folder: Path, change: object) -> Path:
    """Facts of three wordings, the second of them changed."""
    facts = [
        {"prompts": [f"{w} {land} _" for w in "abc"], "knowledge": [land, "x_(P1)", answer]}
        for land, answer in (("Chad", "French"), ("Mali", "Bambara"), ("Togo", "Ewe"))
    ]
    change(facts[1])  # type: ignore[operator]
    path = folder / "mine.jsonl"
    path.write_text("".join(f"{json.dumps(fact)}\n" for fact in facts))
    return path


FACTS = {
    "an overlong sentence": lambda f: f["prompts"].__setitem__(2, "word " * 3000 + "Mali _"),
    "a trailing blank": lambda f: f["prompts"].__setitem__(0, "a Mali _ "),
}


@pytest.mark.parametrize("fault", FACTS)
def test_a_bad_fact_of_klob_costs_one_fact_where_it_may_be_skipped(tiny, tmp_path, fault):
    path, store = str(_klob(tmp_path, FACTS[fault])), ResultsStore(tmp_path / "store")
    plan = Plan(("activation",), path, {"consistency": None}, permutations=3)
    with pytest.raises(UserError, match=r"mine\.jsonl, line 2: .*skip_bad_records"):
        run_klob(tiny("llama"), plan, store=store)
    assert not list(tmp_path.glob("store/*"))
    skipping = replace(plan, skip_bad=True)
    tables = run_klob(tiny("llama"), skipping, store=store)
    skipped = set(tables["sentences"]["example"]) == {0, 2}
    assert skipped
    run = Run("mine", about(tiny("llama"), skipping), tables)
    assert made_of(run).endswith("all consistency (1 skipped)")


@pytest.mark.parametrize("fault", UNUSABLE)
def test_a_bad_record_costs_one_record_where_it_may_be_skipped(tiny, tmp_path, fault):
    path = written(tmp_path, UNUSABLE[fault])
    data = load_usable(tiny("llama"), str(path), skip_bad=True)
    assert data.described == "mine, 3 records (1 skipped)"
    assert len(data.skipped) == 1
    caption = Caption("m", data.name, 3, "tuned", "float32", "cpu", len(data.skipped))
    assert "mine, 3 records (1 skipped), preset tuned" in str(caption)
    run = PeakRun(tiny("llama"), data, ResultsStore(tmp_path))
    scored = run.before()["case_id"].nunique() == 3
    assert scored
    with pytest.raises(UserError):
        load_usable(tiny("llama"), str(path))


def test_a_file_of_bad_records_alone_is_refused(tiny, tmp_path):
    path = written(tmp_path, UNUSABLE["a blank answer"])
    path.write_text(json.dumps(json.loads(path.read_text("utf-8"))[2:3]), "utf-8")
    with pytest.raises(UserError, match="no record is left"):
        load_usable(tiny("llama"), str(path), skip_bad=True)


def test_the_appended_answer_among_the_random_false_ones_is_told(tmp_path):
    def change(record: dict) -> None:
        record["negtive_random_list"][0] = record["requested_rewrite"]["target_new"]["str"]

    kinds = [warning.kind for warning in load_peak(written(tmp_path, change)).warnings]
    assert "appended answer among random false" in kinds
