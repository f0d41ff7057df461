"""Publishing notebook 04's studies with a tiny model: piece by piece, resumably, scores only."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from helpers import UserError
from helpers.editing import build
from helpers.editing.app import App
from helpers.editing.contexts import ContextTemplates
from helpers.editing.rome import Rome
from helpers.peak import ablations
from helpers.peak import run as peak_scores
from helpers.peak.publish import about_of, publish_runs
from helpers.peak.records import load_peak
from helpers.peak.run import PeakRun
from helpers.peak.stored_scores import is_published, studies_of
from helpers.publish import publish
from helpers.results.archive import Archive, ArchiveError
from helpers.results.store import ResultsStore

PARAMS = {
    "records": 2,
    "editors": ["rome"],
    "fairer": ["rome"],
    "neighbours": [1],
    "factors": [2.0],
    "margins": [1.0],
    "others": [],
    "said": ["rome"],
    "samples": 2,
    "sequences": ["rome+app"],
    "checkpoints": [3, 1],
    "preset": "tuned",
    "corpus": "self",
    "seed": 0,
}


@pytest.fixture
def run(tiny, tmp_path):
    return PeakRun(tiny("llama"), load_peak("peak-mini-cf", limit=3), ResultsStore(tmp_path / "r"))


@pytest.fixture
def rome(run, rome_settings, monkeypatch):
    plain = Rome(run.language_model, rome_settings, ContextTemplates((("{}",),)))
    built = {
        "rome": plain,
        "rome+app": replace(plain, app=App()),
        "rome+all": replace(plain, targets="all"),
        "rome+all-sum": replace(plain, targets="all-sum"),
    }
    for module in (build, ablations):
        monkeypatch.setattr(module, "build_editor", lambda method, *_, **options: built[method])
    return plain


@pytest.fixture
def published(run, rome, tmp_path):
    def again():
        into = Archive(tmp_path / "p")
        return ablations.publish_ablations(run, PARAMS, about_of(run, PARAMS), into)

    return again


def test_every_study_is_stored(published):
    path = published()
    stored = studies_of(Archive(path.parent).get(path.name))
    assert set(stored.scores) == {
        *("rome", "rome+app", "rome+all", "rome+all-sum"),
        *("rome+app@neighbours=1", "rome+app@margin=1"),
        *(f"rome+app@{field}={x}x" for field in ("alpha", "beta", "gamma") for x in (0, 2)),
    }
    assert {table["case_id"].nunique() for table in stored.scores.values()} == {2}
    assert {place: t["case_id"].nunique() for place, t in stored.sequences.items()} == {
        ("rome+app", 1): 1,
        ("rome+app", 3): 3,
    }
    assert set(stored.said) == {"before", "again", "rome"}
    assert stored.settings["rome+app@margin=1"]["app"]["margin"] == 1
    files = {file.suffix for file in path.rglob("*") if file.is_file()}
    assert files == {".json", ".parquet"}


def test_factors_of_a_coefficient_that_is_zero_are_no_variants(run, rome, tmp_path, monkeypatch):
    """As with MEND, whose APP has L1 alone."""
    built = {"rome": rome, "rome+app": replace(rome, app=App(0.3, 0, 0))}
    for module in (build, ablations):
        monkeypatch.setattr(module, "build_editor", lambda method, *_, **options: built[method])
    params = {**PARAMS, "fairer": [], "said": [], "sequences": [], "checkpoints": [1]}
    into = Archive(tmp_path / "p")
    path = ablations.publish_ablations(run, params, about_of(run, params), into)
    fields = {name.partition("@")[2] for name in into.get(path.name).tables}
    assert fields == {"", "alpha=0x", "alpha=2x", "margin=1", "neighbours=1"}


@pytest.mark.parametrize("name", ["organisation/tiny", "/home/somebody/tiny"])
def test_names_with_slashes_are_one_folder(run, rome, tmp_path, name):
    run = replace(run, language_model=replace(run.language_model, name=name))
    about, into = about_of(run, PARAMS), Archive(tmp_path / "ablations")
    studies = ablations.publish_ablations(run, PARAMS, about, into)
    assert into.names() == [studies.name]
    into = Archive(tmp_path / "runs")
    runs = publish_runs(run, {**PARAMS, "methods": ["rome"]}, into)
    assert into.names() == [runs.name] == [studies.name]
    elsewhere = replace(run, store=ResultsStore(tmp_path / "elsewhere"))
    assert publish_runs(elsewhere, {**PARAMS, "methods": ["rome"]}, into) == runs
    assert elsewhere.edits(rome).empty  # published, not made again


def test_a_second_run_computes_nothing_and_writes_the_same(published, monkeypatch):
    path = published()
    before = {file: file.read_bytes() for file in path.rglob("*.*")}
    monkeypatch.setattr(Rome, "edit", None)  # any edit would fail
    monkeypatch.setattr(peak_scores, "score_answers", None)
    published()
    assert {file: file.read_bytes() for file in path.rglob("*.*")} == before


def test_published_sequences_are_not_made_again_elsewhere(published, run, tmp_path, monkeypatch):
    path = published()
    before = studies_of(Archive(path.parent).get(path.name)).sequences
    elsewhere = replace(run, store=ResultsStore(tmp_path / "elsewhere"))
    monkeypatch.setattr(Rome, "edit", None)  # any edit would fail
    params = {**PARAMS, "said": []}
    ablations.publish_ablations(elsewhere, params, about_of(run, params), Archive(path.parent))
    after = studies_of(Archive(path.parent).get(path.name)).sequences
    assert after.keys() == before.keys()
    for place, table in before.items():
        pd.testing.assert_frame_equal(after[place], table)


def test_published_scores_are_not_computed_again_elsewhere(run, rome, tmp_path, monkeypatch):
    params = {**PARAMS, "methods": ["rome", "rome+app"]}
    path = publish_runs(run, params, Archive(tmp_path / "p"))
    first = Archive(path.parent).get(path.name)
    elsewhere = replace(run, store=ResultsStore(tmp_path / "elsewhere"))
    monkeypatch.setattr(Rome, "edit", None)  # any edit would fail
    monkeypatch.setattr(peak_scores, "score_answers", None)
    publish_runs(elsewhere, params, Archive(path.parent))
    again = Archive(path.parent).get(path.name)
    assert again.about == first.about
    for label, table in first.tables.items():
        pd.testing.assert_frame_equal(again.tables[label], table)
    # The archive holds single precision, the store what was computed: none of the former gets there.
    assert not elsewhere.results().done()
    assert not elsewhere.results(rome).done()


def test_what_is_published_of_other_settings_or_fewer_records_is_made(run, rome, tmp_path):
    params, into = {**PARAMS, "methods": ["rome"]}, Archive(tmp_path / "p")
    name = publish_runs(run, params, into).name
    table = into.get(name).tables["ROME"]
    records = run.data.records
    assert is_published(into.get(name), "ROME", rome.settings(), records)
    assert not is_published(into.get(name), "ROME", replace(rome, app=App()).settings(), records)
    first = Archive(tmp_path / "first")
    part = replace(run, data=replace(run.data, records=records[:2]))
    publish_runs(part, params, first)
    assert not is_published(first.get(name), "ROME", rome.settings(), records)
    publish_runs(run, params, first)
    pd.testing.assert_frame_equal(first.get(name).tables["ROME"], table)


def test_a_published_run_takes_methods_and_never_loses_records(run, rome, tmp_path):
    into = Archive(tmp_path / "p")
    path = publish_runs(run, {**PARAMS, "methods": ["rome"]}, into)
    publish_runs(run, {**PARAMS, "methods": ["rome+app"]}, into)
    assert list(into.get(path.name).tables) == ["ROME", "ROME+APP"]
    before = {file: file.read_bytes() for file in path.iterdir()}
    first = replace(run, data=replace(run.data, records=run.data.records[:1]))
    with pytest.raises(UserError, match="holds 3 records, which this run lacks"):
        publish_runs(first, {**PARAMS, "methods": ["rome"]}, into)
    named = publish_runs(first, {**PARAMS, "methods": ["rome"]}, replace(into, label="mine"))
    assert named.name == f"{path.name}@mine"
    assert into.get(named.name).about.caption["records"] == 1
    assert {file: file.read_bytes() for file in path.iterdir()} == before


def test_another_source_is_refused_before_anything_is_made(run, rome, tmp_path, monkeypatch):
    into, studies = Archive(tmp_path / "p"), Archive(tmp_path / "s")
    params = {**PARAMS, "methods": ["rome"]}
    publish_runs(run, params, into)
    ablations.publish_ablations(run, PARAMS, about_of(run, PARAMS), studies)
    monkeypatch.setattr(Rome, "edit", None)  # any edit would fail
    loose = replace(run, data=replace(run.data, strict_lists=False))
    with pytest.raises(ArchiveError, match=r"strict_lists .*, now False"):
        publish_runs(loose, params, into)
    with pytest.raises(ArchiveError, match=r"strict_lists .*, now False"):
        ablations.publish_ablations(loose, PARAMS, about_of(loose, PARAMS), studies)


def test_studies_under_other_hyperparameters_are_refused(published, rome):
    path = published()
    before = {file: file.read_bytes() for file in path.iterdir()}
    rome.hyperparameters = rome.hyperparameters.model_copy(update={"v_lr": 0.123})
    with pytest.raises(ArchiveError, match="was made with other settings than rome"):
        published()
    assert {file: file.read_bytes() for file in path.iterdir()} == before


def test_nothing_finished_is_nothing_stored(run, rome, tmp_path):
    with pytest.raises(UserError, match="none of ROME is finished"):
        publish_runs(run, {**PARAMS, "methods": ["rome"]}, Archive(tmp_path / "p"), finished=True)
    assert not (tmp_path / "p").exists()


def test_only_some_notebooks_are_published():
    from helpers.paths import PARAMS as FOLDER

    with pytest.raises(UserError, match="published are only 02_peak_construction, 03_"):
        publish(FOLDER / "quick" / "01_preliminaries.yaml")
