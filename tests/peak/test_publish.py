"""Runs of notebooks 03 and 04 published with a tiny model: a table a part, resumably, scores only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers import UserError
from helpers.behaviour import damage
from helpers.behaviour import studies as ablation_studies
from helpers.editing import build
from helpers.editing.app import App
from helpers.editing.contexts import ContextTemplates
from helpers.editing.rome import Rome
from helpers.peak import publish
from helpers.peak.ablations import studies_of
from helpers.peak.records import load_peak
from helpers.peak.run import PeakRun
from helpers.peak.tables import caption_of
from helpers.results import evaluation
from helpers.results.archive import Archive
from helpers.results.publish import publish_parts
from helpers.results.store import ResultsStore

PARAMS = {
    "records": 2,
    "editors": ["rome"],
    "fairer": ["rome"],
    "neighbours": [1],
    "factors": [2.0],
    "margins": [1.0],
    "others": [],
    "sequences": ["rome+app"],
    "checkpoints": [3, 1],
    "preset": "tuned",
    "corpus": "self",
    "seed": 0,
}
ROME = {**PARAMS, "methods": ["rome"]}
DOSES = {**PARAMS, "doses": ["rome", "rome@kl_factor=2x"], "ability": []}


@pytest.fixture
def run(tiny, tmp_path):
    return PeakRun(tiny("llama"), load_peak("peak-mini-cf", limit=3), ResultsStore(tmp_path / "r"))


@pytest.fixture
def built(run, rome_settings, monkeypatch):
    """The editors that stand in for those of the presets, by method."""
    plain = Rome(run.lm, rome_settings, ContextTemplates((("{}",),)))
    built = {
        "rome": plain,
        "rome+app": replace(plain, app=App()),
        "rome+all": replace(plain, targets="all"),
        "rome+all-sum": replace(plain, targets="all-sum"),
    }
    monkeypatch.setattr(build, "build_editor", lambda method, *_, **options: built[method])
    return built


@pytest.fixture
def into(tmp_path):
    return Archive(tmp_path / "p")


def edits(run, into, params=ROME, **how):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publish, "peak_run", lambda _: run)
        return publish_parts(publish.publication(params), into, **how)


def studies(run, into, **changes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ablation_studies, "peak_run", lambda _: run)
        return publish_parts(ablation_studies.publication({**PARAMS, **changes}), into)


def doses(run, into):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(damage, "peak_run", lambda _: run)
        return publish_parts(damage.publication(DOSES), into)


def contents(path):
    return {file: file.read_bytes() for file in path.rglob("*.*")}


def no_computation(monkeypatch):
    monkeypatch.setattr(Rome, "edit", None)  # any edit would fail
    monkeypatch.setattr(evaluation, "score_answers", None)


@pytest.mark.slow
def test_every_study_is_stored_once(run, built, into, rome_settings, tmp_path, monkeypatch):
    path = studies(run, into)
    stored = studies_of(into.get(path.name))
    assert set(stored.scores) == {
        *built,
        *("rome+app@neighbours=1", "rome+app@margin=1"),
        *(f"rome+app@{field}={x}x" for field in ("alpha", "beta", "gamma") for x in (0, 2)),
    }
    assert {table["case_id"].nunique() for table in stored.scores.values()} == {2}
    assert {str(key): t["case_id"].nunique() for key, t in stored.sequences.items()} == {
        "rome+app after 1": 1,
        "rome+app after 3": 3,
    }
    assert stored.run.about.settings["rome+app@margin=1"]["app"]["margin"] == 1
    assert {file.suffix for file in path.rglob("*") if file.is_file()} == {".json", ".parquet"}
    before = contents(path)
    no_computation(monkeypatch)
    studies(replace(run, store=ResultsStore(tmp_path / "elsewhere")), into)
    assert contents(path) == before


def test_doses_are_stored_with_their_next_tokens(run, built, into, rome_settings, monkeypatch):
    path = doses(run, into)
    stored = into.get(path.name)
    names = ["rome", "rome@kl_factor=2x"]
    assert list(stored.tables) == [*names, *(f"locality: {name}" for name in names)]
    settings = stored.about.settings["locality: rome@kl_factor=2x"]
    assert settings["hyperparameters"]["kl_factor"] == 2 * rome_settings.kl_factor
    before = contents(path)
    no_computation(monkeypatch)
    doses(run, into)
    assert contents(path) == before


def test_a_published_run_takes_methods_and_never_loses_records(run, built, into):
    path = edits(run, into)
    edits(run, into, {**ROME, "methods": ["rome+app"]})
    assert list(into.get(path.name).tables) == ["ROME", "ROME+APP"]
    drawn = edits(run, replace(into, label="drawn"), {**ROME, "keep": 2})
    assert "first 2 over-represented, others by relation, seed 0" in caption_of(
        into.get(drawn.name)
    )
    random = edits(run, replace(into, label="random"), {**ROME, "keep": 0})
    assert "ours: " in caption_of(into.get(random.name))
    assert into.get(random.name).about.caption["sample"] == "by relation, seed 0"
    before = contents(path)
    first = replace(run, data=replace(run.data, records=run.data.records[:1]))
    with pytest.raises(UserError, match="has records that this run lacks"):
        edits(first, into)
    named = edits(first, replace(into, label="mine"))
    assert named.name == f"{path.name}@mine"
    assert into.get(named.name).about.caption["records"] == 1
    assert contents(path) == before
